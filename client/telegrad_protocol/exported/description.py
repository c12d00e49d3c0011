"""The description of a program in the metadata of a file: strict types, and the parser with its limits."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from telegrad_protocol.errors import NotSupportedError, ProgramError

from .sizes import Formula, Size, shape_at

VERSION: Final = 1
MAX_BYTES: Final = 16 << 20
"""The longest description that is parsed."""
MAX_STEPS: Final = 200_000
MAX_TENSORS: Final = 100_000
MAX_INPUTS: Final = 1024
MAX_SYMBOLS: Final = 64

Number = Annotated[int, Meta(ge=0, lt=1 << 31)]
"""Of a value: an input, a tensor of the file, or the result of a step."""
Name = Annotated[str, Meta(min_length=1, max_length=512)]
Shape = Annotated[tuple[Size, ...], Meta(max_length=64)]


class _Strict(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A part of the description in which an unknown member is an error."""


class Symbol(_Strict, frozen=True):
    """A size that differs between calls, from ``min`` to ``max``, both included; no ``max`` is no bound."""

    name: Name
    min: Annotated[int, Meta(ge=0, lt=1 << 48)]
    max: Annotated[int, Meta(ge=0, lt=1 << 48)] | None = None


class TensorType(_Strict, frozen=True):
    """The element type of a tensor, and its shape."""

    dtype: Name
    shape: Shape

    def at(self, sizes: dict[str, int]) -> tuple[int, ...]:
        """Return the shape for these sizes of the symbols."""
        return shape_at(self.shape, sizes)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


class NamedTensor(TensorType, frozen=True, kw_only=True):
    """A tensor with a name, and the number of its value."""

    name: Name
    value: Number


class Source(NamedTensor, frozen=True, kw_only=True):
    """A tensor that is there before the first step, and where."""

    device: Name = "cpu"


class Input(Source, frozen=True, kw_only=True):
    """A tensor that a caller gives; ``place`` is that of the leaf among all arguments."""

    place: Number


class Held(Source, frozen=True, kw_only=True):
    """A tensor of the file. What is written to (``is_written``) begins every call as it is in the file."""

    kind: Literal["parameter", "buffer", "constant"]
    is_persistent: bool = True
    requires_grad: bool = False
    is_written: bool = False


class Step(_Strict, frozen=True):
    """One operation: its name in the table, arguments by parameter, and the numbers of its results.

    No gradient flows through one that the module has called in a ``no_grad`` block of its own (``without_gradient``).
    """

    op: Name
    args: dict[str, Any]
    outs: Annotated[tuple[Number, ...], Meta(max_length=4096)]
    results: Annotated[tuple[TensorType, ...], Meta(max_length=4096)] = ()
    line: Number = 0
    without_gradient: bool = False


class Output(NamedTensor, frozen=True, kw_only=True):
    """A tensor that a call returns."""


class ProgramDescription(_Strict, frozen=True):
    """A program. ``lines`` are those of the module's source that steps come from, the first is for unknown ones.

    ``arguments`` and ``results`` are the structures around inputs and outputs: see ``trees``.
    """

    version: int
    symbols: Annotated[tuple[Symbol, ...], Meta(max_length=MAX_SYMBOLS)]
    inputs: Annotated[tuple[Input, ...], Meta(max_length=MAX_INPUTS)]
    tensors: Annotated[tuple[Held, ...], Meta(max_length=MAX_TENSORS)]
    steps: Annotated[tuple[Step, ...], Meta(max_length=MAX_STEPS)]
    outputs: Annotated[tuple[Output, ...], Meta(max_length=MAX_INPUTS)]
    arguments: Any = None
    results: Any = None
    lines: Annotated[tuple[str, ...], Meta(max_length=MAX_STEPS)] = ("",)
    written_inputs: Annotated[tuple[Name, ...], Meta(max_length=MAX_INPUTS)] = ()

    def base_device(self) -> str:
        """Return the device that stands for the server's default one: that of the inputs, else of the tensors."""
        return next((tensor.device for tensor in self.sources), "cpu")

    @property
    def sources(self) -> tuple[Source, ...]:
        """The inputs, and the tensors of the file."""
        return (*self.inputs, *self.tensors)


def parse(text: bytes) -> ProgramDescription:
    """Parse a description; ProgramError where it is malformed, NotSupportedError where it is of another version."""
    if len(text) > MAX_BYTES:
        raise ProgramError(f"the description of the program has {len(text)} bytes; the most is {MAX_BYTES}")
    try:
        version = msgspec.json.decode(text, type=_Versioned).version
        if version != VERSION:
            raise NotSupportedError(
                f"the program is of version {version}, and this telegrad reads version {VERSION}; export it again, or "
                "install the version of telegrad that it was exported with"
            )
        return msgspec.json.decode(text, type=ProgramDescription)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ProgramError(f"the description of the program is malformed: {error}") from None


def encode(description: ProgramDescription) -> bytes:
    """Return a description as JSON."""
    return msgspec.json.encode(description)


class _Versioned(Struct):
    version: int


def formula_of(item: dict[str, Any]) -> Formula:
    """Return the formula that a part of an argument describes."""
    try:
        return msgspec.convert(item, Formula).check()
    except msgspec.ValidationError as error:
        raise ProgramError(f"an argument of the program is malformed: {error}") from None
