"""How nested tensors are printed, as PyTorch does: jagged ones by sizes and offsets, strided ones by their elements."""

from __future__ import annotations

from typing import Any

from .tensor import NestedTensor


def summary(tensor: NestedTensor) -> str:
    """Return the text of a jagged tensor: its sizes and offsets, and none of its elements."""
    fn = tensor.grad_fn
    grad = f", grad_fn={fn}" if fn else ", requires_grad=True" if tensor.requires_grad else ""
    shape = ", ".join(map(str, tensor.shape))
    return f"NestedTensor(size=({shape}), offsets={tensor.offsets()}{grad}, contiguous={tensor.is_contiguous()})"


def elements(tensor: Any) -> str:
    """Return the text of all elements of the batch, one below the other."""
    parts = [part.detach() for part in tensor.detach().unbind()]
    texts = [repr(part.requires_grad_() if tensor.requires_grad else part) for part in parts]
    fn = tensor.grad_fn
    note = f", grad_fn=<{type(fn).__name__}>" if fn else ", requires_grad=True" if tensor.requires_grad else ""
    return "nested_tensor([\n" + ",\n".join(map(_indented, texts)) + f"\n]{note})"


def _indented(text: str) -> str:
    return "\n".join([f"  {line}" for line in text.split("\n")])
