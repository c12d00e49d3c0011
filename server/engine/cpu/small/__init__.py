"""Loops in C over few elements, for which NumPy's calls and its arrays take longer than the elements.

Importing it registers them. Each module works out, once per plan, which loop of ``server.native`` computes an operation
on operands of given metas, and what numbers that needs. NumPy computes what they do not take, and everything where no
compiler is.
"""

from __future__ import annotations

from . import counted, elementwise, moving, places, products, sorting

__all__ = ["counted", "elementwise", "moving", "places", "products", "sorting"]
