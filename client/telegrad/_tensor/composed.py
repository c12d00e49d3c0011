"""``ComposedTensor``: a tensor that is made of other tensors in the client, one of which has its elements.

That one carries the autograd history, so that derivatives are those of ordinary operations. Sparse and nested tensors
are of this kind.
"""

from __future__ import annotations

from typing import Any

from telegrad_protocol.errors import ArgumentError, ArgumentTypeError

from .tensor import Tensor


class ComposedTensor(Tensor):
    """A tensor whose elements are those of ``stored``; ``like`` gives one with other elements in the same places."""

    __slots__ = ()

    @property
    def stored(self) -> Tensor:
        """The tensor with the elements."""
        raise NotImplementedError

    def like(self, values: Tensor) -> Any:
        """Return a tensor with these elements in the places of this one's."""
        raise NotImplementedError

    def _hold(self, values: Tensor) -> None:
        """Take these elements in place of ``stored``."""
        raise NotImplementedError

    def _form(self) -> str:
        """Return what messages call such a tensor."""
        raise NotImplementedError

    def _has_form_of(self, other: ComposedTensor) -> bool:
        """Whether the elements of another tensor lie in the same places, as far as shapes tell."""
        return type(other) is type(self) and other.stored.shape == self.stored.shape

    @classmethod
    def _wrap(cls, tensor: Tensor) -> Any:
        """Return the tensor itself, which nobody else uses."""
        return tensor

    def __del__(self) -> None:
        """Do nothing: the parts free themselves."""

    # What a dense tensor keeps for itself is the values' here.
    _requires_grad = property(lambda self: self.stored._requires_grad)
    _node = property(lambda self: self.stored._node)
    _grad = property(lambda self: self.grad, lambda self, gradient: setattr(self, "grad", gradient))

    @property
    def requires_grad(self) -> bool:
        """Whether gradients flow into the values."""
        return self.stored.requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> ComposedTensor:
        """Set whether gradients flow into the values of this leaf, but not into the tensor that it was made of."""
        if requires_grad and not self.stored.requires_grad:
            self._hold(self.stored.detach())
        self.stored.requires_grad_(requires_grad)
        return self

    @property
    def is_leaf(self) -> bool:
        """Whether the values were not computed from tensors that require grad."""
        return self.stored.is_leaf

    @property
    def grad_fn(self) -> Any:
        """The operation that computed the values."""
        return self.stored.grad_fn

    @property
    def grad(self) -> ComposedTensor | None:
        """The gradient of the stored elements, in the layout of this tensor."""
        gradient = self.stored._grad
        return None if gradient is None else self.like(gradient)

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is None:
            self.stored.grad = None
        elif isinstance(value, ComposedTensor) and self._has_form_of(value):
            self.stored.grad = value.stored
        else:
            raise ArgumentError(f"grad: the gradient of a {self._form()} tensor must have its layout and indices")

    def _number_of_gradient(self) -> None:
        """Return None: the server knows the elements alone as a gradient."""

    def retain_grad(self) -> None:
        """Keep the gradient of a result in ``.grad``."""
        self.stored.retain_grad()

    @property
    def retains_grad(self) -> bool:
        """Whether ``retain_grad`` was called."""
        return self.stored.retains_grad

    def register_hook(self, hook: Any) -> Any:
        """Call ``hook(grad)`` with a gradient of this layout whenever it is computed; what it returns replaces it."""

        def on_values(gradient: Tensor) -> Any:
            replaced = hook(self.like(gradient))
            return replaced.stored if isinstance(replaced, ComposedTensor) else replaced

        return self.stored.register_hook(on_values)

    def _gradient_edge(self) -> Any:
        return self.stored._gradient_edge()

    def _is_tracked(self) -> bool:
        return self.stored._is_tracked()

    def backward(
        self, gradient: Tensor | None = None, retain_graph: bool | None = None, create_graph: bool = False,
        inputs: Any = None,
    ) -> None:  # fmt: skip
        """Accumulate the gradient of this tensor into leaves; ``gradient`` is a tensor with the same indices."""
        if isinstance(gradient, ComposedTensor):
            if gradient.stored.shape != self.stored.shape:
                raise ArgumentError(f"backward: the gradient must have the indices of the {self._form()} tensor")
            gradient = gradient.stored
        elif gradient is not None:
            form = self._form()
            raise ArgumentTypeError(f"backward: the gradient of a {form} tensor must be a {form} tensor")
        self.stored.backward(gradient, retain_graph, create_graph, inputs)
