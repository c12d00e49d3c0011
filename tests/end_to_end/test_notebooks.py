"""Cells of a real kernel: errors belong to cells and name them; tensors are shown as tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from .server_process import ServerProcess, clean_environment

nbformat = pytest.importorskip("nbformat", reason="machines with a GPU have no Jupyter")
NotebookClient = pytest.importorskip("nbclient").NotebookClient
CELLS = {
    "connect": "import telegrad as tg\nconnection = tg.connect()\nx = tg.arange(6.0).reshape(2, 3)",
    "define": "def pick(t, index):\n    return t.index_select(0, tg.tensor([index]))",
    "trips": "print(tg.wire_stats().round_trips)",
    "late": "y = pick(x, 7)\nz = x + 1",
    "after": "z.tolist()",
    "use": "y.tolist()",
    "read": "y = pick(x, 9)\ny.tolist()",
    "module level": "x.gather(0, tg.tensor([[5]]))",
    "show failed": "pick(x, 8)",
    "shape": "x @ x",
    "foreign": "class Mine(tg.nn.Module):\n    def forward(self, x):\n        raise ValueError('mine')\n\nMine()(x)",
    "two": "y = pick(x, 6)\n1 / 0",
    "slow": "import os, signal\nos.kill(int(os.environ['WORKER']), signal.SIGSTOP)\nb = pick(x, 5000)",
    "slow result": "os.kill(int(os.environ['WORKER']), signal.SIGCONT)\nx.sum().item()",
    "show": "(x * 2).requires_grad_()",
    "summary": "tg.cuda.memory_summary()",
    "idle": "connection.disconnect()",
}


class Executed:
    """The outputs of a notebook's cells, by the names of ``CELLS``."""

    def __init__(self, notebook: Any) -> None:
        self._cells = dict(zip(CELLS, notebook.cells, strict=True))

    def number(self, name: str) -> int:
        """Return the number that the kernel gave to a cell."""
        return int(self._cells[name].execution_count)

    def errors(self, name: str) -> list[Any]:
        """Return the errors that a cell shows."""
        return [output for output in self._cells[name].outputs if output.output_type == "error"]

    def traceback(self, name: str) -> str:
        """Return the text of the one error that a cell shows."""
        (error,) = self.errors(name)
        return re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(error.traceback))

    def printed(self, name: str) -> str:
        """Return what a cell has printed."""
        return "".join(output.text for output in self._cells[name].outputs if output.output_type == "stream")

    def shown(self, name: str) -> Any:
        """Return the representations of a cell's value by their types."""
        (data,) = [output.data for output in self._cells[name].outputs if output.output_type == "execute_result"]
        return data


@pytest.fixture(scope="module")
def executed(shared_server: ServerProcess) -> Iterator[Executed]:
    """All cells, executed by a kernel on the shared server, one after the other whatever fails."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in CELLS.values()])
    worker = shared_server.worker
    environment = clean_environment(TELEGRAD_URL=shared_server.url, TELEGRAD_CELL_SECONDS="2", WORKER=str(worker.pid))
    try:
        NotebookClient(notebook, timeout=200, kernel_name="python3", allow_errors=True).execute(env=environment)
    finally:
        worker.resume()
    yield Executed(notebook)


def test_a_failure_after_the_last_line_of_a_cell_is_the_cells_own(executed: Executed) -> None:
    text = executed.traceback("late")
    assert executed.errors("late")[0].ename == "IndexOutOfRangeError"
    assert f"caused by Cell In[{executed.number('define')}], line 2, in pick" in text
    assert "ipykernel" not in text


@pytest.mark.parametrize("name", ["after", "use"])
def test_what_a_failure_kept_from_being_computed_names_it_in_later_cells(executed: Executed, name: str) -> None:
    assert executed.errors(name)[0].ename == "NotComputedError"
    assert f"failed at Cell In[{executed.number('define')}], line 2, in pick" in executed.traceback(name)


def test_the_end_of_a_cell_counts_as_no_round_trip(executed: Executed) -> None:
    assert executed.printed("trips") == "0\n"


def test_a_read_names_its_own_line_and_the_one_that_failed(executed: Executed) -> None:
    text = executed.traceback("read")
    assert "----> 2 y.tolist()" in text
    assert f"caused by Cell In[{executed.number('define')}], line 2, in pick" in text
    assert "telegrad/" not in text


def test_a_line_of_a_cell_is_named_as_ipython_names_it(executed: Executed) -> None:
    assert f"Cell In[{executed.number('module level')}], line 1\n" in executed.traceback("module level") + "\n"


def test_a_value_that_cannot_be_shown_fails_its_cell_once(executed: Executed) -> None:
    text = executed.traceback("show failed")
    assert text.splitlines()[-1] == f"  caused by Cell In[{executed.number('define')}], line 2, in pick"
    assert executed.shown("show failed")["text/plain"] == "<Tensor float32[1,3] on cpu, not available>"


@pytest.mark.parametrize(("name", "error"), [("shape", "ShapeError"), ("foreign", "ValueError")])
def test_frames_of_telegrad_are_left_out(executed: Executed, name: str, error: str) -> None:
    assert executed.errors(name)[0].ename == error
    text = executed.traceback(name)
    assert "telegrad/" not in text and "telegrad_protocol" not in text
    assert text.count("Cell In[") == (2 if name == "foreign" else 1)


def test_a_cell_that_fails_by_itself_shows_what_else_failed(executed: Executed) -> None:
    assert [error.ename for error in executed.errors("two")] == ["ZeroDivisionError", "IndexOutOfRangeError"]


def test_a_cell_whose_work_goes_on_does_not_wait_for_it(executed: Executed) -> None:
    assert not executed.errors("slow")
    assert executed.errors("slow result")[0].ename == "IndexOutOfRangeError"


def test_a_tensor_is_shown_as_text_and_table(executed: Executed) -> None:
    shown = executed.shown("show")
    assert shown["text/plain"].startswith("tensor([[ 0.,  2.,  4.],\n")
    assert "<td>10.</td>" in shown["text/html"] and "requires_grad" in shown["text/html"]


def test_the_memory_summary_is_shown_as_lines(executed: Executed) -> None:
    shown = executed.shown("summary")
    assert shown["text/plain"].startswith("|====") and shown["text/html"].startswith("<pre>|====")
    assert not executed.errors("idle")
