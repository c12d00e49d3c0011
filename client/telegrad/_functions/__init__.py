"""Functions and methods written by hand, which combine operations with what only the client knows.

A module lists in ``METHODS`` what ``telegrad._attach`` makes methods of ``Tensor``; ``telegrad`` re-exports the
functions. Those of neural networks are in ``nn.functional``.
"""

from __future__ import annotations
