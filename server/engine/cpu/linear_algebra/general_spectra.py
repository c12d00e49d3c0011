"""Eigenvalues of general real matrices by compiled loops, written into the results' memory.

The generic kernels compute where loops do not, and raise what there is to raise.
"""

from __future__ import annotations

from typing import Any

from server.engine import keys
from server.engine.array_library import host_small_matrices as small
from server.engine.operators import Request
from server.engine.ops.linear_algebra import spectra as generic
from server.engine.registry import prepares
from server.engine.value import Launch
from telegrad_protocol.meta import Meta
from telegrad_protocol.ops.linear_algebra import spectra

from .matrices import launch_of

Array = Any


def _are_taken(A: Meta) -> bool:
    return A.numel > 0 and not A.dtype.is_complex


@prepares(spectra.eig, keys.CPU)
def eig(request: Request) -> Launch | None:
    return launch_of(generic.eig, (), request, small.eig_into) if _are_taken(request.args[0]) else None


@prepares(spectra.plain_eigvals, keys.CPU)
def plain_eigvals(request: Request) -> Launch | None:
    def write(a: Array, values: Array) -> bool:
        return small.eig_into(a, values, None)

    return launch_of(generic.plain_eigvals, (), request, write) if _are_taken(request.args[0]) else None
