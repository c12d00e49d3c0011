"""Recorded lists of operations, below autograd: how they are written down, optimised and executed.

``graph`` has the list and its plain execution, which needs nothing else. ``specialise`` optimises a list for operands
of given metas. What is here knows neither the wire nor sessions; kernels of fused operations are made by the devices'
packages, which register with ``fused``.
"""

from __future__ import annotations
