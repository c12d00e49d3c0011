"""Work on bare arrays that NumPy and CuPy do differently, or that neither does fast. Knows no values."""

from __future__ import annotations
