"""The README's program runs as it stands there, and waits as often as it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

README = Path(__file__).resolve().parents[2] / "README.md"


def test_the_program_of_the_readme_waits_once(
    tg: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    monkeypatch.setattr(tg, "connect", lambda *_, **__: None)  # the fixture's session takes the server's place
    before = tg.wire_stats().round_trips
    exec(program, {})  # noqa: S102 - it is ours
    assert tg.wire_stats().round_trips == before + 1
    assert 1.5 < float(capsys.readouterr().out) < 3.5, "the loss of a guess among ten classes is log(10)"
