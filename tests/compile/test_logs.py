"""What compiled functions tell: PyTorch's logs, and what ``explain`` knows of programs after some calls."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from ..end_to_end.server_process import clean_environment


@pytest.fixture
def logs(tg: Any) -> Iterator[Any]:
    """``torch._logging``, which tells nothing before and after."""
    from telegrad.compiler import logs

    yield logs
    logs.set_logs()
    tg.compiler.reset()


def _function(tg: Any) -> Any:
    def function(x: Any) -> Any:
        y = (x.sin() * 2 + 1).exp()
        if y.sum().item() > 0:  # where the break is
            y = y.cos() + 1
        return (y * 2 - x).tanh()

    return tg.compile(function)


def _told(capfd: pytest.CaptureFixture[str], artifact: str) -> list[str]:
    """Return the lines of an artifact, which all have PyTorch's prefix."""
    lines = [
        re.match(r"V\d{4} [\d:.]+ \d+ \w+\.py:\d+\] \[__(\w+)\] (.*)", line)
        for line in capfd.readouterr()[1].splitlines()
    ]
    assert all(lines)
    return [match[2] for match in lines if match and match[1] == artifact]


def test_graph_breaks_are_told_once_with_their_stack(tg: Any, logs: Any, capfd: pytest.CaptureFixture[str]) -> None:
    logs.set_logs(graph_breaks=True)
    function = _function(tg)
    for _ in range(3):
        function(tg.ones(3)).tolist()
    first, reason, heading, *stack = _told(capfd, "graph_breaks")
    line = function._torchdynamo_orig_callable.__code__.co_firstlineno + 2
    assert first == f"Graph break in user code at {__file__}:{line}"
    assert reason == "Graph Break Reason: the elements of a tensor are read" and heading == "User code traceback:"
    assert "in function" in stack[-3] and "# where the break is" in stack[-2]


def test_new_programs_and_specialisations_have_reasons(
    tg: Any, logs: Any, capfd: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    logs.set_logs(recompiles=True, fusion=True, output_code=True, perf_hints=True, guards=True, graph_code=True)
    function = _function(tg)
    for x in [tg.ones(3)] * 4 + [tg.ones(4)] * 2 + [tg.full((4,), float("nan"))] * 3:
        function(x).tolist()
    text = capfd.readouterr()[1]
    told = {name: re.findall(rf"\[__{name}\] (.*)", text) for name in logs.TOLD}
    where = rf"function _function\.<locals>\.function in {re.escape(__file__)}:\d+"
    assert re.fullmatch(rf"New specialisation of program 1 of {where}", told["recompiles"][0])
    assert told["recompiles"][1] == "    - input 0 is float32[4] on cpu"
    assert any(re.fullmatch(rf"New program 3 of {where}", line) for line in told["recompiles"])
    assert "    since operation 0 is mul, and was cos" in told["recompiles"]
    assert (
        "    - fused: sin, mul, add, exp" in told["fusion"] and "    - input 0 is float32[3] on cpu" in told["guards"]
    )
    assert "    exp" in told["graph_code"] and told["perf_hints"] == []
    assert any("%1 = sin(%0)" in line for line in told["output_code"])
    assert any("define void" in line for line in told["output_code"])


def test_a_program_that_goes_on_as_instructions_has_a_hint(
    tg: Any, logs: Any, capfd: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    logs.set_logs(modules={"perf_hints": True})

    @tg.compile
    def function(x: Any) -> Any:
        return x.requires_grad_().sin().cos() * 2

    for _ in range(4):
        function(tg.ones(2))
    assert _told(capfd, "perf_hints")[-1] == "    since an input has got another history"


def test_settings_are_checked_as_pytorch_does(logs: Any) -> None:
    with pytest.raises(TypeError, match=r"set_logs\(\) got an unexpected keyword argument 'nonsense'"):
        logs.set_logs(nonsense=True)
    with pytest.raises(ValueError, match="Expected bool to enable artifact graph_breaks, received x"):
        logs.set_logs(graph_breaks="x")
    with pytest.raises(ValueError, match="Unrecognized log or artifact name passed to set_logs: nonsense"):
        logs.set_logs(modules={"nonsense": 10})
    with pytest.raises(ValueError, match="Unrecognized log level for log dynamo: True, valid level values are: 50,40"):
        logs.set_logs(dynamo=True)
    logs.set_logs(dynamo=logging.INFO, bytecode=True, modules={"torch.nn": logging.DEBUG})
    assert logs.enabled == set()
    logs.set_logs(all=logging.DEBUG)
    assert logs.enabled == set(logs.TOLD)


def _run(text: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", text]
    return subprocess.run(command, env=clean_environment(**variables), capture_output=True, text=True, check=False)


def test_the_variable_chooses_and_outranks_the_program() -> None:
    text = "from telegrad.compiler import logs; logs.set_logs(guards=True); print(sorted(logs.enabled))"
    done = _run(text, TORCH_LOGS="+dynamo,graph_breaks,kernel_code,-guards,torch._inductor.scheduler")
    assert done.stdout == "['graph_breaks', 'output_code']\n", done.stderr
    assert "ignoring call to set_logs" in done.stderr
    done = _run("import telegrad; telegrad.compile", TORCH_LOGS="graph_breaks,nonsense")
    assert "Invalid log settings: graph_breaks,nonsense, must be a comma separated list" in done.stderr
    assert 'try TORCH_LOGS="help"\nValid settings:\nall, annotation' in done.stderr


def test_explain_knows_what_programs_have_become(tg: Any) -> None:
    from telegrad.compiler import dynamo

    function = _function(tg)
    assert dynamo.explain(function)(tg.ones(3)).programs == []
    for _ in range(3):
        function(tg.ones(3)).tolist()
    explained = dynamo.explain(function)(tg.ones(3))
    first, second = explained.programs
    (one,) = first.specialisations
    assert (one.kernels_before, one.kernels_after, one.fused) == (5, 2, [["sin", "mul", "add", "exp"]])
    assert one.bytes_before > one.bytes_after > 0 and "sin" in one.text and second.instructions >= 5
    assert "program 1: input 0 is float32[3] on cpu" in explained.out_guards
    text = str(explained)
    assert "Out Guards:\n  Guard 1: program 1: input 0 is float32[3] on cpu" in text
    assert "5 kernels before fusion, 2 after" in text
