"""``hub.load`` and its like: a folder's ``hubconf.py`` is run as PyTorch runs it, and no code is ever fetched."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from telegrad import hub
from telegrad_protocol.errors import NotSupportedError

_CODE = '''
from os.path import join
import {beside} as beside
dependencies = ["math"]
number = 4
def net(first, second=2):
    """Say what was given."""
    import {late} as late
    return first, second, beside.NUMBER, late.NUMBER
def _hidden():
    return "hidden"
class Model:
    pass
'''


@pytest.fixture
def folder(tmp_path: Path) -> Any:
    beside, late = (f"{part}_{tmp_path.name}".replace("-", "_") for part in ("beside", "late"))
    (tmp_path / f"{beside}.py").write_text("NUMBER = 3")
    (tmp_path / f"{late}.py").write_text("NUMBER = 5")
    (tmp_path / "hubconf.py").write_text(_CODE.format(beside=beside, late=late))
    yield tmp_path
    for name in (beside, late):
        sys.modules.pop(name, None)


def _outcome(act: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What is returned, or the type and the text of what is raised."""
    try:
        return act(*args, **kwargs)
    except Exception as error:
        kind = next(kind for kind in type(error).__mro__ if kind.__module__ == "builtins")
        return kind.__name__, str(error)


def test_functions_of_a_folder_are_called_as_pytorch_calls_them(folder: Path) -> None:
    path = list(sys.path)
    assert hub.load(str(folder), "net", 1, source="local", trust_repo=True) == (1, 2, 3, 5)
    for name, args, options in [
        ("net", (1,), {"second": 7}), ("_hidden", (), {}), ("number", (), {}), ("absent", (), {}), ("net", (), {}),
    ]:  # fmt: skip
        mine, other = (
            _outcome(lib.load, str(folder), name, *args, source="Local", **options) for lib in (hub, torch.hub)
        )
        assert mine == other, name
    assert type(hub.load(folder, "Model", source="local")).__name__ == "Model"
    assert hub.list(folder) == ["Model", "join", "net"]
    assert hub.help(folder, "net") == "Say what was given."
    assert sys.path == path and "hubconf" not in sys.modules


def test_what_a_folder_lacks_is_told_as_pytorch_tells_it(tmp_path: Path) -> None:
    kinds = [_outcome(lib.load, str(tmp_path), "net", source="local") for lib in (hub, torch.hub)]
    assert kinds[0] == kinds[1] and kinds[0][0] == "FileNotFoundError"
    (tmp_path / "hubconf.py").write_text("dependencies = ['no_such_a', 'math', 'no_such_b']\ndef net(): pass\n")
    texts = [_outcome(lib.load, str(tmp_path), "net", source="local") for lib in (hub, torch.hub)]
    assert texts[0] == texts[1] == ("RuntimeError", "Missing dependencies: no_such_a, no_such_b")
    texts = [_outcome(lib.load, str(tmp_path), "net", source="web") for lib in (hub, torch.hub)]
    assert texts[0] == texts[1]
    with pytest.raises(ValueError, match="name of a function, not int"):
        hub.load(tmp_path, 3, source="local")  # type: ignore[arg-type]


def test_code_of_repositories_is_refused_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.socket.connect", lambda *given: pytest.fail("something was fetched"))
    for call, instead in [
        (lambda: hub.load("owner/repo", "net", 1), r"hub\.load\(folder, 'net', \.\.\., source='local'\)"),
        (lambda: hub.list(str(tmp_path / "owner/repo")), r"hub\.list\(folder\)"),
        (lambda: hub.help("owner/repo:main", "net"), r"hub\.help\(folder, model\)"),
    ]:
        with pytest.raises(NotSupportedError, match=f"code is never fetched.*owner/repo.*{instead}"):
            call()
