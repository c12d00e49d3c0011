"""What a program shows of an error that nobody caught: its own lines, and telegrad's only where they matter."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from .server_process import ServerProcess

Start = Callable[..., "subprocess.Popen[str]"]

PROGRAM = """
import sys, threading
import telegrad as tg

class Model(tg.nn.Module):
    def forward(self, x):
        return action(x)

def wrong_shape(x):
    return x @ x

def wrong_index(x):
    return x.index_select(0, tg.tensor([5])).tolist()

def own_mistake(x):
    return x + missing

def chained(x):
    try:
        x @ x
    except RuntimeError as error:
        raise ValueError("chained") from error

def defect(x):
    tg.Tensor.size.__globals__["operator"] = None
    return x.size(0)

with tg.connect(sys.argv[1]):
    x = tg.ones(2, 3)
    action = globals()[sys.argv[2]]
    if len(sys.argv) > 3:
        thread = threading.Thread(target=Model(), args=(x,))
        thread.start()
        thread.join()
    else:
        Model()(x)
"""


def _errors(start_program: Start, *args: str, **variables: str) -> str:
    return str(start_program(PROGRAM, *args, **variables).communicate()[1])


@pytest.mark.parametrize(
    ("action", "last"),
    [
        (
            "wrong_shape",
            "telegrad.errors.ShapeError: matmul: cannot multiply float32[2,3] by float32[2,3]: mat1 and mat2 shapes "
            "cannot be multiplied (2x3 and 2x3)",
        ),
        ("wrong_index", "  caused by <string>:13 in wrong_index"),
        ("own_mistake", "NameError: name 'missing' is not defined"),
        ("chained", "ValueError: chained"),
    ],
)
def test_frames_of_telegrad_are_left_out(server: ServerProcess, start_program: Start, action: str, last: str) -> None:
    errors = _errors(start_program, server.url, action)
    assert errors.rstrip().endswith(last)
    assert "/telegrad" not in errors
    assert f"in {action}\n" in errors and "in forward\n" in errors


def test_so_are_those_of_an_error_in_a_thread(server: ServerProcess, start_program: Start) -> None:
    errors = _errors(start_program, server.url, "wrong_shape", "thread")
    assert "Exception in thread" in errors and "in wrong_shape\n" in errors
    assert "/telegrad" not in errors


def test_a_variable_shows_them_all(server: ServerProcess, start_program: Start) -> None:
    errors = _errors(start_program, server.url, "wrong_shape", TELEGRAD_FULL_TRACEBACK="1")
    assert "/telegrad/nn/modules/module.py" in errors and "/telegrad_protocol/ops/linear_algebra/linalg.py" in errors


def test_a_defect_of_telegrad_is_shown_whole(server: ServerProcess, start_program: Start) -> None:
    errors = _errors(start_program, server.url, "defect")
    assert "/telegrad/_tensor/tensor.py" in errors and "AttributeError" in errors
