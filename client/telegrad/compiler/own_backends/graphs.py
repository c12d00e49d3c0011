"""What a program's own backend has made of the graphs of one function, and when it is asked again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from telegrad._tensor.tensor import Tensor
from telegrad.compiler.config import dynamo_config, recompile_limit
from telegrad.compiler.counters import counters
from telegrad.compiler.dynamo_parts.callback import callback_handler
from telegrad.compiler.exc import BackendCompilerFailed, FailOnRecompileLimitHit, RecompileError
from telegrad.compiler.regions import active
from telegrad.fx.graph import Graph
from telegrad.fx.node import Node, map_aggregate

from .writing import UnwritableError, module_of

_ARGUMENT: Final = "L_"
"""How the names of inputs begin that a function is given."""
_EAGER_FIRST: Final = ("eager_then_compile", "aot_eager_then_compile")


class OwnBackend(NamedTuple):
    """A backend that is a function of the program, and what ``compile`` was told beside it."""

    function: Callable[..., Any]
    dynamic: bool | None = None
    fullgraph: bool = False
    limit: int | None = None


class Found(NamedTuple):
    """A graph in a form that is compared: ``form`` without its numbers and sizes, which may be inputs of a graph."""

    form: Any
    numbers: list[int | float]
    sizes: list[int]
    dynamic: list[bool]
    """Which sizes the program has marked as such that vary."""
    places: list[tuple[str, int]]
    """The name of the input that each size is of, and the dimension."""
    static: frozenset[int] = frozenset()
    """Which sizes the program has marked as such that do not vary, by their places."""


class Compiled:
    """What a backend has made of a graph. The numbers ``lifted``, by their places, are inputs of it before tensors."""

    def __init__(self, found: Found, lifted: frozenset[int], varying: frozenset[int]) -> None:
        self._numbers, self._sizes = found.numbers, found.sizes
        self.lifted, self.varying = lifted, varying
        self.function: Callable[..., Any] = print

    def serves(self, found: Found) -> bool:
        """Whether a graph of the same form differs in nothing but what this one takes as it comes."""
        return all(
            [place in self.lifted or _same(a, b) for place, (a, b) in enumerate(zip(self._numbers, found.numbers))]
        ) and all(
            [
                a == b or (place in self.varying and min(a, b) > 1)
                for place, (a, b) in enumerate(zip(self._sizes, found.sizes))
            ]
        )

    def widened(self, found: Found, varied: frozenset[int]) -> Compiled:
        """Return one for another graph of the same form, too: numbers and sizes that differ are taken as they come.

        Sizes that have ``varied`` between graphs of other forms are, too.
        """
        numbers = {place for place, (a, b) in enumerate(zip(self._numbers, found.numbers)) if not _same(a, b)}
        sizes = {place for place, (a, b) in enumerate(zip(self._sizes, found.sizes)) if a != b}
        return Compiled(found, self.lifted | numbers, (self.varying | sizes | varied) - found.static)


class Graphs:
    """The graphs of one compiled function."""

    def __init__(self, own: OwnBackend) -> None:
        self.backend, self._dynamic, self._fullgraph, self._limit = own
        self._compiled: dict[Any, list[Compiled]] = {}
        self._sizes: dict[tuple[str, int], int | None] = {}
        """The sizes of arguments when the backend was asked; None for one that was another one before."""
        self._eager: dict[Any, Compiled] = {}
        """What a backend would have been given where the first call is not compiled, by its form."""
        self.made = 0
        """How many graphs the backend was given, whatever has become of them."""
        self.epoch = active.epoch

    @property
    def is_new(self) -> bool:
        """Whether the backend was given no graph yet."""
        return not self._compiled

    def find(self, graph: Graph, inputs: Sequence[Tensor], situation: Any) -> Callable[[], Any]:
        """Return what does a graph with these inputs: the backend is asked for what it has not been given before."""
        if self.epoch is not active.epoch:
            self._compiled, self._sizes, self._eager, self.epoch = {}, {}, {}, active.epoch
        found = _found(graph, inputs, situation)
        known = self._compiled.setdefault(found.form, [])
        compiled = next((one for one in known if one.serves(found)), None)
        if compiled is None:
            self._require_room()
            compiled = self._new(known or self._first(found), found)
            compiled.function = self._compile(_lift(graph, compiled.lifted), _given(compiled, found, inputs))
            known.append(compiled)
        return lambda: compiled.function(*_given(compiled, found, inputs))

    def _first(self, found: Found) -> list[Compiled]:
        """Return what was noted of an earlier call; the first one runs as it is where the stance tells so."""
        earlier = self._eager.get(found.form)
        if earlier is not None:
            return [earlier]
        if active.stance in _EAGER_FIRST and self._dynamic is None:
            self._eager[found.form] = self._new([], found)
            raise UnwritableError(f"the stance is {active.stance!r}")
        return []

    def _new(self, known: list[Compiled], found: Found) -> Compiled:
        varied = self._varied(found) if self._dynamic is None else frozenset()
        if known and self._dynamic is not False:
            return known[-1].widened(found, varied)
        varying = [mark or self._dynamic is True for mark in found.dynamic]
        places = varied.union([place for place, varies in enumerate(varying) if varies])
        return Compiled(found, _numbers_of_sizes(found, places - found.static), places - found.static)

    def _varied(self, found: Found) -> frozenset[int]:
        """Note the sizes of arguments, and return those that have been others in a graph of this function."""
        varied = []
        for place, (at, size) in enumerate(zip(found.places, found.sizes)):
            if at[0].startswith(_ARGUMENT):
                if self._sizes.setdefault(at, size) != size:
                    self._sizes[at] = None
                if self._sizes[at] is None:
                    varied.append(place)
        return frozenset(varied)

    def _require_room(self) -> None:
        """Raise where the backend is not to be asked again, which is an error or has the function run as it is."""
        count = sum(map(len, self._compiled.values()))
        if active.stance == "fail_on_recompile":
            raise RecompileError("Detected recompile when torch.compile stance is 'fail_on_recompile'")
        if active.stance == "eager_on_recompile":
            raise UnwritableError("the stance is 'eager_on_recompile'")
        if count and dynamo_config.error_on_recompile:
            raise RecompileError("compile: a graph is to be compiled again, and error_on_recompile is set")
        if count >= (self._limit or recompile_limit()):
            if self._fullgraph or dynamo_config.fail_on_recompile_limit_hit:
                raise FailOnRecompileLimitHit(
                    f"Hard failure due to {'fullgraph=True' if self._fullgraph else 'fail_on_recompile_limit_hit'}: "
                    f"there are {count} graphs, and recompile_limit permits no more"
                )
            raise UnwritableError("recompile_limit has been reached")

    def _compile(self, graph: Graph, given: list[Any]) -> Callable[..., Any]:
        """Return what the backend makes of a graph."""
        self.made += 1
        counters["stats"]["unique_graphs"] += 1
        counters["stats"]["calls_captured"] += sum(node.op.startswith("call_") for node in graph.nodes)
        name = getattr(self.backend, "__name__", type(self.backend).__name__)
        try:
            with callback_handler.around():
                function = self.backend(module_of(graph), given)
            if not callable(function):
                raise TypeError(f"a backend returns a function, not {type(function).__name__}")
        except Exception as error:
            if dynamo_config.suppress_errors:
                raise UnwritableError(f"the backend {name} has failed: {error}") from error
            raise BackendCompilerFailed(self.backend, error) from error
        return function  # type: ignore[no-any-return]


def _given(compiled: Compiled, found: Found, inputs: Sequence[Tensor]) -> list[Any]:
    return [*[found.numbers[place] for place in sorted(compiled.lifted)], *inputs]


def _same(a: Any, b: Any) -> bool:
    return a.__class__ is b.__class__ and (a == b or (a != a and b != b)) and repr(a) == repr(b)


def _found(graph: Graph, inputs: Sequence[Tensor], situation: Any) -> Found:
    numbers: list[int | float] = []
    number_of = {node: number for number, node in enumerate(graph.nodes)}

    def token(value: Any) -> str:
        if isinstance(value, Node):
            return f"%{number_of[value]}"
        if _is_number(value):
            numbers.append(value)
            return f"<{type(value).__name__}>"
        return f"{type(value).__name__}:{value!r}"

    rows = tuple(
        [
            (
                node.op,
                None if node.op == "placeholder" else node.target,
                str(map_aggregate((node.args, node.kwargs), token)),
            )
            for node in graph.nodes
        ]
    )
    sizes = [size for tensor in inputs for size in tensor._meta.shape]
    names = [str(node.target) for node in graph.nodes if node.op == "placeholder"]
    dims = [(name, tensor, dim) for name, tensor in zip(names, inputs) for dim in range(tensor._meta.ndim)]
    marks = [dim in _marks(tensor) for _, tensor, dim in dims]
    places = [(name, dim) for name, _, dim in dims]
    static = frozenset([place for place, (_, tensor, dim) in enumerate(dims) if dim in _static_marks(tensor)])
    return Found((rows, tuple(map(_kind, inputs)), situation), numbers, sizes, marks, places, static)


def _numbers_of_sizes(found: Found, varying: frozenset[int]) -> frozenset[int]:
    """Return the places of integers that are sizes which vary: the function has most likely asked for them."""
    sizes = {found.sizes[place] for place in varying} - {0, 1}
    return frozenset([place for place, number in enumerate(found.numbers) if type(number) is int and number in sizes])


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _marks(tensor: Tensor) -> set[int]:
    """Return the dimensions that ``mark_dynamic`` was given for a tensor."""
    return getattr(tensor, "_dynamo_dynamic_indices", set())


def _static_marks(tensor: Tensor) -> set[int]:
    """Return the dimensions that ``mark_static`` was given for a tensor."""
    return getattr(tensor, "_dynamo_static_indices", set())


def _kind(tensor: Tensor) -> tuple[Any, ...]:
    """Return what another graph is made for, sizes aside."""
    meta = tensor._meta
    order = sorted(range(meta.ndim), key=lambda dim: (-meta.strides[dim], dim))
    layout = None if tensor.is_contiguous() else (tuple(order), tuple([stride == 0 for stride in meta.strides]))
    return type(tensor), meta.dtype, meta.device, meta.ndim, tensor.requires_grad, layout


def _lift(graph: Graph, places: frozenset[int]) -> Graph:
    """Return a graph whose numbers at these places are inputs, before all others."""
    if not places:
        return graph
    inputs: dict[int, Node] = {}
    for place in sorted(places, reverse=True):
        with graph.inserting_before():
            inputs[place] = graph.placeholder(f"s{place}")
    count = 0

    def lifted(value: Any) -> Any:
        nonlocal count
        if not _is_number(value):
            return value
        count += 1
        return inputs.get(count - 1, value)

    for node in graph.nodes:
        if node.op != "placeholder":
            node.args, node.kwargs = map_aggregate((node.args, node.kwargs), lifted)
    return graph
