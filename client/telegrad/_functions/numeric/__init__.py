"""Functions on elements that are short programs of operations: statistics, calculus, splitting, copies of views."""

from __future__ import annotations
