"""``Function``: an operation whose forward and backward passes are the user's Python."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Any
from weakref import ReferenceType

from telegrad._batching.tensor import innermost_of
from telegrad._ops.batching import batching
from telegrad._ops.duals import DualTensor, duals
from telegrad._ops.packing import saved_tensors
from telegrad._session.grad_mode import is_grad_enabled, no_grad
from telegrad._session.thread_modes import thread
from telegrad._tensor.autograd_graph import ClientNode, GradientEdge, PackedSaved
from telegrad._tensor.held_gradients import HeldParts
from telegrad._tensor.hooks import Hook, Hooks, RemovableHandle, run_hooks
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentTypeError, AutogradError
from telegrad_protocol.meta import Meta

from ._functions.context import FunctionCtx, check_dirty, with_defaults
from ._functions.nodes import SavedResult, attach, ids_of, root_of, zeros_of
from ._functions.tangents import apply_to_duals

__all__ = [
    "Function", "FunctionCtx", "InplaceFunction", "NestedIOFunction", "once_differentiable",
]  # fmt: skip


class _Context(FunctionCtx):
    """The context of one call, which differentiates it: its gradient function, as ``grad_fn`` shows it."""

    def __init__(self, owner: type[Function]) -> None:
        self._owner = owner
        self._node: ReferenceType[ClientNode] | None = None
        self._outputs: list[Meta | None] = []
        self._places: list[int | None] = []
        self._hooks: Hooks | None = None
        self._prehooks: Hooks | None = None

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """The tensors that ``save_for_backward`` was given."""
        if self._saved is None:
            raise AutogradError(
                "saved_tensors: Trying to backward through the graph a second time, but its saved tensors are freed. "
                "Specify retain_graph=True for the first pass"
            )
        return tuple([item.unpack() if isinstance(item, (SavedResult, PackedSaved)) else item for item in self._saved])

    @property
    def saved_variables(self) -> tuple[Any, ...]:
        """The former name of ``saved_tensors``."""
        warnings.warn("'saved_variables' is deprecated; use 'saved_tensors'", DeprecationWarning, stacklevel=2)
        return self.saved_tensors

    def name(self) -> str:
        return f"{self._owner.__name__}Backward"

    def register_hook(self, hook: Hook) -> RemovableHandle:
        """Call ``hook(grad_inputs, grad_outputs)`` after ``backward``; what it returns replaces the former."""
        if self._hooks is None:
            self._hooks = Hooks()
        return RemovableHandle.add(self._hooks, hook)

    def register_prehook(self, hook: Hook) -> RemovableHandle:
        """Call ``hook(grad_outputs)`` before ``backward``; what it returns replaces the gradients."""
        if self._prehooks is None:
            self._prehooks = Hooks()
        return RemovableHandle.add(self._prehooks, hook)

    def differentiate(self, gradients: list[Any]) -> list[Any]:
        """Return the gradients of the tensors that the function was applied to."""
        gradients = run_hooks(self._prehooks, gradients)
        if self.materialize_grads:
            gradients = [
                zeros_of(meta) if gradient is None and meta is not None else gradient
                for gradient, meta in zip(gradients, self._outputs, strict=True)
            ]
        results = self._owner._backward_of()(self, *gradients)
        results = list(results) if isinstance(results, (tuple, list)) else [results]
        count = len(self.needs_input_grad)
        if len(results) > count and all(extra is None for extra in results[count:]):
            del results[count:]
        if len(results) != count:
            raise AutogradError(
                f"function {self.name()} returned an incorrect number of gradients (expected {count}, got "
                f"{len(results)})"
            )
        chosen = [results[place] for place in range(count) if self._places[place] is not None]
        for place, (given, at) in enumerate(zip(results, self._places, strict=True)):
            if at is None and given is not None:
                raise AutogradError(
                    f"function {self.name()} returned a gradient different from None at position {place + 1}, but the "
                    "corresponding forward input was not a Variable"
                )
            if given is not None and not isinstance(given, Tensor):
                raise ArgumentTypeError(
                    f"function {self.name()}: expected a tensor or None as gradient, not {type(given).__name__}"
                )
        return run_hooks(self._hooks, chosen, tuple(gradients))

    def release(self) -> None:
        """Drop what was saved: the pass that has used it does not retain the graph."""
        self._saved = None


class Function(FunctionCtx):
    """An operation of the user's: ``forward`` and ``backward`` are static methods; ``apply`` runs it.

    ``forward(ctx, *args)`` runs without recording; or ``forward(*args)`` does, and ``setup_context(ctx, inputs,
    output)`` follows. ``backward(ctx, *grad_outputs)`` returns a gradient or None for each argument of ``forward``.
    """

    generate_vmap_rule = False
    _has_no_jvp = True
    """Whether dual numbers are refused where ``jvp`` is not overridden."""
    _checks_saved = True
    """Whether ``backward`` is refused where a saved tensor was modified in place, and hooks pack what is saved."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        warnings.warn(
            f"{type(self)} should not be instantiated. Methods on autograd functions are all static, so you should "
            "invoke them on the class itself. Instantiating an autograd function will raise an error in a future "
            "version of PyTorch.",
            DeprecationWarning,
            stacklevel=2,
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise AutogradError(
            "Legacy autograd function with non-static forward method is deprecated. Please use new-style autograd "
            "function with static forward method, and call its apply."
        )

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Compute the results. To be overridden."""
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        """Note what ``backward`` needs, where ``forward`` takes no ``ctx``. To be overridden."""
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """Compute the gradients of the arguments. To be overridden."""
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom autograd.Function to use it with "
            "backward mode AD."
        )

    @staticmethod
    def vjp(ctx: Any, *grad_outputs: Any) -> Any:
        """Do what ``backward`` does, under another name. To be overridden."""
        raise NotImplementedError("vjp is not implemented; define backward")

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        """Compute the tangents of the results from those of the arguments, of ``forward_ad``. To be overridden."""
        raise NotImplementedError(
            "You must implement the jvp function for custom autograd.Function to use it with forward mode AD."
        )

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> Any:
        """Return the results of a batch and their dimensions; ``info`` has its size. To be overridden.

        It is not needed where ``generate_vmap_rule`` says that ``forward`` and ``backward`` are mapped as they are.
        """
        raise NotImplementedError(
            "To use autograd.Function with vmap, you must either override the vmap static method or set "
            "generate_vmap_rule=True."
        )

    @classmethod
    def _backward_of(cls) -> Callable[..., Any]:
        if cls.vjp is not Function.vjp:
            if cls.backward is not Function.backward:
                raise AutogradError(
                    "Implementing both 'backward' and 'vjp' for a custom Function is not allowed. You should only "
                    "implement one of them."
                )
            return cls.vjp
        return cls.backward

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Run ``forward`` and return its results, which ``backward`` differentiates."""
        if cls.setup_context is not Function.setup_context:
            args, kwargs = with_defaults(cls.forward, args, kwargs)
        if batching.levels and innermost_of(args):
            return import_module("telegrad._batching.functions").apply_to_batches(cls, args)
        if duals.intercepts and any([isinstance(argument, DualTensor) for argument in args]):
            has_backward = cls.backward is not Function.backward or cls.vjp is not Function.vjp
            return apply_to_duals(cls, cls.jvp is not Function.jvp, has_backward, args, kwargs)
        return cls._applied(args, kwargs)[0]

    @classmethod
    def _applied(cls, args: tuple[Any, ...], kwargs: dict[str, Any], name: str = "") -> tuple[Any, _Context]:
        """Run ``forward``; return its results, and the context of the call, whose node has this name if one is given.
        """  # fmt: skip
        ctx = _context_type(cls)(cls)
        tensors = [argument for argument in args if isinstance(argument, Tensor)]
        ctx.needs_input_grad = tuple([isinstance(a, Tensor) and a._is_tracked() for a in args])
        ctx._places = [place if isinstance(a, Tensor) else None for place, a in enumerate(args)]
        records = thread.modes.records and any(ctx.needs_input_grad)
        edges = [tensor._gradient_edge() if tensor._is_tracked() else None for tensor in tensors]
        with no_grad():
            if cls.setup_context is not Function.setup_context:
                output = cls.forward(*args, **kwargs)
                cls.setup_context(ctx, args, output)
            else:
                output = cls.forward(ctx, *args, **kwargs)
        outputs = list(output) if isinstance(output, tuple) else [output]
        for dirty in ctx._dirty:
            if not any(dirty is out for out in outputs):
                raise AutogradError(
                    "Some elements marked as dirty during the forward method were not returned as output. The inputs "
                    "that are modified inplace must all be outputs of the Function."
                )
        check_dirty(ctx, records)
        saved = ctx._saved or ()
        wrapped = _Results(ctx, tensors, outputs, records)
        results = wrapped.with_history(cls, edges, name) if records else wrapped.values
        if saved:
            ctx._saved = [wrapped.pack(tensor) for tensor in saved] if records else list(saved)
        return (tuple(results) if isinstance(output, tuple) else results[0]), ctx


class _Results:
    """The results of one call: which are new, which are inputs, and which have a gradient."""

    def __init__(self, ctx: _Context, tensors: list[Tensor], outputs: list[Any], records: bool) -> None:
        self.ctx = ctx
        self.tensors = tensors
        self.given = outputs
        self.records = records
        self.node: ClientNode | None = None
        modified = [place for place, out in enumerate(outputs) if any(out is dirty for dirty in ctx._dirty)]
        self.views = [place for place in modified if records and outputs[place]._base is not None]
        """Places of views that were modified: their histories are those of copies, which are written into them."""
        self.modified = [place for place in modified if place not in self.views]
        self.values = [self._own(place, out) for place, out in enumerate(outputs)]

    def _own(self, place: int, out: Any) -> Any:
        """Return a result that may get a history: an input, or a tensor that has one, is replaced by an alias."""
        if not isinstance(out, Tensor) or place in self.modified:
            return out
        is_input = any(out is tensor for tensor in self.tensors)
        if place in self.views:
            with no_grad():
                return out.clone()
        if not is_input and not out._is_tracked():
            return out
        with no_grad():
            return out.view_as(out) if is_input and self.records else out.detach()

    def with_history(self, owner: type[Function], edges: list[GradientEdge | None], name: str) -> list[Any]:
        ctx, values = self.ctx, self.values
        self.is_differentiable = differentiable = [
            isinstance(out, Tensor) and out._meta.dtype.is_differentiable
            and not any(given is other for other in ctx._non_differentiable)
            for given, out in zip(self.given, values, strict=True)
        ]  # fmt: skip
        ctx._outputs = [out._meta if isinstance(out, Tensor) else None for out in values]
        if not any(differentiable):
            return values
        outputs = {place: values[place] for place, has in enumerate(differentiable) if has}
        all_tensors = [*self.tensors, *outputs.values()]
        own = [tensor for tensor in all_tensors if tensor._session.holds_gradients]
        known = [tensor._session for tensor in all_tensors if not tensor._session.holds_gradients]
        session = known[0] if known else all_tensors[0]._session
        metas = [out._meta if has else None for out, has in zip(values, differentiable, strict=True)]
        name = name or f"{owner.__name__}Backward"
        self.node = node = ClientNode(session, session.new_id(), name, edges, metas, ctx)
        if own or ctx.keeps_operands:
            node.held = HeldParts(self.tensors, outputs)
        attach(node, outputs, ids_of(self.tensors), tuple(self.modified), self._saved_ids(owner))
        for place in self.views:
            values[place] = self.given[place].copy_(values[place])
        return values

    def _saved_ids(self, owner: type[Function]) -> tuple[int, ...]:
        """Return the numbers of saved tensors that must not be modified before ``backward``."""
        if saved_tensors.innermost is not None or not owner._checks_saved:
            return ()
        written = [root_of(self.given[place]) for place in self.views]
        saved = [t for t in self.ctx._saved or () if t is not None and not any(root_of(t) is root for root in written)]
        return tuple([number for number in ids_of(saved) if number is not None])

    def pack(self, tensor: Any) -> Any:
        """Return how a tensor is kept until ``backward``."""
        if tensor is None:
            return None
        pair = saved_tensors.innermost if self.ctx._owner._checks_saved else None
        if pair is not None:
            with no_grad():
                return PackedSaved("", 0, pair[0](tensor), pair[1])
        place = self._place_of(tensor)
        if place is None or self.node is None:
            return tensor
        with no_grad():
            return SavedResult(self.values[place].detach(), self.node, place)

    def _place_of(self, tensor: Tensor) -> int | None:
        """Return the number of the differentiable result that a tensor is; None for others, and for inputs."""
        is_input = any(tensor is other for other in self.tensors)
        for place, given in enumerate(self.given):
            if given is tensor and self.is_differentiable[place] and (place in self.modified or not is_input):
                return place
        return None


def _context_type(owner: type[Function]) -> type[_Context]:
    """Return the class of a function's contexts, which carries the function's own attributes and methods."""
    known = owner.__dict__.get("_backward_cls")
    if known is None:
        known = type(f"{owner.__name__}Backward", (_Context, owner), {"_forward_cls": owner})
        setattr(owner, "_backward_cls", known)  # noqa: B010 - the attribute is the derived class's own
    return known


class InplaceFunction(Function):
    """A function that can run in place; kept for programs that derive from it."""

    def __init__(self, inplace: bool = False) -> None:
        self.inplace = inplace


class NestedIOFunction(Function):
    """A function of nested tensors; not supported: use ``Function`` on flat arguments."""


def once_differentiable(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Make a ``backward`` that cannot be differentiated itself: its gradients say so when they are."""

    @wraps(fn)
    def wrapper(ctx: Any, *args: Any) -> Any:
        with no_grad():
            outputs = fn(ctx, *args)
        if not is_grad_enabled() or not any(isinstance(a, Tensor) and a.requires_grad for a in args):
            return outputs
        results = outputs if isinstance(outputs, tuple) else (outputs,)
        message = "trying to differentiate twice a function that was marked with @once_differentiable"
        marked = tuple([refusing(result, message) for result in results])
        return marked if isinstance(outputs, tuple) else marked[0]

    return wrapper


def refusing(result: Any, message: str) -> Any:
    """Return a tensor whose gradient is this error; other values as they are."""
    return _Refusal.apply(result.detach().requires_grad_(), message) if isinstance(result, Tensor) else result


class _Refusal(Function):
    _has_no_jvp = False

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, message: str) -> Any:
        ctx.message = message
        return gradient.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise AutogradError(ctx.message)
