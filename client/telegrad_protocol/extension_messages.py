"""Extensions in C++ and CUDA: building them is a query, calling their functions an instruction.

An argument travels as it is where it is None, a bool, an int, a float or a text. Lists say what they hold: ``[id]`` is
a tensor, ``[0, items]`` a list, ``[1, items]`` a tuple, ``[2, code]`` a dtype, ``[3, name]`` a device, ``[4, real,
imaginary]`` a complex number, ``[5, pairs]`` a dict. What a function returns travels in the same way, but for tensors:
``[6, position]`` is the tensor that the function was given there, counted among its tensors, and ``[7, id, meta,
requires_grad, base]`` a new one with its meta as ``Description`` has it and its device behind that; ``base`` is the
position of the argument whose memory it shares, or -1. ``[8, id]`` is an instance of a class of the extension, and
``[8, id, class]`` a new one, by the number of its class there; it is freed as tensors are. ``[9, class, value]`` is a
value of an enumeration, and ``[10, items]`` a set.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct

from .queries import SessionQuery

LIST, TUPLE, DTYPE, DEVICE, COMPLEX, DICT, GIVEN, NEW, INSTANCE, ENUMERATOR, SET = range(11)
FUNCTION, METHOD, STATIC, GETTER, SETTER, OPERATOR, STATIC_GETTER, STATIC_SETTER = range(8)
ALWAYS_PLAN: Final = -1
"""The plan of a request that asks for a plan even where the function may have seen elements of tensors."""
MOST_BYTES: Final = 4 << 20
"""The sources of an extension and the headers that they include have at most so many characters together."""


class CallExtension(Struct, frozen=True, array_like=True, tag=48, gc=False):
    """Call function number ``function`` of the session's extensions.

    With a ``request`` the answer tells what it returns, and the number of a plan if the next call of this kind can be
    expected to return the same but for the elements, else 0: where it has seen elements it cannot, unless ``plan`` is
    ``ALWAYS_PLAN``. Without a request the results get the ids ``outs``, and it is
    an error if they differ from those of ``plan``; plan 0 stands for a function that returns nothing. The tensors
    ``freed`` are freed before it runs.
    """

    function: int
    site: int
    outs: tuple[int, ...]
    args: list[Any]
    plan: int = 0
    request: int | None = None
    freed: Sequence[int] = ()


class BuildExtension(SessionQuery, frozen=True):
    """Compile an extension, load it into the session's worker, and tell what it has.

    ``sources`` and ``headers`` are pairs of a file's name and its text, under the client's names of its files, as
    ``include_paths`` are. ``architectures`` is what ``TORCH_CUDA_ARCH_LIST`` says, empty for that of the worker's GPU.
    The answer is a dict: ``log`` is what the compilers said; ``error`` is empty, or says in a word what has failed;
    ``functions`` has ``[number, name, doc, result, is_exported, class, role, unnamed, by_place, parameters]`` with
    parameters as ``[name, type]`` or ``[name, type, default]``, of which ``unnamed`` are given by place alone and
    ``by_place`` may be (-1: all); the class is -1 for a function of the module, and the role says what it is in its
    class (``FUNCTION``, ``METHOD`` and so on). ``classes`` has ``[path, doc, numbers of bases, has_overrides,
    is_enumeration, arithmetic, enumerators]`` with enumerators as ``[name, value, doc]``; ``operators`` has
    ``[namespace, name or schema, key, function or -1, is_definition]``. ``attributes`` and ``doc`` are those of the
    module, ``modules`` has ``[path, doc]`` of those within it.
    """

    name: str
    sources: list[tuple[str, str]]
    headers: list[tuple[str, str]]
    include_paths: list[str]
    cflags: list[str]
    cuda_cflags: list[str]
    ldflags: list[str]
    with_cuda: bool
    architectures: str = ""
