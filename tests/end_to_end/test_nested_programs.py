"""A program with nested tensors is the same file under PyTorch and by ``telegrad run``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.pytorch_process import PyTorchProcess

from .programs import run
from .server_process import ServerProcess

PROGRAM = """
import re, sys
import numpy as np
import torch
import torch.nn as nn
from torch.nested._internal.nested_tensor import NestedTensor

def shown(value):
    return re.sub(r"j\\d+", "j", str(value))

draw = np.random.default_rng(int(sys.argv[1]))
arrays = [draw.standard_normal((length, 8)).astype("float32") for length in (3, 1, 4)]
batch = torch.nested.nested_tensor([torch.from_numpy(array) for array in arrays], layout=torch.jagged)
print(shown(batch.shape), batch.layout, isinstance(batch, NestedTensor), isinstance(batch.size(1), torch.SymInt))
print(shown(batch), len(batch), [tuple(part.shape) for part in batch])
model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8))
with torch.no_grad():
    for parameter in model.parameters():
        parameter.copy_(torch.from_numpy(draw.standard_normal(tuple(parameter.shape)).astype("float32")) / 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for _ in range(4):
    optimizer.zero_grad()
    loss = (torch.nested.to_padded_tensor(model(batch), 0.0).sum(1) ** 2).mean()
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.9f}", file=sys.stderr)
older = torch.nested.nested_tensor([torch.ones(2), torch.ones(1)])
print(older, older.layout, sorted(torch.nested.__all__))
for refused in (lambda: batch.cumsum(1), lambda: batch + batch.clone().sum(0), lambda: older.shape):
    try:
        refused()
    except (RuntimeError, NotImplementedError) as error:
        print("refused")
"""


def test_the_same_is_printed(server: ServerProcess, pytorch: PyTorchProcess, tmp_path: Path, seed: int) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    ours = run("-m", "telegrad", "program.py", str(seed), folder=tmp_path, url=server.url)
    theirs = pytorch.run("program.py", seed, folder=tmp_path)
    assert (ours.returncode, theirs.returncode) == (0, 0), ours.stderr + theirs.stderr
    assert ours.stdout == theirs.stdout
    losses, expected = (list(map(float, run.stderr.split())) for run in (ours, theirs))
    assert losses == pytest.approx(expected, rel=1e-4) and len(losses) == 4
