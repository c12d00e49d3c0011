"""Sparse tensors: handles made of a few ordinary tensors, and what operations mean for them.

``tensor`` has the class, ``building`` the constructors, ``conversions`` changes of layout. ``functions`` is the table
of operations that take sparse tensors; the other modules enter theirs in it. A program that has no sparse tensor
never imports this package.
"""

from __future__ import annotations
