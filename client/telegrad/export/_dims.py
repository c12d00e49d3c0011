"""Which dimensions of a module's inputs may differ between calls: ``Dim``, and what ``dynamic_shapes`` says of each."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple

from telegrad._tensor.tensor import Tensor
from telegrad.utils._pytree import tree_flatten
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError, NotSupportedError
from telegrad_protocol.exported.sizes import Formula, symbol


class DimHint:
    """What ``dynamic_shapes`` says of a dimension without a name; ``Dim.AUTO``, ``Dim.DYNAMIC`` or ``Dim.STATIC``.

    Calling one, as in ``Dim.AUTO(min=1, max=8)``, gives it a range.
    """

    def __init__(self, kind: str, min: int | None = None, max: int | None = None) -> None:
        if min is not None and max is not None and min > max:
            raise ArgumentError(f"Dim.{kind}: min must be <= max, got min={min}, max={max}")
        self.kind, self.min, self.max = kind, min, max

    def __call__(self, min: int | None = None, max: int | None = None) -> DimHint:
        if self.kind == "STATIC":
            raise ArgumentTypeError("Dim.STATIC: a static dimension has no range")
        return DimHint(self.kind, min, max)

    def __repr__(self) -> str:
        limits = [f", {name}={limit}" for name, limit in (("min", self.min), ("max", self.max)) if limit is not None]
        return f"DimHint({self.kind}{''.join(limits)})"


class Dim:
    """A named dimension, which has the same size wherever ``dynamic_shapes`` names it; from ``min`` to ``max``.

    ``2 * dim`` and ``dim + 1`` are dimensions that depend on it.
    """

    AUTO: ClassVar[DimHint] = DimHint("AUTO")
    DYNAMIC: ClassVar[DimHint] = DimHint("DYNAMIC")
    STATIC: ClassVar[DimHint] = DimHint("STATIC")

    def __init__(self, name: str, *, min: int | None = None, max: int | None = None) -> None:
        if not isinstance(name, str) or not name.isidentifier():
            raise ArgumentError(f"Dim: the name must be an identifier, not {name!r}")
        low = 0 if min is None else min
        if max is not None and max < max_of(low, 1):
            raise ArgumentError(f"Dim: cannot create Dim with inconsistent min={min}, max={max}")
        self.__name__, self.root, self.min, self.max = name, name, low, max
        self.factor, self.offset = 1, 0

    def _derived(self, factor: int, offset: int) -> Dim:
        made = Dim(self.root, min=self.min, max=self.max)
        made.factor, made.offset = self.factor * factor, self.offset * factor + offset
        made.__name__ = str(made.formula)
        return made

    def __add__(self, other: int) -> Dim:
        return self._derived(1, _integer(other))

    def __sub__(self, other: int) -> Dim:
        return self._derived(1, -_integer(other))

    def __mul__(self, other: int) -> Dim:
        return self._derived(_integer(other, at_least=1), 0)

    __radd__, __rmul__ = __add__, __mul__

    def __repr__(self) -> str:
        if (self.factor, self.offset) != (1, 0):
            return self.__name__
        limits = (("min", self.min, 2), ("max", self.max, None))
        return f"Dim({self.root!r}{''.join([f', {name}={limit}' for name, limit, usual in limits if limit != usual])})"

    @property
    def formula(self) -> Formula:
        """The size in terms of the named one."""
        whole = symbol(self.root)
        if (self.factor, self.offset) == (1, 0):
            return whole
        constant: tuple[tuple[int | str, ...], ...] = ((self.offset,),) if self.offset else ()
        return Formula(((self.factor, self.root), *constant))


max_of: Final = max


def _integer(value: Any, at_least: int | None = None) -> int:
    if type(value) is not int or (at_least is not None and value < at_least):
        kind = "integer" if at_least is None else "positive integer"
        raise NotSupportedError(
            f"Dim: expected a{'' if at_least else 'n'} {kind}, not {value!r}: only increasing linear operations with "
            "integers are supported"
        )
    return value


def dims(*names: str, min: int | None = None, max: int | None = None) -> tuple[Dim, ...]:
    """Return a dimension for each name."""
    return tuple([Dim(name, min=min, max=max) for name in names])


def named_arguments(module: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return all arguments of a call by the names of the parameters."""
    function: Callable[..., Any] = getattr(module, "forward", module)
    signature = inspect.signature(function)
    bound = signature.bind(*args, **kwargs)
    named: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind = signature.parameters[name].kind
        named |= value if kind is inspect.Parameter.VAR_KEYWORD else {name: value}
    return named


def specified(module: Any, args: Sequence[Any], kwargs: Mapping[str, Any], dynamic_shapes: Any) -> dict[int, list[Any]]:
    """Return what is said of each dimension of each tensor, by the tensor's place among all leaves.

    Raises ArgumentError where ``dynamic_shapes`` does not have the structure of the arguments.
    """
    if hasattr(dynamic_shapes, "dynamic_shapes"):  # a ShapesCollection, or AdditionalInputs
        dynamic_shapes = dynamic_shapes.dynamic_shapes(module, tuple(args), dict(kwargs))
    leaves, structure = tree_flatten((tuple(args), dict(kwargs)))
    marked = structure.unflatten([_Leaf(place, leaf) for place, leaf in enumerate(leaves)])
    named = named_arguments(module, *marked)
    specs = _by_name(named, dynamic_shapes)
    places: dict[int, list[Any]] = {}
    for name, value in named.items():
        _visit(name, value, specs.get(name), places)
    return places


class _Leaf(NamedTuple):
    """A leaf among the arguments, with its place: one tensor may be given twice."""

    place: int
    value: Any


def _by_name(named: Mapping[str, Any], dynamic_shapes: Any) -> dict[str, Any]:
    if dynamic_shapes is None:
        return {}
    if isinstance(dynamic_shapes, Mapping):
        unknown = [name for name in dynamic_shapes if name not in named]
        if unknown:
            raise ArgumentError(
                f"export: dynamic_shapes names {unknown[0]!r}; the arguments are {', '.join(named) or 'none'}"
            )
        return dict(dynamic_shapes)
    if not isinstance(dynamic_shapes, (tuple, list)) or len(dynamic_shapes) != len(named):
        raise ArgumentError(
            f"export: dynamic_shapes must be a dict by argument, or have one entry for each of {', '.join(named)}"
        )
    return dict(zip(named, dynamic_shapes, strict=True))


def _visit(name: str, value: Any, spec: Any, places: dict[int, list[Any]]) -> None:
    if isinstance(value, _Leaf) and isinstance(value.value, Tensor):
        places[value.place] = _of_tensor(name, value.value, spec)
    elif isinstance(value, _Leaf):
        if spec is not None and not isinstance(spec, DimHint):
            raise ArgumentError(f"export: dynamic_shapes of {name} must be None, since it is no tensor: {spec!r}")
        if spec is not None and spec.kind == "DYNAMIC":
            raise ArgumentError(
                f"export: {name} is {value.value!r}, and a program has numbers among its arguments as they are; pass "
                "a tensor, or a number that is a size of one, to have it differ between calls"
            )
    elif isinstance(value, (list, tuple)):
        if spec is not None and (not isinstance(spec, (list, tuple)) or len(spec) != len(value)):
            raise ArgumentError(f"export: dynamic_shapes of {name} must have {len(value)} entries, got {spec!r}")
        for index, item in enumerate(value):
            _visit(f"{name}[{index}]", item, None if spec is None else spec[index], places)
    elif isinstance(value, dict):
        if spec is not None and not isinstance(spec, Mapping):
            raise ArgumentError(f"export: dynamic_shapes of {name} must be a dict, got {spec!r}")
        for key, item in value.items():
            _visit(f"{name}[{key!r}]", item, None if spec is None else spec.get(key), places)


def _of_tensor(name: str, tensor: Tensor, spec: Any) -> list[Any]:
    ndim = tensor.ndim
    if spec is None:
        return [None] * ndim
    if isinstance(spec, Mapping):
        wrong = [dim for dim in spec if type(dim) is not int or not -ndim <= dim < ndim]
        if wrong:
            raise ArgumentError(f"export: dynamic_shapes of {name} names dimension {wrong[0]!r} of {tensor._meta}")
        by_dim = {dim % ndim: given for dim, given in spec.items()}
        listed = [by_dim.get(dim) for dim in range(ndim)]
    elif isinstance(spec, (tuple, list)) and len(spec) == ndim:
        listed = list(spec)
    else:
        raise ArgumentError(f"export: dynamic_shapes of {name}, {tensor._meta}, must say something of each dimension")
    for dim, given in enumerate(listed):
        if not (given is None or isinstance(given, (Dim, DimHint)) or type(given) is int):
            raise ArgumentTypeError(f"export: dimension {dim} of {name} must be a Dim, an int or None, not {given!r}")
        if type(given) is int and given != tensor.shape[dim]:
            raise ArgumentError(f"export: dimension {dim} of {name} is said to be {given}, and is {tensor.shape[dim]}")
    return listed
