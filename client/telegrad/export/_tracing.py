"""From a module and example arguments to the description of its program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from telegrad._dispatch.programs import Operand
from telegrad._tensor.tensor import Tensor
from telegrad.utils._pytree import TreeSpec, tree_flatten, tree_flatten_with_path
from telegrad_protocol.errors import ArgumentError
from telegrad_protocol.exported import description as program
from telegrad_protocol.exported.arguments import encoded_for
from telegrad_protocol.exported.sizes import Formula, Size, symbol
from telegrad_protocol.meta import Meta

from ._dims import Dim, DimHint, specified
from ._graphs.reading import Example
from ._module_calls import Calls
from ._parameters import leaf_names, parameters_of, path_parts
from ._ranges import settle
from ._recording import Recording, State, record, state_of
from ._samples import Rebuilt, Samples, Symbol
from ._trees import Place


class Traced(NamedTuple):
    """A program, its own tensors by number, and the structures around arguments and results with their leaves."""

    description: program.ProgramDescription
    tensors: dict[int, Any]
    arguments: tuple[TreeSpec, list[Any]]
    results: tuple[TreeSpec, list[Any]]
    aliases: dict[str, str]
    parameters: list[str]
    calls: list[Calls]


class Tracer:
    """One export of a module."""

    def __init__(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any) -> None:
        self._module = module
        self._state = state_of(module)
        self._leaves, self._structure = tree_flatten((args, kwargs))
        self._metas = {
            place: Meta.of(leaf._meta.shape, leaf.dtype, leaf.device)
            for place, leaf in enumerate(self._leaves)
            if isinstance(leaf, Tensor)
        }
        self._parameters = parameters_of(module, len(args))
        self._names = leaf_names(self._parameters, self._structure)
        self._symbols: dict[str, Symbol] = {}
        self._dims = self._read(specified(module, args, kwargs, dynamic_shapes))

    def trace(self) -> Traced:
        """Record the module and describe the program."""
        samples, became = settle([*self._symbols.values()], self._record)
        kept = {symbol.name: symbol for symbol in samples.symbols}
        self._dims = {
            place: [self._settled(size, became, kept, meta.shape[dim]) for dim, size in enumerate(self._dims[place])]
            for place, meta in self._metas.items()
        }
        return self._described(samples)

    def example(self) -> tuple[Example, dict[str, str]]:
        """Return what is exported before anything is recorded, and the aliases of the module's tensors."""
        nothing = Recording([], [], self._structure, {}, {}, {}, frozenset())
        inputs = self._inputs()
        held, _, aliases = self._held(nothing, len(inputs))
        example = Example(
            self._module, self._state, self._leaves, self._structure, self._dims, self._symbols, held, inputs,
            self._names, self._parameters,
        )  # fmt: skip
        return example, aliases

    def _settled(self, size: Size, became: dict[str, str | None], kept: dict[str, Symbol], static: int) -> Size:
        """Return a size of an input after it is known what became of hints."""
        if not isinstance(size, Formula):
            return size
        (name,) = size.names()
        leader = kept.get(name) or kept.get(became.get(name) or "")
        if leader is None:
            return static
        return size if leader.is_named else leader.multiple()

    def _read(self, specs: dict[int, list[Any]]) -> dict[int, list[Size]]:
        """Return the size of each dimension of each input, and note the symbols in them."""
        return {
            place: [
                self._size(specs.get(place, [None] * meta.ndim)[dim], size, f"dimension {dim} of {self._names[place]}")
                for dim, size in enumerate(meta.shape)
            ]
            for place, meta in self._metas.items()
        }

    def _size(self, spec: Any, size: int, where: str) -> Size:
        if isinstance(spec, DimHint) and spec.kind != "STATIC":
            if spec.kind == "AUTO" and size < 2:
                return size
            made = Symbol(f"s{len(self._symbols)}", size, spec.min or 0, spec.max, spec.kind)
            self._symbols[made.name] = made
            return symbol(made.name)
        if not isinstance(spec, Dim):
            return size
        base = (size - spec.offset) // spec.factor
        if base * spec.factor + spec.offset != size or base < spec.min or (spec.max is not None and base > spec.max):
            raise ArgumentError(f"export: {where} is {size}, which {spec!r} cannot be")
        known = self._symbols.setdefault(spec.root, Symbol(spec.root, base, spec.min, spec.max))
        if known.base != base:
            raise ArgumentError(f"export: {where} says that {spec.root} is {base}, and another one {known.base}")
        return spec.formula

    def _record(self, sizes: dict[str, int]) -> Recording:
        """Record at these sizes; symbols that are not among them have the size of the example."""
        complete = {symbol.name: sizes.get(symbol.name, symbol.base) for symbol in self._symbols.values()}
        metas = {}
        for place, meta in self._metas.items():
            shape = [size.value(complete) if isinstance(size, Formula) else size for size in self._dims[place]]
            metas[place] = Meta.of(tuple(shape), meta.dtype, meta.device)
        return record(self._module, self._state, self._leaves, self._structure, metas)

    def _described(self, samples: Samples) -> Traced:
        recording = samples.first()
        rebuilt = Rebuilt(samples.sizes())
        lines = {"": 0}
        steps = tuple([_step(step, rebuilt, lines) for step in recording.steps])
        results = [(leaf, rebuilt.of(leaf)) for leaf in recording.results]
        inputs = self._inputs()
        held, tensors, aliases = self._held(recording, len(inputs))
        outputs, result_leaves = _outputs(results, recording)
        described = program.ProgramDescription(
            program.VERSION,
            tuple([program.Symbol(one.name, max(one.min, 0), one.max) for one in samples.symbols]),
            inputs, held, steps, outputs, lines=tuple(lines),
            written_inputs=tuple([item.name for item in inputs if item.value in recording.written]),
        )  # fmt: skip
        places = iter(range(len(inputs)))
        leaves = [Place(next(places)) if isinstance(leaf, Tensor) else leaf for leaf in self._leaves]
        calls = [step.calls for step in recording.steps]
        arguments, returned = (self._structure, leaves), (recording.structure, result_leaves)
        return Traced(described, tensors, arguments, returned, aliases, self._parameters, calls)

    def _inputs(self) -> tuple[program.Input, ...]:
        return tuple([
            program.Input(
                dtype=meta.dtype.name, shape=tuple(self._dims[place]), name=self._names[place], value=number,
                place=place, device=meta.device.name,
            )
            for number, (place, meta) in enumerate(self._metas.items(), 1)
        ])  # fmt: skip

    def _held(
        self, recording: Recording, inputs: int
    ) -> tuple[tuple[program.Held, ...], dict[int, Any], dict[str, str]]:
        """Return the program's own tensors: state in the order in which it was replaced, then constants."""
        held, tensors, aliases = [], {}, {}
        numbers: dict[int, program.Held] = {}
        for item in self._state:
            first = numbers.get(id(item.tensor))
            if first is not None:
                aliases[item.path] = first.name
                continue
            made = numbers[id(item.tensor)] = _held(item, inputs + len(numbers) + 1, recording)
            held.append(made)
            tensors[made.value] = item.tensor
        taken = {item.name for item in held}
        constants: list[tuple[int, Any]] = sorted(
            [*recording.captured.items(), *recording.uploads.items()], key=lambda pair: pair[0]
        )
        for place, (number, constant) in enumerate(constants):
            meta = recording.metas[number]
            name = f"lifted_tensor_{place}"
            while name in taken:
                name = f"_{name}"
            tensors[number] = constant
            held.append(
                program.Held(
                    dtype=meta.dtype.name, shape=meta.shape, name=name, value=number, kind="constant",
                    device=meta.device.name, is_written=number in recording.written,
                )
            )  # fmt: skip
        return tuple(held), tensors, aliases


def _held(item: State, number: int, recording: Recording) -> program.Held:
    meta = item.tensor._meta
    return program.Held(
        dtype=meta.dtype.name, shape=meta.shape, name=item.path, value=number, kind=item.kind,  # type: ignore[arg-type]
        device=meta.device.name, is_persistent=item.is_persistent, requires_grad=item.tensor.requires_grad,
        is_written=number in recording.written,
    )  # fmt: skip


def _number_of(value: Any) -> int | None:
    return value.number if value.__class__ is Operand else None


def _step(step: Any, rebuilt: Rebuilt, lines: dict[str, int]) -> program.Step:
    args = {}
    for param, value in zip(step.op.params, step.args, strict=True):
        sized = rebuilt.of(value)
        if not (param.default is sized or (type(param.default) is type(sized) and param.default == sized)):
            args[param.name] = encoded_for(param, sized, _number_of)
    results = tuple([program.TensorType(meta.dtype.name, rebuilt.shape(meta)) for meta in step.metas])
    line = lines.setdefault(step.line, len(lines))
    return program.Step(step.op.name, args, step.outs, results, line, step.without_gradient)


def _outputs(results: Sequence[tuple[Any, Any]], recording: Recording) -> tuple[tuple[program.Output, ...], list[Any]]:
    """Return the outputs, and the leaves of the result: places of outputs, and constants."""
    structure = recording.structure
    marked = structure.unflatten(range(len(results)))
    outputs: list[program.Output] = []
    leaves: list[Any] = []
    for path, index in tree_flatten_with_path(marked)[0]:
        leaf, sized = results[index]
        if not isinstance(leaf, Tensor):
            leaves.append(sized)
            continue
        leaves.append(Place(len(outputs)))
        name = (
            "_".join(["output", *path_parts(path)]) if not path or not _is_key(path[0]) else "_".join(path_parts(path))
        )
        outputs.append(program.Output(dtype=leaf.dtype.name, shape=sized, name=name, value=leaf._id))
    return tuple(outputs), leaves


def _is_key(key: Any) -> bool:
    return isinstance(getattr(key, "key", getattr(key, "name", None)), str)
