"""Steps around another operation that one kernel of a device executes: what they read and make, told by roles.

A normalization reads a sum that nobody has to make before it, or gives its result in half precision besides; casts of
many tensors are one launch; products take what is computed of their rows before and of their results after. What makes
kernels of them is registered with ``fused``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from telegrad_protocol.meta import Device, Meta

NORM: Final = "norm"
"""A normalization with an addition before it and a cast after it.

It reads ``input``, ``other`` where both are added, ``weight`` and ``bias``; it makes ``total``, ``out``, ``copy``,
which is ``out`` in half precision, ``mean`` and ``rstd``.
"""
GRADIENTS: Final = "norm gradients"
"""The gradients of a normalization, with a cast before them, and an addition and a cast after them.

It reads ``grad_out``, ``input``, ``mean``, ``rstd``, ``weight``, and ``other``, which is added to the input's gradient;
it makes ``grad_input`` with that sum, ``copy``, which is the same in half precision, ``grad_weight``, ``grad_bias``,
and ``sums``, which is ``copy``, or ``grad_input`` where there is none, added up over all rows.
"""
CASTS: Final = "casts"
"""Casts from one type to another; what is read and made is numbered."""
SUMS: Final = "column sums"
"""Element-wise steps and the sum of one of their results over all but its last dimension.

Its attributes are the kernel of the element-wise steps (``fused.Kernel``), and the number of that result among what the
kernel makes. What is read and made is numbered as there; the sum is ``sums``.
"""
PARTS: Final = "attention gradients as parts"
"""The gradients of attention's three operands, side by side in the last dimension of one tensor.

It reads what ``_attention_backward`` reads, and makes ``out``. Its attributes are whether the mask is causal, the
scale, and which operand's gradient each part is: 0 for the query, 1 for the key, 2 for the value.
"""
PRODUCTS: Final = "products"
"""Products of the same few rows, with a normalization of the rows before and element-wise steps after.

It reads ``input``, ``scale`` and ``shift`` of the normalization, and what its parts name, which make ``out`` with
numbers: see ``product_parts``.
"""
WEIGHTS: Final = "weight gradients"
"""The gradients of the weights and biases of several layers.

It reads each ``grad`` and ``input`` with a number, and makes the ``weight`` with that number and, where the layer has
one, the ``bias``.
"""
WRITES: Final = "writes"
"""Copies of slices to the same places of several tensors, which the kernel has only if these places are there.

It reads ``index``, and writes each ``source`` with a number into the ``target`` with the same number.
"""


class Joined(NamedTuple):
    """One kernel: its kind, the operation that gave the kind, that operation's attributes, and metas by role."""

    kind: str
    name: str
    attributes: tuple[Any, ...]
    loads: tuple[tuple[str, Meta], ...]
    news: tuple[tuple[str, Meta], ...]

    @property
    def device(self) -> Device:
        """Where it runs."""
        return self.loads[0][1].device

    @property
    def roles(self) -> Mapping[str, Meta]:
        """All that it reads and makes."""
        return dict((*self.loads, *self.news))

    def __repr__(self) -> str:
        loads = ", ".join([f"{role} {meta!r}" for role, meta in self.loads])
        news = ", ".join([f"{role} {meta!r}" for role, meta in self.news])
        return f"{self.kind} {self.name}{self.attributes!r} of {loads}\nreturn {news}"
