"""Parameters and buffers: tensors that a module counts as its own when they are assigned to it."""

from __future__ import annotations

from typing import Any, Final

from telegrad._ops.functions import function
from telegrad._ops.operand_classes import DISPATCHING, HANDLERS
from telegrad._ops.overriding import disabled_torch_function
from telegrad._session.devices import DeviceLike
from telegrad._tensor.layouts import strided
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import DType


class _ParameterMeta(type(Tensor)):  # type: ignore[misc]
    """The class of ``Parameter``: a tensor of the program's class that was made one counts as one."""

    def __instancecheck__(cls, instance: Any) -> bool:
        if type.__instancecheck__(cls, instance):
            return True
        return cls is Parameter and isinstance(instance, Tensor) and getattr(instance, "_is_param", False)


def _is_of_program(kind: type) -> bool:
    """Whether a class of tensors is the program's own, and none of parameters."""
    is_ours = kind.__module__.partition(".")[0] in ("telegrad", "torch")  # the latter is telegrad, if it is there
    return issubclass(kind, Tensor) and not (is_ours or issubclass(kind, (Parameter, Buffer)))


def _is_sparse(data: Any) -> bool:
    """Whether data are a sparse tensor, whose indices and values are tensors of their own."""
    return isinstance(data, Tensor) and data.__class__ in HANDLERS and _layout_of(data) is not strided


def _layout_of(tensor: Tensor) -> Any:
    return tensor.layout


class Parameter(Tensor, metaclass=_ParameterMeta):
    """A tensor to be trained. It shares the memory of ``data`` and requires a gradient unless told otherwise.

    Of sparse data, and of a class of the program, it is a tensor of the same class.
    """

    __slots__ = ()

    def __new__(cls, data: Any = None, requires_grad: bool = True) -> Any:
        if data.__class__ in DISPATCHING or _is_of_program(data.__class__) or _is_sparse(data):
            given: Any = data
            made = given.detach().requires_grad_(requires_grad)
            made._is_param = True
            return made
        made = object.__new__(cls)
        made._adopt(function("empty")(0) if data is None else data.detach(), requires_grad)
        return made

    __torch_function__: Any = classmethod(disabled_torch_function)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass  # `__new__` has made the parameter, also for classes whose `__init__` takes arguments of its own

    @classmethod
    def owning(cls, data: Tensor, requires_grad: bool = True) -> Parameter:
        """A parameter in place of ``data``, which must not be used any more; costs no operation."""
        if data.__class__ in DISPATCHING:
            return cls(data, requires_grad)
        made = object.__new__(cls)
        made._adopt(data, requires_grad)
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """Return a parameter with the same elements; as in PyTorch it has neither the gradient nor attributes."""
        if id(self) not in memo:
            memo[id(self)] = type(self)(self.detach().clone(), self.requires_grad)
        return memo[id(self)]

    def _adopt(self, data: Tensor, requires_grad: bool) -> None:
        Tensor.__init__(self, data._session, data._id, data._meta)
        data._id = 0
        if data._is_inference:
            self._is_inference = True
        if requires_grad:
            self.requires_grad_()

    __hash__ = Tensor.__hash__


class _BufferMeta(type(Tensor)):  # type: ignore[misc]
    """The class of ``Buffer``: a tensor that was made one counts as one."""

    def __instancecheck__(cls, instance: Any) -> bool:
        if cls is Buffer and isinstance(instance, Tensor) and getattr(instance, "_is_buffer", False):
            return True
        return type.__instancecheck__(cls, instance)


class Buffer(Tensor, metaclass=_BufferMeta):
    """A tensor that a module keeps as part of its state when it is assigned to it, and does not train.

    It shares the memory of ``data``, and is a tensor of the same class.
    """

    __slots__ = ()
    __torch_function__: Any = classmethod(disabled_torch_function)
    persistent: bool

    def __new__(cls, data: Any = None, *, persistent: bool = True) -> Any:
        given: Any = function("empty")(0) if data is None else data
        made = given.detach().requires_grad_(given.requires_grad)
        made.persistent, made._is_buffer = persistent, True
        return made

    def __init__(self, data: Any = None, *, persistent: bool = True) -> None:
        pass  # `__new__` has made the buffer

    __hash__ = Tensor.__hash__


def new_parameter(*size: int, device: DeviceLike, dtype: DType | None) -> Parameter:
    """Return a parameter of this size in uninitialised memory."""
    return Parameter.owning(function("empty")(size, dtype=dtype, device=device))


def is_lazy(param: Any) -> bool:
    """Tell whether a parameter or buffer has no shape yet."""
    return getattr(param, "_is_uninitialized", False)


_WITHOUT_SHAPE: Final = frozenset(
    ("_to_copy", "bfloat16", "bool", "char", "copy_", "cpu", "cuda", "data", "detach", "detach_", "double", "float",
     "get_device", "half", "int", "is_complex", "is_floating_point", "is_meta", "long", "requires_grad_", "short",
     "size", "to", "type")
)  # fmt: skip
"""Functions that take a tensor whose shape is not known yet."""


def require_shape(param: Any, who: str, when: str) -> None:
    """Raise ValueError for a parameter without a shape, which ``who`` cannot take ``when`` it is applied."""
    if is_lazy(param):
        raise ValueError(
            f"The module passed to `{who}` can't have uninitialized parameters. Make sure to run the dummy forward "
            f"before applying {when}"
        )


class UninitializedTensorMixin:
    """A parameter or buffer whose shape is not known yet; ``materialize`` gives it one."""

    __slots__ = ()
    _is_uninitialized = True
    cls_to_become: type[Tensor]

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Let a tensor without a shape be moved and cast, and refuse all else with a ValueError."""
        name = getattr(func, "__name__", str(func))
        if name in _WITHOUT_SHAPE or name == "__get__":
            return disabled_torch_function(cls, func, types, args, kwargs)
        raise ValueError(
            f"Attempted to use an uninitialized parameter in {func}. This error happens when you are using a "
            "`LazyModule` or explicitly manipulating `torch.nn.parameter.UninitializedParameter` objects. When using "
            "LazyModules Call `forward` with a dummy batch to initialize the parameters before calling torch functions"
        )

    def materialize(self, shape: Any, device: DeviceLike = None, dtype: DType | None = None) -> None:
        """Become a tensor of this shape in uninitialised memory, by default of the device and type asked for first."""
        mine: Any = self
        place, kind = mine.device if device is None else device, dtype or mine.dtype
        self.__class__ = self.cls_to_become  # type: ignore[assignment]
        mine._become(function("empty")(shape, dtype=kind, device=place))

    @property
    def shape(self) -> Any:
        """Raise an error: there is no shape yet."""
        raise RuntimeError(
            "Can't access the shape of an uninitialized parameter or buffer. This error usually happens in "
            "`load_state_dict` when trying to load an uninitialized parameter into an initialized one. Call `forward` "
            "to initialize the parameters before accessing their attributes."
        )

    def numel(self) -> int:
        """Raise an error: there are no elements yet."""
        raise ValueError(
            "Attempted to use an uninitialized parameter in numel(). This error happens when you are using a "
            "`LazyModule` or explicitly manipulating `torch.nn.parameter.UninitializedParameter` objects. When using "
            "LazyModules Call `forward` with a dummy batch to initialize the parameters before calling torch functions"
        )

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Return what makes it again: there are no elements to be written."""
        mine: Any = self
        return type(self), (mine.requires_grad, mine.device, mine.dtype)

    def share_memory_(self) -> Any:
        """Raise an error: there is no memory yet."""
        raise RuntimeError("Can't share memory on an uninitialized parameter or buffer.")

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        mine: Any = self
        copy = memo[id(self)] = type(self)(mine.requires_grad, mine.device, mine.dtype)  # type: ignore[call-arg]
        return copy


class UninitializedParameter(UninitializedTensorMixin, Parameter):
    """A parameter of a lazy module before its first call."""

    __slots__ = ()
    cls_to_become = Parameter

    def __new__(cls, requires_grad: bool = True, device: DeviceLike = None, dtype: DType | None = None) -> Any:
        return super().__new__(cls, function("empty")(0, device=device, dtype=dtype), requires_grad)

    __hash__ = Tensor.__hash__


class UninitializedBuffer(UninitializedTensorMixin, Tensor):
    """A buffer of a lazy module before its first call."""

    __slots__ = ()
    cls_to_become = Tensor

    def __init__(
        self, requires_grad: bool = False, device: DeviceLike = None, dtype: DType | None = None,
        persistent: bool = True,
    ) -> None:  # fmt: skip
        made = function("empty")(0, device=device, dtype=dtype)
        Tensor.__init__(self, made._session, made._id, made._meta)
        made._id = 0
        self.persistent, self._is_buffer = persistent, True
        self.requires_grad_(requires_grad)

    __hash__ = Tensor.__hash__
