"""Nested tensors: batches of tensors of other sizes, as handles made of a few ordinary tensors in the client.

``tensor`` has the class of the jagged layout, ``strided`` that of the older one. ``functions`` is the table of
operations that take jagged tensors, ``strided_table`` that of the other layout; the other modules enter theirs in
them. A program that has no nested tensor never imports this package.
"""

from __future__ import annotations
