"""``Tensor``: the client's handle on a tensor that lives in a session on a server.

The handle holds what never needs the network: the tensor's number in its session, its ``Meta``, whether it requires a
gradient, its gradient, and its place in the client's autograd graph. It computes nothing and imports nothing that
does: methods that run operations or read elements are attached by ``telegrad._attach``.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any
from weakref import ref

from telegrad._session.thread_modes import thread
from telegrad_protocol.dtypes import DType
from telegrad_protocol.errors import (
    ArgumentTypeError,
    AutogradError,
    DeviceError,
    DimensionError,
    DTypeError,
)
from telegrad_protocol.messages import RetainGrad, SetGrad, SetRequiresGrad, Watch
from telegrad_protocol.meta import Device, Meta

from .assignments import check_flag, check_gradient, stays_leaf, take_place
from .autograd_graph import Aliases, Extras, GradientEdge, LeafNode, OperationNode, Watched, has_gradient
from .grad_fn import HANDLES, GradFn, shown_node, warn_of_no_gradient
from .hooks import Hook, RemovableHandle
from .size import Size

if TYPE_CHECKING:
    from telegrad._attached import Attached
    from telegrad._session.session import ClientSession
else:
    Attached = object


def require_one_session(name: str, *tensors: Any) -> None:
    """Raise an error in the name of ``name`` unless all are tensors of one session.

    Tensors of classes whose elements the program keeps may be among them.
    """
    first = None
    for tensor in tensors:
        if not isinstance(tensor, Tensor):
            raise ArgumentTypeError(f"{name}: expected a tensor, not {type(tensor).__name__}")
        if tensor._session.holds_gradients:
            continue
        first = first or tensor._session
        if tensor._session is not first:
            tensors[0]._session._require_open()
            tensor._session._require_open()
            raise DeviceError(f"{name}: tensors of different sessions; bring them to one with numpy()")


_MISSING = object()


class Tensor(Attached):
    """A multi-dimensional array on the server.

    Programs make tensors with ``tensor``, ``empty`` and their like; ``Tensor(2, 3)`` gives uninitialised elements and
    ``Tensor([1, 2])`` these ones, of the default dtype, as in older PyTorch.

    ``_node`` is where its gradient goes, made on demand for a leaf. A view has ``_base``, the tensor that it is a view
    of; it shares ``_aliases`` with the base and all other views, and ``_seen`` is their version that it has taken over.
    """

    __slots__ = (
        "__dict__", "__weakref__", "_aliases", "_base", "_grad", "_id", "_meta", "_node", "_requires_grad", "_seen",
        "_session",
    )  # fmt: skip
    __array_priority__ = 1000
    _is_inference = False
    """Whether it was made in inference mode, which is noted on the object."""

    def __init__(
        self, session: Any = _MISSING, id: Any = _MISSING, meta: Any = _MISSING, *sizes: Any, device: Any = None,
        **options: Any,
    ) -> None:  # fmt: skip
        if meta.__class__ is not Meta:  # a program's call, with sizes or data
            if hasattr(self, "_id"):
                return  # ``__new__`` of a subclass has made it, of arguments of its own
            if options:
                raise ArgumentTypeError(f"Tensor: unknown argument {next(iter(options))!r}")
            given = [argument for argument in (session, id, meta, *sizes) if argument is not _MISSING]
            return self._be_made_of(given, device)
        self._id: int = id
        self._session: ClientSession = session
        self._meta: Meta = meta
        self._requires_grad = False
        self._node: GradientEdge | None = None
        self._grad: Tensor | None = None
        self._base: Tensor | None = None
        self._aliases: Aliases | None = None
        self._seen = 0

    def __del__(self) -> None:
        try:
            if id := self._id:
                free = self._session.free
                free(id)
        except AttributeError:  # __init__ did not finish
            pass

    @property
    def shape(self) -> Size:
        """The sizes of the dimensions."""
        return tuple.__new__(Size, self._meta.shape)  # which needs no check

    @property
    def dtype(self) -> DType:
        """The type of the elements."""
        return self._meta.dtype

    @property
    def device(self) -> Device:
        """The device that the elements are on."""
        return self._meta.device

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self._meta.ndim

    @property
    def is_cuda(self) -> bool:
        """Whether the tensor is on a GPU."""
        return self._meta.device.type == "cuda"

    @property
    def is_mps(self) -> bool:
        """Whether the tensor is on a device that this server never has; the same holds for the names below."""
        return False

    is_xpu = is_mtia = is_vulkan = is_maia = is_ipu = is_xla = is_hpu = is_mkldnn = is_mps

    @property
    def __cuda_array_interface__(self) -> Any:
        """Raise an AttributeError: the address is one of the server's GPU, which no library here can reach."""
        raise AttributeError(
            "__cuda_array_interface__: the tensor is on the server, where libraries of this machine cannot reach it; "
            "kernels of Triton, Numba and cuda.RawKernel take the tensor itself, and numpy() brings its elements"
        )

    @property
    def itemsize(self) -> int:
        """The number of bytes of an element."""
        return self._meta.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """The number of bytes of all elements."""
        return self._meta.nbytes

    def size(self, dim: int | None = None) -> Any:
        """Return the sizes of the dimensions, or that of one."""
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
        """Return the number of elements."""
        return self._meta.numel

    nelement = numel

    def stride(self, dim: int | None = None) -> Any:
        """Return how many elements lie between neighbours along every dimension, or along one."""
        return self._meta.strides if dim is None else self._meta.strides[self._dimension(dim)]

    def storage_offset(self) -> int:
        """Return how many elements of the storage precede the first of this tensor."""
        return self._meta.offset

    def element_size(self) -> int:
        """Bytes of an element."""
        return self._meta.dtype.itemsize

    def is_floating_point(self) -> bool:
        """Tell whether the elements are real floating-point numbers."""
        return self._meta.dtype.is_floating_point

    def is_complex(self) -> bool:
        """Tell whether the elements are complex."""
        return self._meta.dtype.is_complex

    def __len__(self) -> int:
        if not self._meta.ndim:
            raise ArgumentTypeError("len: a 0-d tensor has no length")
        return self._meta.shape[0]

    def __hash__(self) -> int:
        return id(self)

    def _refresh(self) -> bool:
        """Take over the node of an in-place operation on another view; return whether that makes this a dual number."""
        aliases = self._aliases
        if aliases is not None and aliases.version != self._seen:
            self._seen = aliases.version
            aliases.hand_to(self)
            return aliases.adopt is not None and aliases.adopt(self)
        return False

    def _gradient_edge(self) -> GradientEdge:
        """Return where the gradient of this tensor goes."""
        if self._node is None:
            self._node = LeafNode(ref(self))
        return self._node

    def _is_tracked(self) -> bool:
        """Return whether the graph leads on from here: where it requires grad, or has a tangent."""
        if self._aliases is not None:
            self._refresh()
        return self._requires_grad

    @property
    def requires_grad(self) -> bool:
        """Whether gradients flow into this tensor or, as in PyTorch, into the base of a view that was not recorded."""
        aliases = self._aliases
        if aliases is not None:
            self._refresh()
            if aliases.adopt is not None:
                return self._requires_grad and bool(getattr(self, "_shows_grad", True))
        return self._requires_grad or (self._is_view() and self._base._requires_grad)  # type: ignore[union-attr]

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Set whether gradients flow into this tensor; only leaves can be told not to."""
        check_flag(requires_grad)
        if requires_grad and not self._meta.dtype.is_differentiable:
            raise DTypeError(
                f"Only Tensors of floating point and complex dtype can require gradients, not {self._meta}"
            )
        if requires_grad and self._is_inference and not thread.modes.inference:
            raise AutogradError("Setting requires_grad=True on inference tensor outside InferenceMode is not allowed")
        if not self.is_leaf and not requires_grad:
            raise AutogradError("you can only change requires_grad flags of leaf variables; use detach() for a result")
        if self._is_tracked() != requires_grad:
            self._requires_grad = requires_grad
            self._session.submit(SetRequiresGrad(self._id, requires_grad))
        return self

    @property
    def is_leaf(self) -> bool:
        """Whether it was not computed from tensors that require grad."""
        return not self.requires_grad or not isinstance(self._node, OperationNode)

    @property
    def grad_fn(self) -> GradFn | None:
        """The operation that computed this tensor; None for leaves and tensors that do not require grad."""
        if not self.requires_grad or not isinstance(self._node, OperationNode):
            return None
        return shown_node(self._node, self)

    @property
    def grad(self) -> Tensor | None:
        """The gradient that ``backward`` accumulated here."""
        if self._grad is None and isinstance(self._node, OperationNode) and not self.retains_grad:
            warn_of_no_gradient()
        return self._grad

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None:
            check_gradient(self, value, Tensor)
            require_one_session("grad", self, value)
        if value is None and self._grad is None:
            return
        self._grad = value
        if value is not None and self._session is not value._session:
            return  # one of the two is the program's own, and the server knows of neither as a gradient
        self._session.submit(SetGrad(self._id, None if value is None else value._number_of_gradient()))

    @grad.deleter
    def grad(self) -> None:
        self.grad = None

    def _number_of_gradient(self) -> int | None:
        """Return the number by which the server knows this tensor as a gradient; None where the client alone does."""
        return self._id

    def retain_grad(self) -> None:
        """Keep the gradient of a result in ``.grad``."""
        if not has_gradient(self):
            raise AutogradError("retain_grad: the tensor does not require grad")
        node = self._gradient_edge()
        if isinstance(node, OperationNode):
            node.extras = node.extras or Extras()
            node.extras.retained[self._id] = ref(self)
            self._session.submit(RetainGrad(self._id))

    @property
    def retains_grad(self) -> bool:
        """Whether ``retain_grad`` was called."""
        node = self._node
        if not isinstance(node, OperationNode) or node.extras is None:
            return False
        return any(tensor is self for tensor in node.extras.retaining())

    def register_hook(self, hook: Hook) -> RemovableHandle:
        """Call ``hook(grad)`` whenever the gradient of this tensor is computed; what it returns replaces the gradient.

        Raises AutogradError where the tensor does not require grad.
        """
        return RemovableHandle.add(self._watch("register_hook").hooks, hook)

    def register_post_accumulate_grad_hook(self, hook: Hook) -> RemovableHandle:
        """Call ``hook(tensor)`` whenever a backward pass has accumulated into the ``.grad`` of this leaf."""
        if self.requires_grad and not self.is_leaf:
            raise AutogradError(
                "post accumulate grad hooks cannot be registered on non-leaf tensors; use register_hook()"
            )
        return RemovableHandle.add(self._watch("register_post_accumulate_grad_hook").after, hook)

    def _watch(self, name: str) -> Watched:
        """Return where the hooks of this tensor are kept; passes stop there while there are any."""
        if not has_gradient(self):
            raise AutogradError(f"{name}: cannot register a hook on a tensor that doesn't require gradient")
        node = self._gradient_edge()
        if node.extras is None:
            node.extras = Extras()
        watched = node.extras.watched.get(self._id)
        if watched is None:
            session = self._session
            watched = Watched(session, session.new_id(), self._meta, self._id)
            session.submit(Watch(watched.number, self._id), thread.modes)
            node.extras.watched[self._id] = watched
        return watched

    @property
    def output_nr(self) -> int:
        """The number of the result of a function of the program that this is; 0 for other tensors."""
        return getattr(self._node, "index", 0)

    @property
    def _version(self) -> int:
        """How often the memory was modified in place. One round trip."""
        if self._is_inference:
            raise AutogradError("_version: Inference tensors do not track version counter")
        return int(self._session.query("version", self._id))

    def _is_view(self) -> bool:
        """Tell whether gradients may reach this tensor's base; none reach what was made in inference mode."""
        return self._base is not None and not self._is_inference

    def _become(self, other: Tensor) -> None:
        """Exchange number and meta with ``other``, so that this object stands for its elements."""
        self._id, other._id = other._id, self._id
        self._meta, other._meta = other._meta, self._meta
        self._session, other._session = other._session, self._session
        self._base = self._aliases = None
        if stays_leaf(self, other):
            return take_place(self, other)
        if self._requires_grad:
            self._node = None
            self._session.submit(SetRequiresGrad(self._id, True))
        if self._grad is not None:
            self._session.submit(SetGrad(self._id, self._grad._id))

    @classmethod
    def _wrap(cls, tensor: Tensor) -> Any:
        """Return an object of this class that takes over the number of ``tensor``, which must not be used any more."""
        wrapped = object.__new__(cls)
        Tensor.__init__(wrapped, tensor._session, tensor._id, tensor._meta)
        tensor._id = 0
        return wrapped


_allocate = object.__new__


def new_tensor(session: ClientSession, id: int, meta: Meta) -> Tensor:
    """Return the handle of the tensor of this number: what ``Tensor(session, id, meta)`` gives, in half the time."""
    tensor = _allocate(Tensor)
    tensor._id = id
    tensor._session = session
    tensor._meta = meta
    tensor._requires_grad = False
    tensor._node = tensor._grad = tensor._base = tensor._aliases = None
    tensor._seen = 0
    return tensor


HANDLES.make = Tensor
