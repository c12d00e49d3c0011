"""Traces of functions with gradients: arguments are wrappers, whose gradients the client keeps, and have nodes.

What a function of tensors of the server differentiates, the server adds up; of wrappers each step is seen by a mode.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from telegrad._dispatch.fake_tensors import FakeTensorMode
from telegrad._dispatch.wrappers import make_wrapper, wrapper_session
from telegrad._ops.overriding import disabled_torch_function
from telegrad._ops.shape_operands import mapped
from telegrad._session.shapes.shape_session import meta_session
from telegrad._tensor.tensor import Tensor
from telegrad.fx.graph_module import GraphModule
from telegrad.fx.node import Node, writes_to_arguments
from telegrad.ops import aten
from telegrad_protocol.errors import NotSupportedError

from .tracing_mode import Tracing

Decompositions = Mapping[Any, Callable[..., Any]]


class ProxiedTensor(Tensor):
    """A tensor of a function that is traced; ``inner`` is what it looks like, without elements."""

    __torch_function__: Any = classmethod(disabled_torch_function)
    inner: Any

    @classmethod
    def of(cls, inner: Any, requires_grad: bool = False) -> Any:
        """Return one that looks like another tensor."""
        meta = inner._meta
        made = make_wrapper(
            cls, meta.shape, meta.strides, meta.offset, dtype=meta.dtype, device=meta.device,
            requires_grad=requires_grad,
        )  # fmt: skip
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotSupportedError(f"make_fx: {func} was called on a tensor of a function whose trace is over")


class ProxiedTracing(Tracing):
    """Notes the operators that are called on wrappers, and what they return as wrappers."""

    def __init__(self, decompositions: Decompositions) -> None:
        super().__init__(decompositions, [meta_session])
        self._fake = FakeTensorMode(allow_non_fake_inputs=True)
        self._shared: set[int] = set()
        """Numbers of the tensors without elements whose memory others share."""

    def proxied_all(self, leaves: Sequence[Any]) -> list[Any]:
        """Return leaves of arguments, with wrappers in the place of tensors."""
        return [self._proxied(leaf) if isinstance(leaf, Tensor) else leaf for leaf in leaves]

    def _proxied(self, tensor: Tensor) -> Any:
        known = tensor.detach() if tensor.requires_grad else tensor
        return ProxiedTensor.of(self._fake.from_tensor(known), tensor.requires_grad)

    def _compute(self, func: Any, args: Any, kwargs: Any) -> Any:
        wrappers: dict[int, Any] = {}

        def inner_of(tensor: Tensor) -> Tensor:
            inner = tensor.inner if isinstance(tensor, ProxiedTensor) else self._fake.from_tensor(tensor)
            wrappers[id(inner)] = tensor
            return inner  # type: ignore[no-any-return]

        given, named = mapped((args, kwargs), inner_of)
        if writes_to_arguments(func):
            self._refuse_shared(func, args)
        with self._fake:
            result = func(*given, **named)

        def wrapper_of(made: Tensor) -> Any:
            known = wrappers.get(id(made))
            if known is None and func is not aten.detach.default and made._base is not None:
                self._shared |= {made._id, made._base._id}
            return ProxiedTensor.of(made) if known is None else known

        return mapped(result, wrapper_of)

    def _refuse_shared(self, func: Any, args: Any) -> None:
        """Raise NotSupportedError where memory is written that others share, whose gradients would be stale."""
        operands = [one for one in args if isinstance(one, ProxiedTensor)]
        if operands and operands[0].inner._id in self._shared and any([one.requires_grad for one in operands]):
            raise NotSupportedError(
                f"{func}: it modifies a view, or what there are views of, in a function whose gradients are traced; "
                "use the function without an underscore"
            )

    def _constant(self, tensor: Tensor, is_new: bool) -> Node:
        """Return the node of a tensor of the program; one whose elements do not matter is made anew in each run."""
        if tensor._session is not wrapper_session:
            return super()._constant(tensor, is_new)
        options = {"dtype": tensor.dtype, "device": tensor.device}
        return self.graph.call_function(aten.empty.memory_format, (list(tensor.shape),), options)


def shape_of(tensor: Any) -> Any:
    """Return a tensor without elements that looks like one of a trace that is over."""
    return tensor.inner


def traced(
    f: Callable[..., Any], args: Sequence[Any], names: Sequence[str], decompositions: Decompositions | None = None
) -> GraphModule:  # fmt: skip
    """Return the operators that a function of tensors calls, those of its backward passes included, as a module."""
    tracing = ProxiedTracing(decompositions or {})
    given = tracing.proxied_all(args)
    return tracing.traced(lambda: f(*given), given, names)
