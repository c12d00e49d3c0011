"""Tensors whose elements count where a mask is true.

Data and mask are two ordinary tensors. Operations are those of the data, with the mask beside them, so gradients are
the data's: what a masked element is, no element that counts depends on. Knows operations by name (``_operations``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from telegrad._ops.functions import function
from telegrad._tensor.layouts import strided
from telegrad._tensor.tensor import Tensor
from telegrad.utils._pytree import tree_flatten, tree_map
from telegrad_protocol.dtypes import DType, bool_
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError

from . import _operations, _reductions
from ._printing import text_of


def checked(data: Any, mask: Any) -> None:
    """Raise unless data and mask can be a masked tensor."""
    for name, one in (("data", data), ("mask", mask)):
        if not isinstance(one, Tensor) or isinstance(one, MaskedTensor):
            raise ArgumentTypeError(f"masked_tensor: {name} must be a Tensor, got a {type(one).__name__}")
    if mask.dtype is not bool_:
        raise ArgumentTypeError(f"masked_tensor: mask must have dtype bool, got {mask._meta}")
    if data.is_complex():
        raise ArgumentTypeError(f"masked_tensor: {data.dtype} is not supported in MaskedTensor")
    if data.layout is not strided or mask.layout is not strided:
        raise ArgumentTypeError("masked_tensor: sparse tensors are not served; use to_dense()")
    if data.shape != mask.shape:
        raise ArgumentError(f"masked_tensor: data.size() must equal mask.size(), got {data._meta} and {mask._meta}")


def wrapped(data: Tensor, mask: Tensor) -> MaskedTensor:
    """Return the masked tensor of data that may be part of a graph."""
    make: Any = Tensor._make_wrapper_subclass
    made: MaskedTensor = make(MaskedTensor, data.shape, dtype=data.dtype, device=data.device)
    made._data, made._mask = data, mask if mask.shape == data.shape else mask.expand(data.shape)
    return made


class MaskedTensor(Tensor):
    """A tensor whose elements count where ``mask`` is true; others are no part of any result."""

    _data: Tensor
    _mask: Tensor

    @staticmethod
    def __new__(cls, data: Any, mask: Any, requires_grad: bool = False) -> MaskedTensor:
        checked(data, mask)
        own = data.detach()
        return wrapped(own.requires_grad_() if requires_grad else own, mask)

    def __init__(self, data: Any, mask: Any, requires_grad: bool = False) -> None:
        pass

    def get_data(self) -> Tensor:
        """Return all elements, with what stands where the mask is false."""
        return self._data

    def get_mask(self) -> Tensor:
        """Return the mask, which is true where an element counts."""
        return self._mask

    def to_tensor(self, value: Any) -> Tensor:
        """Return an ordinary tensor, with ``value`` where the mask is false."""
        return function("where")(self._mask, self._data, value)  # type: ignore[no-any-return]

    @property
    def requires_grad(self) -> bool:
        """Whether gradients flow into the data."""
        return self._data.requires_grad

    @requires_grad.setter
    def requires_grad(self, requires_grad: bool) -> None:
        self._data.requires_grad_(requires_grad)

    @property
    def is_leaf(self) -> bool:
        """Whether the data was not computed from tensors that require grad."""
        return self._data.is_leaf

    @property
    def grad_fn(self) -> Any:
        """The node of the backward graph that has made the data."""
        return self._data.grad_fn

    @property
    def grad(self) -> Tensor | None:
        """The gradient of the data, with the same mask."""
        grad = self._data.grad
        return None if grad is None else wrapped(grad, self._mask)

    @grad.setter
    def grad(self, grad: Any) -> None:
        self._data.grad = _data_of(grad)

    def requires_grad_(self, requires_grad: bool = True) -> MaskedTensor:
        """Set whether gradients flow into the data."""
        self._data.requires_grad_(requires_grad)
        return self

    def backward(self, gradient: Any = None, *arguments: Any, **options: Any) -> None:
        """Compute the gradients of what the data was computed from."""
        self._data.backward(_data_of(gradient), *arguments, **options)

    def retain_grad(self) -> None:
        """Keep the gradient of the data, which is no leaf."""
        self._data.retain_grad()

    def register_hook(self, hook: Callable[[Any], Any]) -> Any:
        """Call ``hook`` with the gradient, which is masked; what it returns takes its place."""
        return self._data.register_hook(lambda grad: _data_of(hook(wrapped(grad, self._mask))))

    def item(self) -> Any:
        """Return the only element of the data."""
        return self._data.item()

    def tolist(self) -> Any:
        """Refuse to make a list of a masked tensor, since a list has no mask."""
        raise ArgumentTypeError("tolist: not served for masked tensors; use to_tensor(value).tolist()")

    def numpy(self, *, force: bool = False) -> Any:
        """Refuse to make an array of a masked tensor, since an array has no mask."""
        raise ArgumentTypeError("numpy: not served for masked tensors; use to_tensor(value).numpy()")

    def __repr__(self, *arguments: Any, **options: Any) -> str:
        return text_of(self._data.detach().tolist(), self._mask.tolist(), self._data.ndim)

    __str__ = __repr__

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        kwargs = kwargs or {}
        if name in ("__get__", "__set__", "__delete__"):
            return _attribute(func, name, args)
        if name == "where":
            return _where(func, args, kwargs)
        base = name[:-1] if name.endswith("_") and not name.endswith("__") else name
        if name in _operations.UNARY or base in _operations.UNARY | _operations.BINARY or name in _operations.BINARY:
            return _elementwise(func, args, kwargs, changes=name != base and not name.endswith("__"))
        if name in _operations.ALIKE:
            return _alike(func, args, kwargs)
        if name in _operations.REDUCTIONS:
            return wrapped(*_operations.reduced(name, args[0]._data, args[0]._mask, args[1:], kwargs))
        if name in _operations.SOFTMAX:
            return _softmax(name, *args, **kwargs)
        if name in _operations.PLAIN:
            return func(*tree_map(_data_of, args), **tree_map(_data_of, kwargs))
        raise ArgumentTypeError(f"{name}: not served for masked tensors; use get_data(), get_mask() or to_tensor()")

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise ArgumentTypeError(f"{func}: not served for masked tensors; use get_data(), get_mask() or to_tensor()")


def _data_of(value: Any) -> Any:
    return value._data if isinstance(value, MaskedTensor) else value


def _mask_of(value: Any) -> Any:
    return value._mask if isinstance(value, MaskedTensor) else value


def _masks(args: Any, kwargs: Any) -> list[Tensor]:
    return [value._mask for value in tree_flatten((args, kwargs))[0] if isinstance(value, MaskedTensor)]


def _attribute(func: Any, name: str, args: tuple[Any, ...]) -> Any:
    value = func(*tree_map(_data_of, args))
    if name != "__get__" or not isinstance(value, Tensor):
        return value
    mask = args[0]._mask
    return wrapped(value, mask if value.shape == mask.shape else func(mask))


def _elementwise(func: Any, args: Any, kwargs: Any, changes: bool) -> Any:
    mask = _operations.same_mask(_masks(args, kwargs))
    result = func(*tree_map(_data_of, args), **tree_map(_data_of, kwargs))
    if changes and isinstance(args[0], MaskedTensor):
        return args[0]
    return wrapped(result, mask if mask.device == result.device else mask.to(result.device))


def _alike(func: Any, args: Any, kwargs: Any) -> Any:
    data = func(*tree_map(_data_of, args), **tree_map(_data_of, kwargs))
    mask = func(*tree_map(_mask_of, args), **tree_map(_mask_of, kwargs))
    if isinstance(data, Tensor):
        return wrapped(data, mask)
    return type(data)([wrapped(*pair) for pair in zip(data, mask, strict=True)])


def _where(func: Any, args: Any, kwargs: Any) -> MaskedTensor:
    condition, one, other = args if len(args) == 3 else (*args, *kwargs.values())
    for value in (one, other):
        if not isinstance(value, MaskedTensor):
            raise ArgumentTypeError("where: both choices must be masked tensors")
    condition = _data_of(condition)
    return wrapped(func(condition, one._data, other._data), func(condition, one._mask, other._mask))


def _softmax(name: str, input: MaskedTensor, dim: int, *rest: Any, dtype: DType | None = None) -> MaskedTensor:
    chosen = getattr(_reductions, name)(input._data, dim, dtype=dtype, mask=input._mask)
    return wrapped(chosen, input._mask)
