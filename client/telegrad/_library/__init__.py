"""Operators with schemas: what ``telegrad.ops`` shows, and what ``telegrad.library`` defines and overrides.

``keys`` names the dispatch keys. ``operator_entry`` is one overload with its kernels, ``overloads`` what programs call,
``binding`` fits arguments to a schema, and ``dispatch`` selects the kernel of a call. ``registry`` keeps all overloads
by name; ``aten`` has the operators that telegrad itself has, under PyTorch's names, and ``overriding`` lets a program's
kernels answer these. ``custom_ops`` and ``libraries`` are the two ways to define operators. Nothing here runs for a
program that defines no operator and names none.
"""

from __future__ import annotations
