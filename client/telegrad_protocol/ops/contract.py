"""The contract of an operation: its schema, its shape rule, and what both ends may conclude from them.

A contract is a function over ``Meta``; ``@op`` and ``@pointwise`` read its signature into ``Param``s and file it in
``TABLE``. In-place and ``out=`` forms are derived here, never declared again. Knows nothing of kernels or sockets.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, overload

from telegrad_protocol.dtypes import FLOAT, DType, bool_, get_default_dtype, int64, result_type
from telegrad_protocol.errors import ArgumentTypeError, DTypeError, ShapeError
from telegrad_protocol.layout import broadcast_shapes, result_strides
from telegrad_protocol.meta import Device, Meta

from .devices import check_results, device_beside_host
from .params import KINDS, Param, read_params
from .targets import check_target_type

Scalar: TypeAlias = bool | int | float | complex
Metas: TypeAlias = Meta | tuple[Meta, ...] | None
Rule: TypeAlias = Callable[..., Metas]
Promotion: TypeAlias = str | Callable[..., str]
"""The rule by which a pointwise operation's type follows from its operands, or a function of its arguments."""
TABLE: dict[str, Op] = {}
PUBLIC: dict[str, list[Op]] = {}
_REMEMBERED = 64
"""How many ways of naming arguments every operation keeps positions for; more would let callers fill memory."""


class Op:
    """One operation as both ends know it; ``name`` is unique, ``public`` is the name that users call."""

    __slots__ = (
        "_defaults", "_keywords", "_namings", "_required", "base", "constants", "copies", "data_dependent",
        "differentiable", "form", "from_host", "index", "is_random", "method", "mixed_devices", "module", "mutates",
        "name", "no_grad", "out_rules", "params", "positional", "promoted", "promotion", "public", "returns", "rule",
        "tensor_positions", "updates", "varargs_at", "view_of",
    )  # fmt: skip

    index: int
    doc = property(lambda self: inspect.cleandoc(self.rule.__doc__ or ""), doc="What the operation computes, as text.")

    def __init__(self, name: str, rule: Rule, params: tuple[Param, ...], **flags: Any) -> None:
        self.name = name
        self.public = name.split(".")[0]
        self.rule: Callable[..., Any] = rule
        self.params = params
        self.positional = sum(not p.keyword_only for p in params)
        self._required = sum(p.required for p in params)
        self._defaults = tuple(p.default for p in params)
        self._keywords = tuple((p.name, place) for place, p in enumerate(params) if p.keyword_only)
        self._namings: dict[tuple[int, tuple[str, ...]], tuple[tuple[int, str], ...]] = {}
        self.tensor_positions = tuple(i for i, p in enumerate(params) if p.kind.holds_tensors)
        self.varargs_at = next((i for i, p in enumerate(params) if p.varargs), -1)
        self.base: Op = flags.pop("base", self)
        self.form: str = flags.pop("form", "functional")
        self.view_of: int | None = self._position(flags.pop("view_of", None))
        self.copies: Callable[..., bool] | None = flags.pop("copies", None)
        self.mutates: tuple[int, ...] = self._positions(flags.pop("mutates", ()))
        self.no_grad: tuple[int, ...] = self._positions(flags.pop("no_grad", ()))
        self.differentiable: bool = flags.pop("differentiable", True)
        self.data_dependent: bool = flags.pop("data_dependent", False)
        self.is_random: bool = flags.pop("random", False)
        self.mixed_devices: bool = flags.pop("mixed_devices", False)
        self.from_host: tuple[int, ...] = self._positions(flags.pop("from_host", ()))
        self.updates: bool = flags.pop("updates", False)
        self.out_rules: tuple[str, ...] = flags.pop("out_rules", ())
        self.module: str = flags.pop("module", "")
        self.method: bool = flags.pop("method", True)
        self.returns: tuple[str, ...] = tuple(flags.pop("returns", ()))
        self.constants = frozenset([self.returns.index(result) for result in flags.pop("constants", ())])
        self.promotion: Promotion = flags.pop("promotion", "")
        self.promoted: tuple[int, ...] = self._positions(flags.pop("promoted", ()))
        if flags:
            raise TypeError(f"{name}: unknown contract flags {sorted(flags)}")

    def _position(self, name: str | int | None) -> int | None:
        return name if name is None or isinstance(name, int) else [p.name for p in self.params].index(name)

    def _positions(self, names: str | Sequence[str | int]) -> tuple[int, ...]:
        listed = (names,) if isinstance(names, str) else names
        return tuple(typing.cast(int, self._position(name)) for name in listed)

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    @property
    def signature(self) -> str:
        """The schema as the text of a Python signature, for error messages and the docs."""
        parts: list[str] = []
        for position, param in enumerate(self.params):
            if position == self.positional and self.varargs_at < 0:
                parts.append("*")
            parts.append(f"*{param}" if param.varargs else str(param))
        return f"{self.public}({', '.join(parts)})"

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """Return all arguments in declared order, with defaults filled in; their kinds are checked by ``normalize``."""
        if 0 <= self.varargs_at < len(args) and is_integer(args[self.varargs_at]):
            args = (*args[: self.varargs_at], args[self.varargs_at :])
        given = len(args)
        if not kwargs and given <= self.positional and given >= self._required:
            return args + self._defaults[given:]
        naming = self._namings.get((given, tuple(kwargs)))
        if naming is None:
            return self._bind_first(args, kwargs)
        bound = [*args, *self._defaults[given:]]
        for position, name in naming:
            bound[position] = kwargs[name]
        return tuple(bound)

    def _bind_first(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """Bind arguments whose way of naming is new, and remember the position of every name."""
        bound = self._bind_named(args, kwargs)
        places = {name: i for i, p in reversed([*enumerate(self.params)]) for name in (*p.aliases, p.name)}
        if len(self._namings) < _REMEMBERED:
            self._namings[len(args), tuple(kwargs)] = tuple((places[name], name) for name in kwargs)
        return bound

    def _bind_named(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        if len(args) > self.positional:
            raise ArgumentTypeError(
                f"{self.name}: takes {self.positional} positional arguments, got {len(args)}: {self.signature}"
            )
        bound = list(args)
        left = dict(kwargs)
        for param in self.params[len(args) :]:
            value = left.pop(param.name, _MISSING)
            if value is _MISSING:
                value = next((left.pop(alias) for alias in param.aliases if alias in left), param.default)
            if value is inspect.Parameter.empty:
                raise ArgumentTypeError(f"{self.name}: missing argument '{param.name}': {self.signature}")
            bound.append(value)
        if left:
            name = next(iter(left))
            problem = "given twice" if any(p.name == name for p in self.params) else "unknown"
            raise ArgumentTypeError(f"{self.name}: argument '{name}' is {problem}: {self.signature}")
        return tuple(bound)

    def normalize(self, bound: tuple[Any, ...], is_tensor: Callable[[Any], bool]) -> tuple[Any, ...]:
        """Check kinds and return ``bound`` in canonical, hashable form: lists as tuples, ints as sizes, and so on."""
        result = []
        for param, value in zip(self.params, bound, strict=True):
            accepted, canonical = param.kind.accept(value, is_tensor)
            if not accepted:
                raise ArgumentTypeError(
                    f"{self.name}: argument '{param.name}' must be {param.kind.described}, not {describe(value)}"
                )
            result.append(canonical)
        return tuple(result)

    def metas_in(self, bound: Sequence[Any]) -> list[Meta]:
        """Return the tensor operands among ``bound`` metas, with lists flattened and absent ones left out."""
        metas: list[Meta] = []
        for position in self.tensor_positions:
            value = bound[position]
            if value.__class__ is Meta:
                metas.append(value)
            elif isinstance(value, (tuple, list)):
                metas += [v for v in value if v.__class__ is Meta]
        return metas

    def infer(self, bound: tuple[Any, ...]) -> Metas:
        """Run the shape rule on metas; the result is None where only the data can tell the shape."""
        device = None if self.mixed_devices else device_beside_host(self, bound)
        positional = bound[: self.positional] if self.varargs_at < 0 else self._spread(bound)
        named = {name: bound[place] for name, place in self._keywords} if self._keywords else _NOTHING
        inferred: Metas = self.rule(*positional, **named)
        if device is not None and not any(isinstance(argument, Device) for argument in bound):
            check_results(self.public, device, inferred)
        return inferred

    def _spread(self, bound: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return positional arguments, of which the last are given as one tuple."""
        return (*bound[: self.varargs_at], *bound[self.varargs_at])

    def compute_dtype(self, bound: Sequence[Any]) -> DType:
        """Return the type in which a pointwise operation computes; its operands are cast to it first."""
        operands = [bound[p] for p in self.promoted if bound[p] is not None]
        dtype = result_type(operands)
        if dtype.category < FLOAT and self._promotion(bound) == "int_to_float":
            return get_default_dtype()
        return int64 if dtype is bool_ and self._promotion(bound) == "bool_to_int" else dtype

    def _promotion(self, bound: Sequence[Any]) -> str:
        return self.promotion if isinstance(self.promotion, str) else self.promotion(*bound[: len(self.base.params)])

    def output_dtype(self, bound: Sequence[Any]) -> DType:
        """Return the type of a pointwise operation's result."""
        promotion = self._promotion(bound)
        if promotion == "bool":
            return bool_
        dtype = self.compute_dtype(bound)
        if promotion == "float_to_complex":
            return dtype.to_complex()
        return dtype.to_real() if promotion == "complex_to_float" else dtype


_MISSING: Any = object()
_NOTHING: dict[str, Any] = {}


def is_view(op: Op, bound: tuple[Any, ...]) -> bool:
    """Tell whether the result of ``op`` on these metas shares memory with its input."""
    return op.view_of is not None and (op.copies is None or not op.copies(*bound))


def is_integer(value: Any) -> bool:
    """Return whether a value is an integer, as members of ``IntEnum`` are, and no truth value."""
    return isinstance(value, int) and value.__class__ is not bool


def describe(value: Any) -> str:
    """Return the text by which an error message shows a value."""
    meta = value if isinstance(value, Meta) else getattr(value, "_meta", None)
    if isinstance(meta, Meta):
        return f"tensor {meta}"
    if isinstance(value, (list, tuple)) and any(hasattr(item, "_meta") for item in value):  # ``repr`` reads tensors
        text = f"[{', '.join(map(describe, value[:3]))}{', ...' if len(value) > 3 else ''}]"
    else:
        text = repr(value)
    return f"{type(value).__name__} {text if len(text) < 60 else text[:57] + '...'}"


@overload
def op(rule: Rule) -> Op: ...
@overload
def op(
    *, name: str | None = None, inplace: bool = False, out: bool | None = None, **flags: Any
) -> Callable[[Rule], Op]: ...
def op(
    rule: Rule | None = None, *, name: str | None = None, inplace: bool = False, out: bool | None = None, **flags: Any
) -> Any:
    """Declare an operation by its shape rule.

    ``name`` is the unique name if it is not the function's, such as ``"max.dim"`` for an overload of ``max``.
    ``inplace`` and ``out`` derive those forms; ``out=None`` derives it where results are new and of a known shape.
    ``out_rules`` may have ``"copied"``: there is no such form, and the client copies results into the targets;
    ``"separate"``: targets must share no memory with the operands, ``"grown"``: nor once they have the results' shapes.
    ``targets`` tells the types that these may have.
    ``view_of``, ``mutates`` and ``no_grad`` name parameters: the one whose memory the result shows, those that are
    written, and those that get no gradient. ``copies`` tells when a ``view_of`` operation has to copy after all.
    ``from_host`` names parameters whose tensors may be on the CPU beside a GPU's; with ``mixed_devices`` all may be.
    ``updates`` lets it write into leaves that require grad while gradients are recorded, as optimizers do. ``returns``
    names several results, ``constants`` those that never have a gradient, ``module`` where users call it.
    """

    def declare(rule: Rule) -> Op:
        declared = Op(name or rule.__name__, rule, read_params(rule), **flags)
        special = declared.mutates or declared.data_dependent or "copied" in declared.out_rules
        file_forms(declared, inplace, declared.view_of is None and not special if out is None else out)
        return declared

    return declare if rule is None else declare(rule)


@overload
def pointwise(rule: Rule) -> Op: ...
@overload
def pointwise(
    *, promotion: Promotion = "default", promotes: Sequence[str] | None = None, takes: str = "bifc",
    inplace: bool = True, out: bool = True, **flags: Any,
) -> Callable[[Rule], Op]: ...  # fmt: skip
def pointwise(
    rule: Rule | None = None, *, promotion: Promotion = "default", promotes: Sequence[str] | None = None,
    takes: str = "bifc", inplace: bool = True, out: bool = True, **flags: Any,
) -> Any:  # fmt: skip
    """Declare an element-wise operation; its rule only checks, shape, strides and dtype follow from the operands.

    ``promotion`` is ``default``, ``int_to_float``, ``bool`` (which computes in the common type and returns bool),
    ``complex_to_float``, ``float_to_complex`` or ``bool_to_int``. ``promotes`` names the parameters that decide the
    type; by default all that may hold tensors do. ``takes`` lists the accepted categories of types by their first
    letters: bool, int, float and complex.
    """

    def declare(rule: Rule) -> Op:
        params = read_params(rule)
        deciding = promotes if promotes is not None else [p.name for p in params if p.kind.holds_tensors]

        def infer(*args: Any, **kwargs: Any) -> Meta:
            bound = (*args, *kwargs.values())
            _check_category(declared, takes, bound)
            rule(*args, **kwargs)
            return pointwise_meta(declared, bound)

        infer.__doc__ = rule.__doc__
        label = flags.pop("name", rule.__name__)
        declared = Op(label, infer, params, promotion=promotion, promoted=deciding, **flags)
        file_forms(declared, inplace, out)
        return declared

    return declare if rule is None else declare(rule)


def pointwise_meta(op: Op, bound: tuple[Any, ...]) -> Meta:
    """Return the meta of a pointwise result: broadcast shape, promoted dtype, the operands' memory order."""
    metas = op.metas_in(bound)
    shape = broadcast_shapes(op.public, *[m.shape for m in metas])
    if all([m.is_contiguous and m.shape == shape for m in metas]):
        return Meta.of(shape, op.output_dtype(bound), device_of(metas))
    strides = result_strides(shape, [(m.shape, m.strides) for m in metas])
    return Meta.of(shape, op.output_dtype(bound), device_of(metas), strides)


def _check_category(op: Op, takes: str, bound: Sequence[Any]) -> None:
    metas = op.metas_in(bound)
    if not metas:
        raise ArgumentTypeError(f"{op.public}: at least one operand must be a tensor: {op.signature}")
    dtype = result_type(bound[p] for p in op.promoted if bound[p] is not None)
    if "bifc"[dtype.category] not in takes:
        raise DTypeError(f"{op.public}: not defined for {dtype.name}, with operands {', '.join(map(repr, metas))}")


def device_of(metas: Sequence[Meta]) -> Device:
    """Return the device of a result; 0-d CPU tensors may stand beside operands of another device."""
    return next((m.device for m in metas if m.device.type != "cpu"), metas[0].device)


def file_forms(declared: Op, inplace: bool, out: bool) -> None:
    """Put an operation and its derived forms into ``TABLE``."""
    _file(declared)
    if inplace:
        _file(_inplace_form(declared))
    if out:
        _file(_out_form(declared))


def _file(op: Op) -> None:
    if op.name in TABLE:
        raise TypeError(f"operation {op.name} is declared twice")
    op.index = len(TABLE)
    TABLE[op.name] = op
    PUBLIC.setdefault(op.public, []).append(op)


def alias(name: str, op: Op) -> None:
    """Let users call ``op``, with its overloads and in-place forms, by another name too."""
    PUBLIC[name] = PUBLIC[op.public]
    if f"{op.public}_" in PUBLIC:
        PUBLIC[f"{name}_"] = PUBLIC[f"{op.public}_"]


def _inherited(op: Op) -> dict[str, Any]:
    return {
        "base": op, "no_grad": op.no_grad, "differentiable": op.differentiable, "random": op.is_random,
        "mixed_devices": op.mixed_devices, "from_host": op.from_host, "module": op.module,
        "promotion": op.promotion, "promoted": op.promoted, "out_rules": op.out_rules,
    }  # fmt: skip


def _derived_name(op: Op, suffix: str) -> str:
    head, dot, overload = op.name.partition(".")
    return f"{head}{suffix}{dot}{overload}" if suffix == "_" else f"{op.name}{suffix}"


def _inplace_form(op: Op) -> Op:
    def infer(input: Meta, *args: Any, **kwargs: Any) -> Meta:
        result = op.rule(input, *args, **kwargs)
        _check_target(f"{op.public}_", input, typing.cast(Meta, result))
        check_target_type(f"{op.public}_", input.dtype, typing.cast(Meta, result).dtype, kwargs.get("dtype"))
        if op.promotion == "complex_to_float" and input.dtype.is_complex:
            raise DTypeError(f"{op.public}_: the real result does not go into {input}")
        return input

    infer.__doc__ = f"In-place form of ``{op.public}``."
    return Op(
        _derived_name(op, "_"), infer, op.params, form="inplace", mutates=(0,), method=op.method, **_inherited(op)
    )


def _check_target(name: str, target: Meta, result: Meta) -> None:
    if not isinstance(target, Meta):
        raise ArgumentTypeError(f"{name}: cannot write into {describe(target)}")
    if target.shape != result.shape:
        raise ShapeError(f"{name}: result of shape {list(result.shape)} does not fit into {target}")


def _out_form(op: Op) -> Op:
    count = max(len(op.returns), 1)
    names = ["out"] if count == 1 else [f"out{i}" for i in range(count)]
    outs = tuple(Param(name, KINDS["tensor"], keyword_only=True) for name in names)

    def infer(*args: Any, **kwargs: Any) -> Metas:
        targets = tuple(kwargs.pop(name) for name in names)
        results = op.rule(*args, **kwargs)
        for target, result in zip(targets, results if isinstance(results, tuple) else (results,), strict=True):
            _check_target(op.public, target, typing.cast(Meta, result))
            check_target_type(op.name, target.dtype, typing.cast(Meta, result).dtype)
        return targets if count > 1 else targets[0]

    infer.__doc__ = f"``{op.public}`` into existing tensors."
    first = len(op.params)
    return Op(
        f"{op.name}.out" if "." not in op.name else f"{op.name}_out", infer, op.params + outs, form="out",
        mutates=tuple(range(first, first + count)), method=False, **_inherited(op),
    )  # fmt: skip
