"""Invertible functions of samples, with the logarithms of their Jacobians' determinants."""

from __future__ import annotations

import math
from typing import Any

from telegrad._functions.composites import broadcast_shapes
from telegrad._ops.functions import function

from . import constraints
from .utils import broadcast_all, inside_unit_interval, sum_rightmost
from .utils import clipped_sigmoid as _clipped_sigmoid


class Transform:
    """A function whose inverse is ``.inv``; ``_call``, ``_inverse`` and ``log_abs_det_jacobian`` are a subclass's."""

    bijective = False
    domain: Any = constraints.real
    codomain: Any = constraints.real
    _sign: Any = None

    def __init__(self, cache_size: int = 0) -> None:
        self._cache_size = cache_size
        self._cached_x_y: tuple[Any, Any] = None, None
        super().__init__()  # of a module, where a program's transform is one

    @property
    def event_dim(self) -> int:
        """The event dimensions of both sides."""
        if self.domain.event_dim == self.codomain.event_dim:
            return int(self.domain.event_dim)
        raise ValueError("Please use either .domain.event_dim or .codomain.event_dim")

    @property
    def inv(self) -> Transform:
        """The inverse."""
        return _InverseTransform(self)

    @property
    def sign(self) -> Any:
        """1 where the function rises, -1 where it falls."""
        if self._sign is None:
            raise NotImplementedError(f"{type(self).__name__} has no sign")
        return self._sign

    def with_cache(self, cache_size: int = 1) -> Any:
        """Return the function with a memory of its last value, or without."""
        copied = object.__new__(type(self))
        copied.__dict__.update(self.__dict__, _cache_size=cache_size, _cached_x_y=(None, None))
        return copied

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    def __call__(self, x: Any) -> Any:
        if self._cached_x_y[0] is x:
            return self._cached_x_y[1]
        y = self._call(x)
        if self._cache_size:
            self._cached_x_y = x, y
        return y

    def _inv_call(self, y: Any) -> Any:
        if self._cached_x_y[1] is y:
            return self._cached_x_y[0]
        x = self._inverse(y)
        if self._cache_size:
            self._cached_x_y = x, y
        return x

    def _call(self, x: Any) -> Any:
        raise NotImplementedError

    def _inverse(self, y: Any) -> Any:
        raise NotImplementedError

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """Return log |dy/dx| of a value and what it becomes."""
        raise NotImplementedError

    def forward_shape(self, shape: Any) -> Any:
        """Return the shape of what a value of this shape becomes."""
        return shape

    def inverse_shape(self, shape: Any) -> Any:
        """Return the shape of what becomes of this shape."""
        return shape

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class _InverseTransform(Transform):
    def __init__(self, transform: Transform) -> None:
        super().__init__(transform._cache_size)
        self._inv = transform
        self.bijective = transform.bijective
        self.domain, self.codomain = transform.codomain, transform.domain

    @property
    def inv(self) -> Transform:
        return self._inv

    @property
    def sign(self) -> Any:
        return self._inv.sign

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _InverseTransform) and self._inv == other._inv

    __hash__ = Transform.__hash__

    def __call__(self, x: Any) -> Any:
        return self._inv._inv_call(x)

    def _inv_call(self, y: Any) -> Any:
        return self._inv(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return -self._inv.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape: Any) -> Any:
        return self._inv.inverse_shape(shape)

    def inverse_shape(self, shape: Any) -> Any:
        return self._inv.forward_shape(shape)

    def __repr__(self) -> str:
        return f"_InverseTransform({self._inv!r})"


class ComposeTransform(Transform):
    """Functions one after the other."""

    def __init__(self, parts: list[Transform], cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.parts = [part.with_cache(cache_size) for part in parts] if cache_size else list(parts)
        self.bijective = all(part.bijective for part in self.parts)
        self.domain = self._side(self.parts, lambda part: part.domain, lambda part: part.codomain, True)
        self.codomain = self._side(self.parts, lambda part: part.domain, lambda part: part.codomain, False)

    @staticmethod
    def _side(parts: list[Transform], first: Any, last: Any, is_domain: bool) -> Any:
        """Return the domain of the first part, or the codomain of the last, with the event dimensions that all need."""
        if not parts:
            return constraints.real
        side = first(parts[0]) if is_domain else last(parts[-1])
        event_dim = (last(parts[-1]) if is_domain else first(parts[0])).event_dim
        for part in reversed(parts) if is_domain else parts:
            into, out = (part.domain, part.codomain) if is_domain else (part.codomain, part.domain)
            event_dim = max(event_dim + into.event_dim - out.event_dim, into.event_dim)
        more = event_dim - side.event_dim
        return constraints.independent(side, more) if more > 0 else side

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ComposeTransform) and self.parts == other.parts

    __hash__ = Transform.__hash__

    @property
    def inv(self) -> Transform:
        return ComposeTransform([part.inv for part in reversed(self.parts)])

    @property
    def sign(self) -> Any:
        sign: Any = 1
        for part in self.parts:
            sign = sign * part.sign
        return sign

    def __call__(self, x: Any) -> Any:
        for part in self.parts:
            x = part(x)
        return x

    def _inv_call(self, y: Any) -> Any:
        for part in reversed(self.parts):
            y = part._inv_call(y)
        return y

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        if not self.parts:
            return function("zeros_like")(x)
        total: Any = 0
        event_dim = self.domain.event_dim
        for place, part in enumerate(self.parts):
            after = y if place == len(self.parts) - 1 else part(x)
            total = total + sum_rightmost(part.log_abs_det_jacobian(x, after), event_dim - part.domain.event_dim)
            event_dim += part.codomain.event_dim - part.domain.event_dim
            x = after
        return total

    def forward_shape(self, shape: Any) -> Any:
        for part in self.parts:
            shape = part.forward_shape(shape)
        return shape

    def inverse_shape(self, shape: Any) -> Any:
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return shape

    def __repr__(self) -> str:
        parts = ",\n    ".join(map(repr, self.parts))
        return f"ComposeTransform(\n    {parts}\n)"


identity_transform = ComposeTransform([])


class _Elementwise(Transform):
    bijective = True
    _sign = 1

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    __hash__ = Transform.__hash__


class ExpTransform(_Elementwise):
    """y = exp(x)."""

    codomain = constraints.positive

    def _call(self, x: Any) -> Any:
        return x.exp()

    def _inverse(self, y: Any) -> Any:
        return y.log()

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return x


class PowerTransform(Transform):
    """y = x ** exponent."""

    bijective = True
    domain = codomain = constraints.positive

    def __init__(self, exponent: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        (self.exponent,) = broadcast_all(exponent)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PowerTransform) and bool((self.exponent == other.exponent).all())

    __hash__ = Transform.__hash__

    @property
    def sign(self) -> Any:
        return self.exponent.sign()

    def _call(self, x: Any) -> Any:
        return x.pow(self.exponent)

    def _inverse(self, y: Any) -> Any:
        return y.pow(1 / self.exponent)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return (self.exponent * y / x).abs().log()

    def forward_shape(self, shape: Any) -> Any:
        return _grown(shape, self.exponent)

    inverse_shape = forward_shape


class SigmoidTransform(_Elementwise):
    """y = 1 / (1 + exp(-x)), which is kept off 0 and 1 by what the type can tell apart from them."""

    codomain = constraints.unit_interval

    def _call(self, x: Any) -> Any:
        return _clipped_sigmoid(x)

    def _inverse(self, y: Any) -> Any:
        inside = inside_unit_interval(y)
        return inside.log() - (-inside).log1p()

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return _log_sigmoid(x) + _log_sigmoid(-x)


class SoftplusTransform(_Elementwise):
    """y = log(1 + exp(x))."""

    codomain = constraints.positive

    def _call(self, x: Any) -> Any:
        return -_log_sigmoid(-x)

    def _inverse(self, y: Any) -> Any:
        return (-y).expm1().neg().log() + y

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return _log_sigmoid(x)


class TanhTransform(_Elementwise):
    """y = tanh(x)."""

    codomain = constraints.interval(-1.0, 1.0)

    def _call(self, x: Any) -> Any:
        return x.tanh()

    def _inverse(self, y: Any) -> Any:
        return y.atanh()

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return 2 * (math.log(2) - x + _log_sigmoid(2 * x))


class AbsTransform(Transform):
    """y = |x|, which has no inverse of one value."""

    codomain = constraints.positive

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AbsTransform)

    __hash__ = Transform.__hash__

    def _call(self, x: Any) -> Any:
        return x.abs()

    def _inverse(self, y: Any) -> Any:
        return y


def _grown(shape: Any, *parameters: Any) -> Any:
    """Return the shape that samples of a shape get by parameters, which may be numbers."""
    return broadcast_shapes(shape, *[getattr(parameter, "shape", ()) for parameter in parameters])


def _same(a: Any, b: Any) -> bool:
    """Whether two parameters, numbers or tensors, have equal elements."""
    equal = a is b or a == b
    return equal if isinstance(equal, bool) else bool(equal.all())


class AffineTransform(Transform):
    """y = loc + scale * x."""

    bijective = True

    def __init__(self, loc: Any, scale: Any, event_dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.loc, self.scale = loc, scale
        if event_dim:
            self.domain = self.codomain = constraints.independent(constraints.real, event_dim)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AffineTransform) and _same(self.loc, other.loc) and _same(self.scale, other.scale)

    __hash__ = Transform.__hash__

    @property
    def sign(self) -> Any:
        return self.scale.sign() if hasattr(self.scale, "sign") else (self.scale > 0) - (self.scale < 0)

    def _call(self, x: Any) -> Any:
        return self.loc + self.scale * x

    def _inverse(self, y: Any) -> Any:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        if isinstance(self.scale, (int, float)):
            each = function("full_like")(x, math.log(abs(self.scale)))
        else:
            each = self.scale.abs().log().expand(x.shape) if self.scale.ndim <= x.ndim else self.scale.abs().log()
        return sum_rightmost(each, self.event_dim)

    def forward_shape(self, shape: Any) -> Any:
        return _grown(shape, self.loc, self.scale)

    inverse_shape = forward_shape


def _log_sigmoid(x: Any) -> Any:
    return -function("logaddexp")(function("zeros_like")(x), -x)
