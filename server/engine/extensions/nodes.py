"""Nodes of the backward graph whose gradients an extension computes: ``torch::autograd::Function`` in C++."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from server.engine.autograd.graph import Node, SavedOutput, SavedTensor, with_history
from server.engine.autograd.inplace import check_writable, edge_of, rebase
from server.engine.autograd.node import fit_gradient, zeros
from server.engine.value import Value
from telegrad_protocol.errors import AutogradError
from telegrad_protocol.meta import Meta


class NodeLibrary(Protocol):
    """What nodes ask of the library that made them."""

    @property
    def release(self) -> Callable[[int], None]:
        """Drops what the node of a number computes its gradients by."""

    def differentiate(self, node: ExtensionNode, number: int, gradients: list[Value | None]) -> list[Value | None]:
        """Return the gradients of what a function was applied to."""


class ExtensionNode(Node):
    """A node that calls back into the library that made it, which knows it by a number."""

    __slots__ = ("_called", "_input_metas", "_library", "_materializes", "_number", "_saved")

    def __init__(
        self, library: NodeLibrary, number: int, called: str, inputs: Sequence[Value | None],
        outputs: Sequence[Value | None], materializes: bool,
    ) -> None:  # fmt: skip
        known = [output.meta for output in outputs if output is not None]
        metas = tuple([known[0] if output is None else output.meta for output in outputs])
        super().__init__([None if value is None else edge_of(value) for value in inputs], metas)
        self._library, self._number, self._called = library, number, called
        self._input_metas: list[Meta | None] = [None if value is None else value.meta for value in inputs]
        self._materializes = materializes
        self._saved: list[SavedTensor | None] | None = []

    @property
    def name(self) -> str:
        """What PyTorch prints as ``grad_fn``."""
        return f"CppNode<{self._called}>"

    def save(self, tensors: Sequence[Value | None], outputs: Sequence[Value | None]) -> None:
        """Keep what the library's function needs for its gradients."""
        saved: list[SavedTensor | None] = []
        for tensor in tensors:
            place = next((k for k, output in enumerate(outputs) if output is tensor and tensor is not None), None)
            if tensor is None:
                saved.append(None)
            else:
                saved.append(SavedTensor(tensor) if place is None else SavedOutput(tensor, self, place))
        self._saved = saved

    def saved(self) -> list[Value | None]:
        """Return what was saved; raises AutogradError where it was freed, or modified since."""
        if self._saved is None:
            raise AutogradError(
                f"{self.name}: trying to backward through the graph a second time, but its saved tensors are freed; "
                "pass retain_graph=True to the first pass"
            )
        return [None if item is None else item.unpack(self) for item in self._saved]

    def apply(self, grads: Sequence[Value | None]) -> Sequence[Value | None]:
        self.saved()
        if self._materializes:
            grads = [zeros(meta) if grad is None else grad for grad, meta in zip(grads, self.metas, strict=True)]
        results = self._library.differentiate(self, self._number, list(grads))
        return [fit_gradient(grad, meta) for grad, meta in zip(results, self._input_metas, strict=True)]

    def release(self) -> None:
        self._saved = None

    def __del__(self) -> None:
        self._library.release(self._number)


def record(library: NodeLibrary, value: Callable[[], Any], number: int) -> ExtensionNode:
    """Make the node that a library asks for: ``value`` returns the next of the values that describe it."""
    called, inputs, outputs, saved, are_dirty, are_differentiable, materializes = [value() for _ in range(7)]
    for output, is_dirty in zip(outputs, are_dirty, strict=True):
        if is_dirty:
            check_writable("mark_dirty", output)
    node = ExtensionNode(library, number, called, inputs, outputs, materializes)
    for place, output in enumerate(outputs):
        if not are_differentiable[place]:
            continue
        if are_dirty[place]:
            rebase(output, node)
            output.autograd.output = place
        else:
            with_history(output, node, place)
    node.save(saved, outputs)
    return node
