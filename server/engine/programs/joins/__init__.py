"""Steps that are joined although they are not element-wise: what stands around normalizations, and casts.

Finds and describes them in groups of steps that ``grouping`` has made. Knows no device.
"""

from __future__ import annotations
