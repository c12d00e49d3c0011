"""``Tensor``: a handle on a tensor that lives in a session on a server.

Holds what never needs the network: number, meta, whether it requires a gradient. Methods that run operations are
attached by ``_functions``, from the contracts; those written here read values or concern the handle itself.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from telegrad._ops.reachability import Aliases, GradFn, Leaf, Node, Reach
from telegrad_protocol import dtypes
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import (
    ArgumentError,
    ArgumentTypeError,
    AutogradError,
    DeviceError,
    DimensionError,
    DTypeError,
    ShapeError,
)
from telegrad_protocol.messages import RetainGrad, SetGrad, SetRequiresGrad
from telegrad_protocol.meta import Device, Meta

from . import arrays as _arrays
from .size import Size

if TYPE_CHECKING:
    from telegrad._attached import Attached
    from telegrad._session.session import Session
else:
    Attached = object


def require_one_session(name: str, *tensors: Any) -> None:
    """Refuse what is no tensor, and tensors of different sessions: their numbers mean something else there."""
    for tensor in tensors:
        if not isinstance(tensor, Tensor):
            raise ArgumentTypeError(f"{name}: expected a tensor, not {type(tensor).__name__}")
        if tensor._session is not tensors[0]._session:
            raise DeviceError(f"{name}: tensors of different sessions; bring them to one with numpy()")


class Tensor(Attached):
    """A multi-dimensional array on the server."""

    __slots__ = (
        "__dict__", "__weakref__", "_aliases", "_base", "_grad", "_id", "_meta", "_node", "_requires_grad", "_seen",
        "_session",
    )  # fmt: skip
    __array_priority__ = 1000
    __array_ufunc__ = None

    def __init__(self, session: Session, id: int = 0, meta: Any = None) -> None:
        if meta.__class__ is not Meta:
            raise ArgumentTypeError(
                "Tensor: tensors are made of data by telegrad.tensor(data), of a shape by empty(shape)"
            )
        self._id = id
        self._session = session
        self._meta: Meta = meta
        self._requires_grad = False
        self._node: Reach | None = None
        self._grad: Tensor | None = None
        self._base: Tensor | None = None
        self._aliases: Aliases | None = None
        self._seen = 0

    def __del__(self) -> None:
        try:
            if self._id:
                self._session.free(self._id)
        except AttributeError:  # it was never finished
            pass

    @property
    def shape(self) -> Size:
        """Sizes of the dimensions."""
        return Size(self._meta.shape)

    @property
    def dtype(self) -> DType:
        """Type of the elements."""
        return self._meta.dtype

    @property
    def device(self) -> Device:
        """Where the elements are."""
        return self._meta.device

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self._meta.ndim

    @property
    def is_cuda(self) -> bool:
        """Whether it is on a GPU."""
        return self._meta.device.type == "cuda"

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self._meta.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self._meta.nbytes

    def size(self, dim: int | None = None) -> Any:
        """Sizes of the dimensions, or of one."""
        return self.shape if dim is None else self._meta.shape[self._dimension(dim)]

    def _dimension(self, dim: Any) -> int:
        ndim, index = self._meta.ndim, operator.index(dim)
        if not -max(ndim, 1) <= index < max(ndim, 1) or not ndim:
            raise DimensionError(f"dimension {index} is out of range for {self._meta}")
        return index

    def dim(self) -> int:
        """Number of dimensions."""
        return self._meta.ndim

    ndimension = dim

    def numel(self) -> int:
        """Number of elements."""
        return self._meta.numel

    nelement = numel

    def stride(self, dim: int | None = None) -> Any:
        """Steps in elements between neighbours along each dimension, or one."""
        return self._meta.strides if dim is None else self._meta.strides[self._dimension(dim)]

    def storage_offset(self) -> int:
        """Elements before the first in its storage."""
        return self._meta.offset

    def element_size(self) -> int:
        """Bytes of an element."""
        return self._meta.dtype.itemsize

    def is_floating_point(self) -> bool:
        """Whether elements are real floating-point numbers."""
        return self._meta.dtype.is_floating_point

    def is_complex(self) -> bool:
        """Whether elements are complex."""
        return self._meta.dtype.is_complex

    def _read(self) -> np.ndarray[Any, Any]:
        return _arrays.array_of(*self._session.read(self._id))

    def numpy(self, *, force: bool = False) -> np.ndarray[Any, Any]:
        """A copy of the elements as a NumPy array; one round trip."""
        if self.requires_grad and not force:
            raise AutogradError("numpy: the tensor requires grad; use tensor.detach().numpy()")
        if self._meta.dtype is dtypes.bfloat16 and not force:
            raise ArgumentTypeError("numpy: NumPy has no bfloat16; use tensor.float().numpy()")
        return self._read()

    def tolist(self) -> Any:
        """The elements as nested lists of Python numbers; one round trip."""
        return self._read().tolist()

    def item(self) -> Any:
        """The one element as a Python number; one round trip."""
        if self._meta.numel != 1:
            raise ShapeError(f"item: a tensor with {self._meta.numel} elements cannot become a number; use tolist()")
        dtype, _, data = self._session.read(self._id)
        return _arrays.scalar_of(dtype, data)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if copy is False:
            raise ArgumentError("__array__: a remote tensor cannot be shown without a copy")
        array = self.numpy()
        return array if dtype is None else array.astype(dtype, copy=False)

    def __bool__(self) -> bool:
        if self._meta.numel != 1:
            raise ShapeError(
                f"the truth value of a tensor with {self._meta.numel} elements is ambiguous; use any() or all()"
            )
        return bool(self.item())

    def _number(self, kind: str) -> Any:
        if self._meta.numel != 1:
            raise ArgumentError(f"{kind}: only a tensor with one element can become a number, not {self._meta}")
        if self._meta.dtype.is_complex and kind != "complex":
            raise DTypeError(f"{kind}: a complex tensor cannot become a real number; use tensor.real")
        return self.item()

    def __float__(self) -> float:
        return float(self._number("float"))

    def __int__(self) -> int:
        return int(self._number("int"))

    def __complex__(self) -> complex:
        return complex(self._number("complex"))

    def __index__(self) -> int:
        if self._meta.dtype.category > dtypes.INTEGER or self._meta.numel != 1:
            raise ArgumentTypeError(f"only integer tensors of a single element can be an index, not {self._meta}")
        return int(self.item())

    def __len__(self) -> int:
        if not self._meta.ndim:
            raise ArgumentTypeError("len: a 0-d tensor has no length")
        return self._meta.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        if not self._meta.ndim:
            raise ArgumentTypeError("iteration over a 0-d tensor")
        return iter(self.unbind(0))

    def __contains__(self, element: Any) -> bool:
        if not isinstance(element, (Tensor, bool, int, float, complex, np.generic)):
            raise ArgumentTypeError(f"in: only a tensor or a number can be in a tensor, not {type(element).__name__}")
        found: Any = self == element
        return bool(found.any())

    def __format__(self, spec: str) -> str:
        return format(repr(self) if self._meta.ndim or type(self) is not Tensor else self.item(), spec)

    def __repr__(self) -> str:
        from .text import describe

        return describe(self)

    def __hash__(self) -> int:
        return id(self)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise ArgumentTypeError(
            "pickle: a tensor is a handle on memory of a server and cannot be pickled; "
            "use telegrad.save() or tensor.numpy()"
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        if not self.is_leaf:
            raise AutogradError("deepcopy: only leaf tensors can be copied deeply; use clone()")
        twin = memo[id(self)] = self._twin(self.detach().clone())
        if self._grad is not None:
            twin.grad = self._grad.__deepcopy__(memo)
        return twin

    def __copy__(self) -> Tensor:
        return self._twin(self.detach())

    def _twin(self, data: Tensor) -> Tensor:
        twin: Tensor = type(self)._wrap(data)
        twin.__dict__.update(self.__dict__)
        return twin.requires_grad_() if self.requires_grad else twin

    def _refresh(self) -> None:
        """See an in-place operation on another view of the same memory."""
        aliases = self._aliases
        if aliases is not None and aliases.version != self._seen:
            self._seen = aliases.version
            self._node, self._requires_grad = aliases.node, True

    def _reach(self) -> Reach:
        """Where its gradients go."""
        if self._node is None:
            self._node = Leaf(self)
        return self._node

    @property
    def requires_grad(self) -> bool:
        """Whether gradients flow into this tensor."""
        if self._aliases is not None:
            self._refresh()
        return self._requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Set whether gradients flow into this tensor; only leaves can be told not to."""
        if requires_grad and not self._meta.dtype.is_differentiable:
            raise DTypeError(
                f"requires_grad_: only floating-point and complex tensors can require grad, not {self._meta}"
            )
        if not self.is_leaf and not requires_grad:
            raise AutogradError("requires_grad_: only leaf tensors can stop to require grad; use detach()")
        if self.requires_grad != requires_grad:
            self._requires_grad = requires_grad
            self._session.submit(SetRequiresGrad(self._id, requires_grad))
        return self

    @property
    def is_leaf(self) -> bool:
        """Whether it was not computed from tensors that require grad."""
        return not self.requires_grad or not isinstance(self._node, Node)

    @property
    def grad_fn(self) -> GradFn | None:
        """What computed it, where that is differentiated."""
        return GradFn(self._node) if self.requires_grad and isinstance(self._node, Node) else None

    @property
    def grad(self) -> Tensor | None:
        """The gradient that ``backward`` accumulated here."""
        return self._grad

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None:
            require_one_session("grad", self, value)
        if value is not None and (value._meta.shape, value.dtype, value.device) != (
            self._meta.shape,
            self.dtype,
            self.device,
        ):
            raise ShapeError(
                f"grad: {value._meta} on {value.device} cannot be the gradient of {self._meta} on {self.device}"
            )
        if value is None and self._grad is None:
            return
        self._grad = value
        self._session.submit(SetGrad(self._id, None if value is None else value._id))

    def retain_grad(self) -> None:
        """Keep the gradient of a result in ``.grad``."""
        if not self.requires_grad:
            raise AutogradError("retain_grad: the tensor does not require grad")
        node = self._reach()
        if isinstance(node, Node):
            from weakref import ref

            node.retained = ref(self)
            self._session.submit(RetainGrad(self._id))

    @property
    def retains_grad(self) -> bool:
        """Whether ``retain_grad`` was called."""
        return isinstance(self._node, Node) and self._node.retained is not None

    def backward(
        self,
        gradient: Tensor | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Any = None,
    ) -> None:
        """Accumulate the gradient of this tensor into the leaves that it was computed from. No round trip."""
        from telegrad import autograd

        autograd.backward(self, gradient, retain_graph, create_graph, inputs=inputs)

    @property
    def data(self) -> Tensor:
        """The same elements without history."""
        return self.detach()

    @data.setter
    def data(self, other: Tensor) -> None:
        require_one_session("data", self, other)
        self._become(other.detach())

    def _become(self, other: Tensor) -> None:
        """Take over what ``other`` is; this object stays the same for everyone who holds it."""
        self._id, other._id = other._id, self._id
        self._meta, other._meta = other._meta, self._meta
        self._base = self._aliases = None
        if self._requires_grad:
            self._node = None
            self._session.submit(SetRequiresGrad(self._id, True))
        grad = self._grad
        if grad is not None:
            fits = (grad.shape, grad.dtype, grad.device) == (self.shape, self.dtype, self.device)
            self._grad = grad if fits else None
            self._session.submit(SetGrad(self._id, grad._id if fits else None))

    @classmethod
    def _wrap(cls, tensor: Tensor) -> Any:
        """An object of this class that takes over ``tensor``'s number; ``tensor`` is spent."""
        made = cls.__new__(cls)
        Tensor.__init__(made, tensor._session, tensor._id, tensor._meta)
        tensor._id = 0
        return made
