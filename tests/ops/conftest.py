"""The engine on a GPU, for tests of its kernels; a test that wants its session's modes asks for ``active``, too."""

from __future__ import annotations

import pytest

from .adapters import EngineAdapter


@pytest.fixture(scope="module")
def gpu(cuda_device: str) -> EngineAdapter:
    """The engine on one GPU."""
    return EngineAdapter(cuda_device)


@pytest.fixture
def active(gpu: EngineAdapter) -> None:
    """Let the engine's modes be those of the test."""
    gpu.activate()
