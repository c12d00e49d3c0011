"""Programs with the profiler as articles print them, run by ``telegrad run``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ON_GPU = """
import torch
import torch.nn as nn
from torch.profiler import profile, record_function, ProfilerActivity

b = torch.randn(10000, 10000).cuda()

def square_2(a):
    return a * a

def square_3(a):
    return a ** 2

with torch.autograd.profiler.profile(use_cuda=True) as prof:
    torch.square(b)

print(prof.key_averages().table(sort_by="cuda_time_total", row_limit=10))

with torch.autograd.profiler.profile(use_cuda=True) as prof:
    square_2(b)

print(prof.key_averages().table(sort_by="cuda_time_total", row_limit=10))

with torch.autograd.profiler.profile(use_cuda=True) as prof:
    square_3(b)

print(prof.key_averages().table(sort_by="cuda_time_total", row_limit=10))

data = torch.randn(1, 1, 32, 32).cuda()
with torch.autograd.profiler.profile(use_cuda=True) as prof:
  output = torch.nn.Linear(32, 32).cuda()(data)
print(prof.key_averages().table(sort_by="cuda_time_total", row_limit=10))

def trace_handler(prof):
    print(prof.key_averages().table(
        sort_by="self_cuda_time_total", row_limit=-1))
    prof.export_chrome_trace("test_trace_" + str(prof.step_num) + ".json")

with torch.profiler.profile(
    activities=[
        torch.profiler.ProfilerActivity.CPU,
        torch.profiler.ProfilerActivity.CUDA,],
    schedule=torch.profiler.schedule(
        wait=1,
        warmup=1,
        active=2,
        repeat=1),
    on_trace_ready=trace_handler
    ) as p:
        for iter in range(10):
            output = torch.nn.Linear(32, 32).cuda()(torch.randn(1, 1, 32, 32).cuda())
            # send a signal to the profiler that the next iteration has started
            p.step()
"""
ANYWHERE = """
import torch
model, x, target = torch.nn.Linear(4, 2), torch.randn(8, 4), torch.randn(8, 2)
from torch.profiler import profile, record_function, ProfilerActivity
with profile(
    activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
    record_shapes=True,
    with_stack=False,
) as prof:
    with record_function("forward"):
        y = model(x)
    with record_function("loss"):
        loss = (y - target).pow(2).mean()
    with record_function("backward"):
        loss.backward()
print(prof.key_averages().table(sort_by="cuda_time_total", row_limit=20))
prof.export_chrome_trace("trace.json") # open with chrome://tracing or perfetto
"""


def _run(program: str, folder: Path) -> str:
    (folder / "program.py").write_text(program)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TELEGRAD_")}
    command = [sys.executable, "-m", "telegrad", "run", "program.py"]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_labels_of_a_training_step(tmp_path: Path) -> None:
    shown = _run(ANYWHERE, tmp_path)
    for row in ("forward", "loss", "backward", "aten::linear", "aten::pow", "aten::mean", "# of Calls"):
        assert row in shown, row
    assert (tmp_path / "trace.json").stat().st_size > 1000


@pytest.mark.gpu
def test_squares_and_a_layer_on_a_gpu(tmp_path: Path) -> None:
    shown = _run(ON_GPU, tmp_path)
    for row in ("aten::square", "aten::mul", "aten::pow", "aten::linear", "Self CUDA", "ProfilerStep*"):
        assert row in shown, row
    assert [path.name for path in tmp_path.glob("test_trace_*.json")] == ["test_trace_4.json"]
