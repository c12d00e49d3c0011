"""CUDA's kernels, registered only while tests look at them: without CuPy, other tests simulate GPUs on the host.

A test file that imports modules of ``server.engine.cuda`` calls ``withdraw`` after its imports, and uses the fixture
``registrations``, which it imports.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest

from server.engine import keys
from server.engine.cuda.texts import DEVICE
from server.engine.operators import OPERATORS, Factory, Preparer
from server.engine.programs.fused import FUSERS, JOINERS, Fuser, Joiner
from telegrad_protocol.meta import Device, Meta

_withdrawn: dict[str, list[Preparer]] = {}
"""Factories of prepared kernels for CUDA by operation, while no test looks at them."""
_withdrawn_transfers: dict[str, Factory] = {}
"""The same for copies between devices."""
_withdrawn_fusers: list[Fuser] = []
"""What makes fused kernels for CUDA, while no test looks at it."""
_withdrawn_joiners: dict[tuple[int, str], Joiner] = {}
"""What makes kernels of joined steps for CUDA, while no test looks at it."""


def withdraw() -> None:
    """Take CUDA's factories away from the operators, where CuPy is not there to launch what they make."""
    if find_spec("cupy") is None:
        if keys.CUDA in FUSERS:
            _withdrawn_fusers.append(FUSERS.pop(keys.CUDA))
        for place in [place for place in JOINERS if place[0] == keys.CUDA]:
            _withdrawn_joiners[place] = JOINERS.pop(place)
        for name, operator in OPERATORS.items():
            _withdrawn.setdefault(name, []).extend(operator.preparers.pop(keys.CUDA, []))
            if keys.CUDA in operator.transfers:
                _withdrawn_transfers[name] = operator.transfers.pop(keys.CUDA)


def on_a_gpu(item: Any) -> Any:
    """What a call on the CPU is given, as it would be given on the described GPU."""
    if isinstance(item, Meta):
        return Meta.of(item.shape, item.dtype, DEVICE, item.strides, item.offset)
    if isinstance(item, tuple):
        return tuple(map(on_a_gpu, item))
    return DEVICE if isinstance(item, Device) else item


@pytest.fixture(autouse=True)
def registrations() -> Iterator[None]:
    """CUDA's factories are registered during a test."""
    for name, preparers in _withdrawn.items():
        if preparers:
            OPERATORS[name].preparers.setdefault(keys.CUDA, []).extend(preparers)
    for name, factory in _withdrawn_transfers.items():
        OPERATORS[name].transfers[keys.CUDA] = factory
    _withdrawn.clear()
    _withdrawn_transfers.clear()
    if _withdrawn_fusers:
        FUSERS[keys.CUDA] = _withdrawn_fusers.pop()
    JOINERS.update(_withdrawn_joiners)
    yield
    withdraw()
