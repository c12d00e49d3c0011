"""Instructions about kernels that the client's program brings: their machine code or text, and their launches."""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

CUDA_TEXT: Final = "cuda"
"""The kind of code that the server compiles; the others are loaded as they are."""
CODE_KINDS: Final = (CUDA_TEXT, "ptx", "cubin")
MAX_CODE_BYTES: Final = 6 << 20
"""A module's code travels in one frame."""
COOPERATIVE: Final = 1
"""The flag of launches all of whose blocks run at once, so that they can wait for each other."""
PROGRAMMATIC: Final = 2
"""The flag of launches that may begin before the kernel in front of them has ended, and wait for it themselves."""

ADDRESS: Final = "P"
"""The form of an argument that is a tensor, by its number: the kernel gets its first element's address."""
NULL: Final = "n"
"""The form of an argument that is a null pointer; nothing stands for it among the arguments."""
INTEGER: Final = "i"
"""The form of a whole number or bool, which takes the size of its parameter."""
FLOAT: Final = "f"
"""The form of a floating-point number, which takes the type of its parameter."""
TENSOR_MAP: Final = "t"
"""The form of a map by which the copy engine finds tiles of a tensor: its argument is a ``TensorMap`` as a list."""
BYTES: Final = "b"
"""The form of an argument by value whose bytes are given."""


class TensorMap(Struct, frozen=True, array_like=True, gc=False):
    """What ``cuTensorMapEncodeTiled`` encodes, sizes in elements and outermost first.

    ``kind`` is the driver's number of an element type, ``swizzle`` that of an exchange within rows of shared memory;
    ``nan`` fills what is outside with NaN, else it is zero.
    """

    tensor: int
    kind: int
    itemsize: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int
    nan: bool


class LoadModule(Struct, frozen=True, array_like=True, tag=40, gc=False):
    """Load code onto a device as module ``id``, which ``Free`` frees; where ``kind`` is ``cuda``, compile it first.

    ``file`` is what the compiler calls the text, which begins at ``line`` of it. ``headers`` are texts that it
    includes, by name; ``expressions`` are names of instances of templates and the like, to be found by these names.
    """

    id: int
    site: int
    device: str
    kind: str
    code: bytes
    file: str = ""
    line: int = 1
    options: tuple[str, ...] = ()
    headers: dict[str, str] = {}
    expressions: tuple[str, ...] = ()


class DefineKernel(Struct, frozen=True, array_like=True, tag=41, gc=False):
    """Make the function ``name`` of a module kernel ``id``, which ``Free`` frees.

    ``written`` are the places of the parameters whose memory it writes to. Where that is None the server looks into
    the code; what it cannot tell counts as written, but for the places ``read_only``.
    """

    id: int
    site: int
    module: int
    name: str
    written: tuple[int, ...] | None = None
    read_only: tuple[int, ...] = ()


class SetKernelAttribute(Struct, frozen=True, array_like=True, tag=42, gc=False):
    """Set an attribute of a kernel: ``max_dynamic_shared_size_bytes`` or ``preferred_shared_memory_carveout``."""

    kernel: int
    site: int
    name: str
    value: int


class LaunchKernel(Struct, frozen=True, array_like=True, tag=43, gc=False):
    """Launch a kernel on the current stream of its device.

    ``forms`` has a letter per parameter: ``ADDRESS``, ``NULL``, ``INTEGER``, ``FLOAT``, ``TENSOR_MAP`` or ``BYTES``;
    ``args`` are the numbers of tensors and the values that they stand for, in order, without null pointers. ``shared``
    are bytes of dynamic shared memory per block, ``cluster`` the blocks of a cluster in each dimension, ``flags`` the
    sum of ``COOPERATIVE`` and ``PROGRAMMATIC`` or one of them.
    """

    kernel: int
    site: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    forms: str
    args: list[Any]
    shared: int = 0
    cluster: tuple[int, int, int] | None = None
    flags: int = 0
