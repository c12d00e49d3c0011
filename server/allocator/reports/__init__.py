"""What people look at, in PyTorch's formats: statistics, summary, snapshot, history.

Reads the layers below and changes none of their blocks.
"""

from __future__ import annotations
