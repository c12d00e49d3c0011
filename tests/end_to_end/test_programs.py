"""PyTorch programs as they are: the same file under PyTorch and by ``telegrad run``, and names that are absent."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.pytorch_process import PyTorchProcess

from .programs import run
from .server_process import ServerProcess

PROGRAM = """
import argparse, sys
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor, optim
from torch.nn.modules.linear import Linear
from torch.optim.lr_scheduler import StepLR

class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = Linear(8, 16), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(F.relu(self.first(x)))

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int)
    parser.add_argument("--seed", type=int)
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() and "telegrad" in torch.__version__ else "cpu")
    draw = np.random.default_rng(options.seed)
    net = Net().to(device)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.from_numpy(draw.standard_normal(tuple(parameter.shape)).astype("float32")) / 4)
    x = torch.from_numpy(draw.standard_normal((64, 8)).astype("float32"))
    y = torch.from_numpy(draw.integers(0, 3, 64))
    optimizer = optim.Adam(net.parameters(), lr=1e-2)
    schedule = StepLR(optimizer, 2)
    for _ in range(options.steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x.to(device)), y.to(device))
        loss.backward()
        optimizer.step()
        schedule.step()
        print(f"{loss.item():.9f}")
    print(x.device, isinstance(x, torch.Tensor), torch.nn.Linear is Linear, __file__ == sys.argv[0], file=sys.stderr)
"""


def test_a_program_gives_the_same_losses_under_pytorch_and_telegrad(
    server: ServerProcess, pytorch: PyTorchProcess, tmp_path: Path, seed: int
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    options = ["program.py", "--steps", 5, "--seed", seed]
    expected = pytorch.run(*options, folder=tmp_path)
    for found in (
        run("-m", "telegrad", *options, folder=tmp_path),
        run("-m", "telegrad", "run", "-m", "program", *options[1:], folder=tmp_path, url=server.url),
    ):
        assert (found.returncode, found.stderr) == (0, "cpu True True True\n")
        losses, reference = (list(map(float, run.stdout.split())) for run in (found, expected))
        assert losses == pytest.approx(reference, rel=1e-5) and len(losses) == 5


def test_a_warning_says_once_what_is_not_compiled(server: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import torch\nfor _ in range(2):\n    torch.jit.script(abs)\ntorch.compile(abs, backend='eager')\n"
    )
    found = run("-m", "telegrad", "program.py", folder=tmp_path, url=server.url)
    told = [line for line in found.stderr.splitlines() if "Warning" in line]
    assert [line.partition(": UserWarning: ")[::2] for line in told] == [
        ("program.py:3", "jit.script: nothing is compiled, the function or module runs eagerly")
    ]


ABSENT = {
    "import torch.onnx; torch.onnx.export()": "NotSupportedError: onnx.export: telegrad exports no graphs",
    "torch.mps.empty_cache()": "AttributeError: torch.mps.empty_cache is not there: .* see torch.cuda",
    "torch.distributed.init_process_group(world_size=2, rank=0)": "NotSupportedError: distributed.*DataParallel",
    "torch.distributed.P2POp(None, None, 0)": "NotSupportedError: distributed.P2POp: a group has one process",
    "import torch.distributed.elastic.agent": "ModuleNotFoundError: torch.distributed.elastic.agent .*DataParallel",
    "torch.jit.save(len, 'f.pt')": "NotSupportedError: jit.save: .* keeps its state",
    "torch.unknown_function": "AttributeError: torch.unknown_function is not there: .*, which does not have it yet",
    "torch.jit.unfold": "AttributeError: torch.jit.unfold is not there: .*TorchScript is not served",
    "torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))": "ArgumentError: .*has not been initialized",
    "torch.nn.Lineer(2, 3)": "AttributeError: torch.nn.Lineer is not there: .* has Linear",
    "from torch._dynamo.utils import CompileProfiler": "ImportError: torch._dynamo.utils.CompileProfiler .*explain",
    "import functorch.dim": "ModuleNotFoundError: functorch.dim is not there: this program's torch is telegrad",
    "import torch._dynamo.guards": "ModuleNotFoundError: torch._dynamo.guards is not there: .*does not trace",
    "import torch.nowhere.at_all": "ModuleNotFoundError: torch.nowhere is not there",
    "from torch.nn import Lineer": "ImportError: torch.nn.Lineer is not there: .* has Linear",
}


def test_absent_names_say_what_to_use(server: ServerProcess, tmp_path: Path) -> None:
    *caught, uncaught = ABSENT
    tries = [f"try: {line}\nexcept Exception as e: print(f'{{type(e).__name__}}: {{e}}')" for line in caught]
    (tmp_path / "program.py").write_text("\n".join(["import torch", *tries, uncaught, ""]))
    found = run("-m", "telegrad", "program.py", folder=tmp_path, url=server.url)
    assert found.returncode == 1
    for line, message in zip(found.stdout.splitlines(), [ABSENT[statement] for statement in caught], strict=True):
        assert re.match(message, line)
    first, second, *_, last = found.stderr.splitlines()
    line = f'  File "program.py", line {2 * len(caught) + 2}, in <module>'
    assert (first, second) == ("Traceback (most recent call last):", line)
    assert re.match(ABSENT[uncaught], last)


def test_a_program_that_fails_at_its_end_keeps_the_status_that_it_has_raised(
    server: ServerProcess, tmp_path: Path
) -> None:
    (tmp_path / "program.py").write_text(
        "import torch\ntorch.zeros(3).index_select(0, torch.tensor([7]))\nraise SystemExit(3)\n"
    )
    found = run("-m", "telegrad", "program.py", folder=tmp_path, url=server.url)
    assert found.returncode == 3 and "IndexOutOfRangeError" in found.stderr


def test_a_program_ends_with_its_own_status(server: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import sys\nprint('before')\nsys.exit(7)\n")
    found = run("-m", "telegrad", "program.py", folder=tmp_path, url=server.url)
    assert (found.returncode, found.stdout, found.stderr) == (7, "before\n", "")


def test_torch_is_served_to_a_notebook_once(server: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "cells.py").write_text(
        "import telegrad\n"
        "torch = telegrad.as_torch()\n"
        "import torch as again, torch.nn.functional as F\n"
        "assert again is torch is telegrad.as_torch()\n"
        "torch.backends.cudnn.benchmark = True\n"
        "assert telegrad.backends.cudnn.benchmark and F.relu(torch.ones(2)).sum() == 2\n"
        "assert torch.version.__version__ == '2.13.0' and torch.__version__.startswith('2.13.0')\n"
    )
    found = run("cells.py", folder=tmp_path, url=server.url)
    assert (found.returncode, found.stderr) == (0, "")


def test_pytorch_that_is_imported_already_is_not_replaced(pytorch: PyTorchProcess, tmp_path: Path) -> None:
    (tmp_path / "cells.py").write_text("import torch, telegrad\ntelegrad.as_torch()\n")
    found = pytorch.run("cells.py", folder=tmp_path)
    assert found.returncode == 1 and "ImportError: PyTorch is imported in this process already" in found.stderr
