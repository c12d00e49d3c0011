"""Graphs that backends of programs are given enter and leave regions of autocast, where the function does."""

from __future__ import annotations

from typing import Any

from .harness import exactly
from .recording_backend import Backend


def _mixed(lib: Any, x: Any) -> Any:
    with lib.autocast("cpu", dtype=lib.bfloat16):
        low = x @ x.t()
        with lib.autocast("cpu", enabled=False):
            full = x @ x.t()
        with lib.autocast("cpu", dtype=lib.float16), lib.no_grad():
            half = x @ x.t()
        again = low @ low
    with lib.autocast("cpu"):
        last = x @ x.t()
    return low + full, half, again, last, x.sum()


def test_regions_of_autocast_are_nodes(tg: Any) -> None:
    backend, x = Backend(), tg.arange(6.0).view(2, 3).requires_grad_()
    compiled = tg.compile(lambda x: _mixed(tg, x), backend=backend, fullgraph=True)
    for _ in range(3):
        assert exactly(tg, compiled(x)) == exactly(tg, _mixed(tg, x))
        assert not tg.is_autocast_enabled("cpu") and tg.is_grad_enabled()
    assert len(backend.calls) == 1
    enter, product, leave = "_enter_autocast", "matmul", "_exit_autocast"
    assert [call for call in backend.calls[0] if call in (enter, product, leave)] == [
        enter, product, enter, product, leave, enter, product, leave, product, product, leave,
    ]  # fmt: skip


def test_settings_that_change_without_a_region_end_a_graph(tg: Any) -> None:
    backend = Backend()

    def function(x: Any) -> Any:
        with tg.autocast("cpu"):
            low = x @ x
            tg.set_autocast_dtype("cpu", tg.float16)
            half = x @ x
        return low, half, x @ x

    compiled = tg.compile(function, backend=backend)
    for _ in range(3):
        assert [made.dtype for made in compiled(tg.ones(2, 2))] == [tg.bfloat16, tg.float16, tg.float32]
    with tg.autocast("cpu"):
        assert [made.dtype for made in compiled(tg.ones(2, 2))] == [tg.bfloat16, tg.float16, tg.bfloat16]
