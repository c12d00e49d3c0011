"""``repr`` and ``format`` of a tensor, and what a notebook shows of it: fetch the elements that are shown.

``_tensor.formatting`` makes the text of them, ``_tensor.html`` the table.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from telegrad._ops.duals import DualTensor, duals
from telegrad._ops.functions import function
from telegrad._session import cells
from telegrad._session.grad_mode import no_grad
from telegrad._session.shapes.shape_session import ShapeSession
from telegrad._tensor.formatting import EdgeRanges, edge_ranges, format_elements, format_tensor
from telegrad._tensor.html import escape, format_html, head_of
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.dtypes import get_default_dtype
from telegrad_protocol.errors import ArgumentTypeError, TelegradError

from .reading import item, read_array


def _shape_text(self: Tensor) -> str:
    """Return the text of a tensor without elements, as PyTorch writes it."""
    notes = [f"device={str(self.device)!r}", f"size={tuple(self._meta.shape)}"]
    if self.dtype is not get_default_dtype():
        notes.append(f"dtype=torch.{self.dtype.name}")
    fn = self.grad_fn
    notes += [f"grad_fn=<{type(fn).__name__}>"] if fn else ["requires_grad=True"] if self.requires_grad else []
    if type(self).__name__ == "Parameter":
        return f"Parameter containing:\ntensor(..., {', '.join(notes)})"
    return f"{type(self).__name__.replace('Tensor', 'tensor', type(self) is Tensor)}(..., {', '.join(notes)})"


def _repr(self: Tensor, *, tensor_contents: str | None = None) -> str:
    """Return the text of a tensor, with ``tensor_contents`` in the place of its elements where it is given."""
    if tensor_contents is not None:
        return _text(self, np.empty(0), tensor_contents)
    if isinstance(self._session, ShapeSession):
        return _shape_text(self)
    ranges = edge_ranges(self._meta.shape)
    text = _text(self, read_array(self) if ranges is None else _read_edges(self, ranges))
    tangent = duals.levels[-1].tangents([self])[0] if duals.intercepts and isinstance(self, DualTensor) else None
    return text if tangent is None else f"{text[:-1]}, tangent={tangent!r})"


def _text(self: Tensor, elements: np.ndarray[Any, Any], given: str | None = None) -> str:
    """Return the text of a tensor of which ``elements`` has all that the text shows."""
    ranges = edge_ranges(self._meta.shape)
    fn = self.grad_fn
    return format_tensor(
        elements,
        dtype=self.dtype,
        device=str(self.device),
        shape=tuple(self._meta.shape),
        requires_grad=self.requires_grad,
        grad_fn=type(fn).__name__ if fn else None,
        is_parameter=any(kind.__name__ == "Parameter" and _is_own(kind) for kind in type(self).__mro__),
        class_name=None if _is_own(type(self)) else type(self).__name__,
        summarized=ranges is not None,
        contents=given,
    )


_OWN_PACKAGES = (__package__.partition(".")[0], "torch")
"""Where telegrad's classes are, also when a program knows them as PyTorch's."""


def _is_own(kind: type) -> bool:
    """Whether a class of tensors is telegrad's: the text of a tensor begins with the name of a program's class."""
    return kind.__module__.partition(".")[0] in _OWN_PACKAGES


def contents(tensor: Tensor, indent: int) -> str:
    """Return the text of the elements alone, as they stand after ``indent`` characters."""
    ranges = edge_ranges(tensor._meta.shape)
    elements = read_array(tensor) if ranges is None else _read_edges(tensor, ranges)
    return format_elements(elements, dtype=tensor.dtype, shape=tuple(tensor._meta.shape), indent=indent)


def _read_edges(tensor: Tensor, ranges: EdgeRanges) -> np.ndarray[Any, Any]:
    """Return the elements at the edges of a large tensor, cut out on the server so that no others travel."""
    with no_grad():
        edges = tensor.detach()
        for dim, parts in enumerate(ranges):
            if len(parts) > 1:
                edges = function("cat")([edges.narrow(dim, start, stop - start) for start, stop in parts], dim)
    return read_array(edges)


def _repr_html(self: Tensor) -> str:
    """Return a table of the first elements, as HTML; no others travel."""
    with no_grad():
        head = self.detach()
        for dim, part in enumerate(head_of(self._meta.shape)):
            head = head.narrow(dim, 0, min(part.stop, self._meta.shape[dim]))
    return _html(self, read_array(head))


def _html(self: Tensor, head: np.ndarray[Any, Any]) -> str:
    fn = self.grad_fn
    notes = [f"grad_fn=<{fn.name()}>"] if fn else ["requires_grad"] if self.requires_grad else []
    if self._grad is not None:
        notes.append("has a gradient")
    return format_html(
        head, kind=type(self).__name__, shape=self._meta.shape, dtype=self.dtype, device=str(self.device), notes=notes
    )


def _repr_mimebundle(self: Tensor, include: Any = None, exclude: Any = None) -> dict[str, str]:
    """Return text and table of a tensor for IPython: both of one read where the tensor is small.

    Where the elements were not computed, the text says so, and the cell ends with the error.
    """
    try:
        if edge_ranges(self._meta.shape) is not None:
            return {"text/plain": repr(self), "text/html": _repr_html(self)}
        elements = read_array(self)
    except TelegradError as error:
        if not cells.raise_at_end(error):
            raise
        text = f"<{type(self).__name__} {self._meta} on {self.device}, not available>"
        return {"text/plain": text, "text/html": escape(text)}
    head = np.asarray(elements[head_of(self._meta.shape)])
    return {"text/plain": _text(self, elements), "text/html": _html(self, head)}


def _format(self: Tensor, spec: str) -> str:
    if spec and self._meta.ndim and type(self) is Tensor:
        raise ArgumentTypeError(f"format: {spec!r} formats one number, and {self._meta} has dimensions; use item()")
    return format(repr(self) if self._meta.ndim or type(self) is not Tensor else item(self), spec)


METHODS: dict[str, Any] = {
    "__repr__": _repr, "__format__": _format, "_repr_html_": _repr_html, "_repr_mimebundle_": _repr_mimebundle,
}  # fmt: skip
