"""The examples run as they are, against real servers, and show what their texts say."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
ROOT = EXAMPLES.parent


@pytest.fixture
def environment() -> dict[str, str]:
    """Scripts import the tree that is tested."""
    tree = os.pathsep.join([str(ROOT / "client"), str(ROOT)])
    return {**os.environ, "PYTHONPATH": tree}


def test_the_digits_example_learns_without_waiting(environment: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "digits.py")], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    accuracy = re.search(r"^test accuracy (0\.\d\d|1\.00)$", done.stdout, re.MULTILINE)
    assert accuracy is not None and float(accuracy[1]) >= 0.95, done.stdout
    steps, trips = re.search(r"^(\d+) steps: ([\d.]+) round trips", done.stdout, re.MULTILINE).groups()  # type: ignore[union-attr]
    assert round(float(trips) * int(steps)) == 30, "one round trip an epoch, to show the loss"
    assert "PyTorch CUDA memory summary" in done.stdout or "memory summary" in done.stdout
    assert "training" in done.stderr, "the progress bar"


def test_the_notebook_runs(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("PYTHONPATH", environment["PYTHONPATH"])
    monkeypatch.setenv("TELEGRAD_CELL_SECONDS", "60")
    notebook = nbformat.read(EXAMPLES / "first-steps.ipynb", as_version=4)
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    shown = json.dumps([cell.get("outputs") for cell in notebook.cells])
    assert "round trips so far: 0" in shown
    (failed,) = [
        (cell, output) for cell in notebook.cells for output in cell.get("outputs", []) if output.output_type == "error"
    ]
    assert failed[1].evalue.startswith("embedding: index 7 is out of range")
    assert f"caused by Cell In[{failed[0].execution_count}], line 3" in failed[1].evalue
    assert f"never computed: embedding failed at Cell In[{failed[0].execution_count}], line 3" in shown


@pytest.fixture
def server(environment: dict[str, str]) -> Iterator[str]:
    """A server process on a free port."""
    command = [sys.executable, "-m", "server", "--host", "127.0.0.1", "--port", "0", "--devices", "cpu", "--announce"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"]
        process.terminate()


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed on this machine")
def test_the_curl_example_runs(server: str, environment: dict[str, str]) -> None:
    done = subprocess.run(
        [str(EXAMPLES / "curl.sh"), server], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert '"shape":[2,2]' in done.stdout.replace(" ", "")
