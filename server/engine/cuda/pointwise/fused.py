"""Fused element-wise kernels on a GPU: one text for all operations, made of the expressions of the single ones.

Sizes and numbers are parameters of the launch, so that the same chain of operations on other shapes is the same text.
Results in half precision are rounded once, when they are written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from server.engine import keys
from server.engine.array_library.dtypes import HALVES
from server.engine.cuda.runtime.background import Awaited, background_compiler
from server.engine.cuda.runtime.geometry import Layout, blocks, layout_of, layout_type, packed, vector_width
from server.engine.cuda.runtime.kept_modules import MODULE_BYTES, load_kept
from server.engine.cuda.runtime.launch import architecture, collecting
from server.engine.cuda.runtime.prelude import CTYPES
from server.engine.programs.fused import (
    FUSERS,
    JOINERS,
    Compute,
    Executor,
    Fuser,
    Kernel,
    Pending,
    Register,
    compute_of,
    is_cast,
)  # fmt: skip
from server.engine.programs.joined import Joined
from server.engine.value import Backend, Launch
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.meta import Device, Meta
from telegrad_protocol.ops import TABLE

from .expressions import EXPRESSIONS, LIGHT, Chosen, Work
from .fused_text import Function, FusedText, text_of
from .pointwise import CONDITIONS, NAMES, called_in, computing, constant_of, is_number, kind_of
from .pointwise_text import THREADS, Operand

_MOST_OPERANDS = 24
_UNFIT = re.compile(r"\W")


def takes(compute: Compute, out: Meta) -> bool:
    """Whether an operation has an expression for these arguments."""
    types = [compute.compute, compute.dtype, *[meta.dtype for meta in compute.bound if isinstance(meta, Meta)]]
    return dtypes.complex32 not in types and _expression(compute) is not None


def _expression(compute: Compute) -> tuple[Chosen, Work] | None:
    if is_cast(compute):
        return Chosen("input"), LIGHT
    expression = EXPRESSIONS.get(compute.op.name)
    if expression is None:
        return None
    attributes = _named(compute.op, compute.bound)
    chosen = expression.choose(attributes, computing(compute.compute), compute.dtype)
    return None if chosen is None else (chosen, expression.work)


def _named(op: Any, args: tuple[Any, ...]) -> dict[str, Any]:
    return {p.name: arg for p, arg in zip(op.params, args, strict=True)}


class Written(NamedTuple):
    """A kernel's text, and how it is launched: blocks of threads, and the constants after the pointers.

    ``offsets`` say where in their memory what is written and what is read begin, in bytes.
    """

    text: str
    blocks: int
    constants: list[bytes | tuple[str, int]]
    offsets: list[int]

    def loaded(self) -> Callable[..., None]:
        """Return what starts the kernel, loaded on the current device; it is compiled where that was not done yet."""
        function = load_kept(self.text, "fused")
        return function.prepare(self.blocks, THREADS, "P" * len(self.offsets), self.constants)


class Numbers:
    """The numbers that a kernel takes as parameters: their C++ types, names and bytes."""

    def __init__(self) -> None:
        self.declared: list[tuple[str, str]] = []
        self.constants: list[bytes | tuple[str, int]] = []

    def add(self, values: Mapping[str, Any], compute: DType) -> tuple[tuple[str, str, str], ...]:
        """Take the numbers of one operation; kind, name there, and name of the parameter."""
        added = []
        for name, value in values.items():
            kind, parameter = kind_of(value, compute), f"n{len(self.declared)}"
            self.declared.append((kind, parameter))
            self.constants.append(constant_of(value, compute))
            added.append((kind, name, parameter))
        return tuple(added)


def _registers(kernel: Kernel) -> list[str]:
    """The C++ types of registers: halves stay float until they are written, unless a program asks for a cast."""
    held = [CTYPES[meta.dtype] for meta in kernel.loads]
    return held + [CTYPES[c.dtype if is_cast(c) else computing(c.dtype)] for c in kernel.computes]


def _function(compute: Compute, held: list[str], out: str, numbers: Numbers) -> Function:
    expression = _expression(compute)
    assert expression is not None
    chosen, work = expression
    type_ = chosen.compute or computing(compute.compute)
    used = set(NAMES.findall(chosen.text))
    named = _named(compute.op, compute.args)
    operands = tuple([
        (Operand(name, held[arg.number], "bool" if name in CONDITIONS else CTYPES[type_], False), arg.number)
        for name, arg in named.items() if arg.__class__ is Register and name in used
    ])  # fmt: skip
    values = {**{name: arg for name, arg in named.items() if is_number(arg)}, **chosen.numbers}
    added = numbers.add({name: value for name, value in values.items() if name in used}, type_)
    name = _UNFIT.sub("_", compute.op.name)
    return Function(name, chosen.text, operands, added, CTYPES[type_], out, work.is_function)


def computations_of(kernel: Kernel) -> tuple[list[Function], Numbers]:
    """The computations of a kernel as CUDA functions, and the numbers that they take."""
    held, numbers = _registers(kernel), Numbers()
    computes = enumerate(kernel.computes, len(kernel.loads))
    return [_function(compute, held, held[k], numbers) for k, compute in computes], numbers


def stores_of(kernel: Kernel) -> list[tuple[Register, Meta]]:
    """The registers that go to memory, with where they go: new values first, then operands that are written to."""
    return [*kernel.news, *[(register, kernel.loads[place]) for place, register in kernel.stores]]


def described(
    kernel: Kernel, singles: Sequence[bool], layout: str, width: int
) -> tuple[FusedText, list[bytes | tuple[str, int]]]:
    """Return what a kernel's text depends on, and the numbers that it takes; ``singles`` as in ``FusedText.loads``."""
    functions, numbers = computations_of(kernel)
    loads = tuple(zip([CTYPES[meta.dtype] for meta in kernel.loads], singles))
    text = FusedText(
        tuple(functions), library_of([kernel], functions), loads,
        tuple([(CTYPES[meta.dtype], register.number) for register, meta in stores_of(kernel)]),
        tuple(numbers.declared), layout, width,
    )  # fmt: skip
    return text, numbers.constants


def written(kernel: Kernel) -> Written:
    """Write the text of a kernel, and fix its launch."""
    stored = stores_of(kernel)
    metas = [*[meta for _, meta in stored], *kernel.loads]
    layout = layout_of(kernel.shape, metas)
    width, head = vector_width(layout, [meta.dtype.itemsize for meta in metas])
    singles = [_is_single(layout, k, width) for k in range(len(stored), len(metas))]
    text, constants = described(kernel, singles, "" if layout.is_flat else layout_type(layout), width)
    vectors = (layout.numel - head) // width
    geometry: list[bytes | tuple[str, int]] = [("i64", vectors), ("int", head)]
    geometry.append(("int", layout.numel - head - vectors * width))
    if not layout.is_flat:
        geometry = [packed(layout, width), ("i64" if layout.is_wide else "unsigned", vectors)]
    offsets = [meta.offset * meta.dtype.itemsize for meta in metas]
    return Written(text_of(text), blocks(vectors, THREADS), [*constants, *geometry], offsets)


def _is_single(layout: Layout, operand: int, width: int) -> bool:
    return not any(layout.strides[operand]) if layout.is_flat else layout.inner(operand) == 0 and width > 1


def library_of(kernels: Sequence[Kernel], functions: Sequence[Function]) -> str:
    """The functions that expressions call."""
    results = [meta for kernel in kernels for _, meta in stores_of(kernel)]
    is_half = all([m.dtype in HALVES for m in results]) and all([f.computed == "float" for f in functions])
    is_complex = any([dtype.is_complex for kernel in kernels for dtype in kernel.dtypes])
    return called_in(" ".join([f.expression for f in functions]), is_half, is_complex)


def makes(backend: Backend, kernel: Kernel) -> Executor:
    """Load a kernel, and return what allocates its results and starts it."""
    made = written(kernel)
    with backend.as_current():
        fire = made.loaded()
    offsets = made.offsets
    news = [meta for _, meta in kernel.news]
    stored = [place for place, _ in kernel.stores]

    def launch(args: tuple[Any, ...], outs: tuple[Any, ...]) -> None:
        values = (*outs, *[args[place] for place in stored], *args)
        fire(backend.stream, *[value.storage.block.pointer + offset for value, offset in zip(values, offsets)])

    return Executor(running(backend, news, stored, launch), f"{kernel!r}\n{made.text}", MODULE_BYTES)


def running(backend: Backend, news: Sequence[Meta], stored: Sequence[int], launch: Launch) -> Callable[..., Any]:
    """What allocates the new values and launches a kernel, which writes to the operands in the places ``stored``."""
    start, empty = backend.deferring(launch), backend.empty

    def run(args: tuple[Any, ...]) -> tuple[Any, ...]:
        values = tuple(map(empty, news))
        start(args, values)
        for place in stored:
            args[place].storage.version += 1
        return values

    return backend.on_device(run)


class _Compiling:
    """Kernels whose texts are compiled beside this process."""

    def __init__(self, backend: Backend, kernels: Sequence[Kernel | Joined]) -> None:
        self._backend = backend
        compiler = background_compiler(architecture(backend.device.index or 0))
        self._awaited = Awaited(compiler, [text for kernel in kernels for text in texts_of(backend, kernel)])

    def is_over(self) -> bool:
        return self._awaited.is_over()

    def has_failed(self, kernel: Kernel | Joined) -> bool:
        return any([self._awaited.has_failed(text) for text in texts_of(self._backend, kernel)])


def texts_of(backend: Backend, kernel: Kernel | Joined) -> list[str]:
    """The texts that a kernel is made of."""
    if isinstance(kernel, Kernel):
        return [written(kernel).text]
    with collecting(architecture(backend.device.index or 0)) as collection:
        JOINERS[keys.CUDA, kernel.kind].makes(backend, kernel)
    return [text for text, _ in collection.texts]


def awaits(backend: Backend, kernels: Sequence[Kernel | Joined]) -> Pending:
    """Have the texts compiled that are not on the disk."""
    return _Compiling(backend, kernels)


FUSERS[keys.CUDA] = Fuser(takes, makes, _MOST_OPERANDS, awaits)


def check_loads(dtype: DType) -> None:
    """Chains that between them need every part of the text: flat and strided, in place, casts, several results."""
    if dtype not in (dtypes.float32, dtypes.bfloat16, dtypes.complex64, dtypes.int64):
        return
    dense, row = _on_gpu(dtype, (64, 64)), _on_gpu(dtype, (64, 1))
    for shape, other in (((64, 64), dense), ((64, 64), row), ((64, 64), _on_gpu(dtype, ()))):
        first = _compute("mul", (Register(0), Register(1)), (dense, other), dense)
        second = _compute("add", (Register(2), 0.5, 2), (_result_of(dense, first), 0.5, 2), dense)
        third = _compute("_to_copy", (Register(3), dtype, None), (_result_of(dense, second), dtype, None), dense)
        loads = (dense, other)
        written(Kernel(shape, loads, (first, second, third), ((Register(4), dense),), ((0, Register(3)),))).loaded()


def _result_of(meta: Meta, compute: Compute) -> Meta:
    """The meta of a computation's result."""
    return meta.like(dtype=compute.dtype)


def _on_gpu(dtype: DType, shape: tuple[int, ...]) -> Meta:
    return Meta.of(shape, dtype, Device("cuda:0"))


def _compute(name: str, args: tuple[Any, ...], bound: tuple[Any, ...], out: Meta) -> Compute:
    compute = compute_of(TABLE[name], args, bound, out)
    assert compute is not None
    return compute
