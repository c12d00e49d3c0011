"""What matrix products need is loaded beside the worker's thread, and a library that refuses harms nobody."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from typing import Any

import pytest

from server.engine.cuda import first_products, first_uses
from server.engine.cuda.gemm import cublaslt
from server.library_choices import library_choices


def test_a_library_that_refuses_is_told_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError("no such library")

    monkeypatch.setattr(first_uses, "current_device", lambda device: nullcontext())
    monkeypatch.setattr(cublaslt, "is_available", lambda: True)
    monkeypatch.setattr(first_products, "Product", refuse)
    monkeypatch.setattr(first_uses, "architecture", lambda device: "sm_90")
    with caplog.at_level(logging.WARNING):
        first_uses.begin(0).join()
    assert "no such library" in caplog.text


@pytest.mark.gpu
def test_each_type_is_asked_about_beside(caplog: pytest.LogCaptureFixture) -> None:
    before = library_choices.asked
    with caplog.at_level(logging.WARNING):
        first_uses.begin(0).join()
    assert not caplog.records and library_choices.asked == before + 3
