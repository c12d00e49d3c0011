"""Who gets kernels of its own from a real server, and on which worker."""

from __future__ import annotations

import pytest

import telegrad as tg
from telegrad_protocol.errors import NotAllowedError
from tests.end_to_end.server_process import ServerProcess

TEXT = 'extern "C" __global__ void one(float* x) { x[threadIdx.x] = 1; }'


def _launch() -> None:
    tg.cuda.RawKernel(TEXT, "one")((1,), (32,), (tg.zeros(32, device="cuda"),))
    tg.cuda.synchronize()


def test_sessions_that_ask_get_a_worker_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"TELEGRAD_DEVICES": "cuda:0", "TELEGRAD_ALLOW_KERNELS": "1"}
    with ServerProcess("tests.support.serve", **settings) as server, tg.connect(server.url) as shared:
        with pytest.raises(NotAllowedError, match=r"connect\(kernels=True\)"):
            _launch()
        assert tg.ones(3).sum().item() == 3, "the session goes on"
        with tg.connect(server.url, kernels=True) as own:
            assert own.isolation == "session" and own.worker != shared.worker
            _launch()
        monkeypatch.setenv("TELEGRAD_KERNELS", "1")
        with tg.connect(server.url) as own:
            assert own.isolation == "session"
            _launch()
        with tg.connect(server.url, kernels=False) as plain:
            assert plain.isolation == "shared"


def test_servers_refuse_it_unless_the_operator_allows_it() -> None:
    with ServerProcess("tests.support.serve", TELEGRAD_DEVICES="cuda:0") as server:
        with pytest.raises(NotAllowedError, match="TELEGRAD_ALLOW_KERNELS"):
            tg.connect(server.url, kernels=True)
        with tg.connect(server.url):
            assert tg.ones(3).sum().item() == 3


def test_operators_may_have_kernels_share_workers() -> None:
    with (
        ServerProcess("tests.support.serve", TELEGRAD_DEVICES="cuda:0", TELEGRAD_ALLOW_KERNELS="shared") as server,
        tg.connect(server.url) as other,
        tg.connect(server.url, kernels=True) as connection,
    ):
        assert connection.isolation == "shared" and connection.worker == other.worker
        _launch()
