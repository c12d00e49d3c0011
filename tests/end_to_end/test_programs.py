"""PyTorch programs as they are: the same file under PyTorch and by ``telegrad run``, and names that are absent."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

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


NAMES = """
import pickle
import warnings
import numpy as np
import torch
import torch.backends.cudnn as cudnn
import torch.backends.mkldnn
import torch.distributed as dist
import torch.multiprocessing as mp
import torch._dynamo
import torch._inductor.config
from torch.autograd.profiler import record_function as labelled
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.utils import _pair, _triple
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.profiler import ProfilerActivity, profile, record_function, schedule
from torch.types import Device, Number
from torch.utils.data.distributed import DistributedSampler
from torch.utils.hooks import RemovableHandle

torch._dynamo.config.suppress_errors = True
torch._inductor.config.coordinate_descent_tuning = True
torch.backends.cuda.matmul.allow_tf32 = True
cudnn.enabled = cudnn.benchmark = True
print(torch.backends.mps.is_available(), torch.backends.mps.is_built(), torch.xpu.is_available(), dist.is_initialized())
print(torch.version.cuda is None, torch.version.hip, isinstance(torch.version.git_version, str), torch.__version__[:4])
warnings.simplefilter("error")
model = torch.nn.Linear(3, 4)
try:
    compiled = torch.compile(model, backend="eager", mode=None)
    raise UserWarning
except UserWarning:  # telegrad says once that it compiles nothing
    warnings.simplefilter("default")
    compiled = torch.compile(model, backend="eager")
print(list(compiled.state_dict()), compiled.weight is model.weight, compiled._orig_mod is model)
print(type(compiled).__name__)
print(compiled(torch.ones(2, 3)).shape, len(list(compiled.parameters())), compiled.eval().training, model.training)
print(torch.compiler.is_compiling(), torch.jit.is_scripting(), torch.jit.annotate(int, 3), mp.get_start_method())

@torch.compile(backend="eager", fullgraph=True)
def step(x):
    return x + 1

@torch.jit.script
def double(x: torch.Tensor):
    return x * 2

@torch.compiler.disable
def outside(x):
    with record_function("outside"), labelled("here"), sdpa_kernel([SDPBackend.MATH]):
        return x, torch.backends.cuda.math_sdp_enabled(), torch.backends.cuda.flash_sdp_enabled()

print(step(double(torch.ones(2))), outside(1), torch.backends.cuda.flash_sdp_enabled())
with cudnn.flags(enabled=True, deterministic=True):
    print(cudnn.deterministic, cudnn.benchmark)
print(cudnn.deterministic, cudnn.benchmark, cudnn.enabled)
plan = schedule(wait=1, warmup=1, active=2, repeat=2, skip_first=3)
print([plan(number).name for number in range(14)])
x = torch.ones(2)
torch.manual_seed(0)
with torch.random.fork_rng():
    torch.rand(5)
forked = torch.rand(1)
with torch.random.fork_rng(devices=[]):
    torch.rand(5)
second = torch.rand(1)
torch.manual_seed(0)
print(bool(torch.rand(1) == forked), bool(torch.rand(1) == second))
pairs = [
    ((x, x + 1e-7), {}), ((1, 1.5), {}), ((1.0, 1.5), {}), (({"a": [x]}, {"a": [x + 1]}), {}), ((x, x.double()), {}),
    ((x, x.double()), {"check_dtype": False}), ((x, torch.ones(3)), {}), ((x + 1, x), {"rtol": 0, "atol": 1}),
    ((x / 0 * 0, x / 0 * 0), {"equal_nan": True}), (([x], [x, x]), {}),
]
for given, options in pairs:
    try:
        torch.testing.assert_close(*given, **options)
        print("close")
    except AssertionError as error:
        print(str(error).splitlines()[0])
print(torch.get_device_module("cpu").__name__.endswith("cpu"), torch.accelerator.is_available())
print(torch.accelerator.current_accelerator(), torch.accelerator.device_count())
print(torch.are_deterministic_algorithms_enabled(), torch.get_deterministic_debug_mode())
torch.set_deterministic_debug_mode("warn")
print(torch.is_deterministic_algorithms_warn_only_enabled(), torch.get_deterministic_debug_mode())
shown = [model, torch.nn.ReLU(), torch.optim.SGD(model.parameters(), 0.1), x.dtype, x.device, x.shape, x.layout]
print(*map(type, [*shown, torch.Generator()]), torch.utils.data.TensorDataset)
print(torch.optim.lr_scheduler.StepLR, type(torch.finfo(x.dtype)), torch.nn.init.uniform_.__module__)
print(pickle.loads(pickle.dumps(model)), pickle.loads(pickle.dumps((x.dtype, x.device))))
errors = ArithmeticError, TypeError, ValueError, RuntimeError
for refused in (
    lambda: torch.as_tensor(np.array(["a"])), lambda: torch.tensor([1, [2]]), lambda: torch.tensor([[1], [1, 2]]),
    lambda: x.type("foo"), lambda: torch.set_default_dtype(torch.int32),
    lambda: torch.nn.init.xavier_uniform_(torch.ones(2)),
):
    try:
        refused()
    except Exception as error:
        print(next(kind.__name__ for kind in errors if isinstance(error, kind)))
print(torch.is_storage(x.untyped_storage()), torch.is_storage(x), issubclass(torch._C._LinAlgError, RuntimeError))
"""


def _run(*arguments: object, folder: Path, url: str = "") -> subprocess.CompletedProcess[str]:
    """Run Python in a folder, with a server at ``url`` or a private one, not with one that the environment names."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TELEGRAD_")}
    environment |= {"TELEGRAD_URL": url} if url else {}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, check=False)


def test_a_program_gives_the_same_losses_under_pytorch_and_telegrad(
    server: ServerProcess, tmp_path: Path, seed: int
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    options = ["program.py", "--steps", 5, "--seed", seed]
    expected = _run(*options, folder=tmp_path)
    for found in (
        _run("-m", "telegrad", *options, folder=tmp_path),
        _run("-m", "telegrad", "run", "-m", "program", *options[1:], folder=tmp_path, url=server.url),
    ):
        assert (found.returncode, found.stderr) == (0, "cpu True True True\n")
        losses, reference = (list(map(float, run.stdout.split())) for run in (found, expected))
        assert losses == pytest.approx(reference, rel=1e-5) and len(losses) == 5


SHOWN = """
import pickle, tempfile, warnings
import numpy as np
import torch
from torch import nn
from torch.autograd import Variable

warnings.simplefilter("ignore")
x = torch.tensor([[1.5, -2.0]])
print(x.dtype, x.shape, x.type(), type(x), type(x.shape), torch.float32, torch.channels_last, torch.strided)
print(x.type(torch.LongTensor), x.type("torch.DoubleTensor").dtype, torch.typename(x), str(x.dtype).split(".")[1])
print(torch.FloatTensor, torch.cuda.HalfTensor, nn.Parameter(x), type(nn.Parameter(x)))
kinds = torch.FloatTensor, torch.LongTensor, torch.DoubleTensor, torch.cuda.FloatTensor, Variable, torch.Tensor
print([isinstance(x, kind) for kind in kinds], [isinstance(x.long(), kind) for kind in kinds])
size = torch.ones(2, 3, 4).shape
print(size[1:], size[0], size[1:].numel(), size + (5,), (5,) + size, size + size[:1], size * 2)
print(torch.std_mean(x), torch.var_mean(x, 1))
sizes = (), (3,), (2, 3), (1, 2, 3, 4, 5), (torch.Size([2, 2]),)
print([tuple(make(*args).shape) for make in (torch.Tensor, torch.LongTensor, x.new) for args in sizes])
data = [1, 2], (3,), np.arange(3.0), [[True], [False]], range(2)
print([(make(given).dtype, make(given).tolist()) for make in (torch.Tensor, torch.IntTensor, x.new) for given in data])
shared = torch.Tensor(x)
shared[0, 0] = 7
print(x, Variable(x, requires_grad=True), Variable(x).requires_grad)
torch.set_default_tensor_type(torch.DoubleTensor)
print(torch.ones(1).dtype, torch.Tensor([1]).dtype)
torch.set_default_tensor_type("torch.FloatTensor")
layers = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
layers.add_module("last", nn.Identity())
del layers[1]
print(layers, nn.ParameterDict({"a": torch.ones(2, 1)}), nn.ParameterList([torch.ones(1)]))
groups = [{"params": layers[0].parameters(), "lr": 0.5}, {"params": layers[1].parameters()}]
print(torch.optim.SGD(groups, lr=0.1))
kept = {"p": nn.Parameter(x), "b": torch.ones(2, dtype=torch.bfloat16), "l": nn.Linear(2, 2), "t": x.T}
back = pickle.loads(pickle.dumps(kept))
from torch.nn import *
from torch.utils.data import *
from torch.distributions import *
from torch.nn.init import *
print(Linear is nn.Linear, functional.relu is nn.functional.relu, IterableDataset.__name__)
print(TensorDataset(x)[0], Normal(0.0, 1.0).mean, zeros_(x), "Tensor" in globals())
print(back, torch.equal(back["l"].weight, kept["l"].weight), back["t"].tolist())
"""


def test_what_a_program_shows_is_what_pytorch_shows(server: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(SHOWN)
    expected = _run("program.py", folder=tmp_path)
    shown = _run("-m", "telegrad", "program.py", folder=tmp_path, url=server.url)
    assert (shown.returncode, shown.stderr) == (expected.returncode, expected.stderr) == (0, "")
    assert shown.stdout == expected.stdout


@pytest.mark.parametrize("program", ["NAMES", "OVERRIDES"])
def test_what_programs_have_beside_tensors_prints_the_same_under_pytorch_and_telegrad(
    program: str, server: ServerProcess, tmp_path: Path
) -> None:
    (tmp_path / "program.py").write_text(globals()[program])
    expected = _run("program.py", folder=tmp_path)
    found = _run("-m", "telegrad", "program.py", folder=tmp_path, url=server.url)
    assert (expected.returncode, found.returncode) == (0, 0), found.stderr + expected.stderr
    assert found.stdout.splitlines() == expected.stdout.splitlines()


def test_a_warning_says_once_what_is_not_compiled(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import torch\nfor _ in range(2):\n    torch.jit.script(abs)\ntorch.compile(abs, backend=print)\n"
    )
    found = _run("-m", "telegrad", "program.py", folder=tmp_path)
    told = [line for line in found.stderr.splitlines() if "Warning" in line]
    assert [line.partition(": UserWarning: ")[::2] for line in told] == [
        ("program.py:3", "jit.script: nothing is compiled, the function or module runs eagerly"),
        ("program.py:4", "compile: a backend of the program's own is not called; programs are executed by the server"),
    ]  # fmt: skip


OVERRIDES = """
import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode, handle_torch_function, has_torch_function_unary, is_tensor_like

class Sub(torch.Tensor):
    pass

plain = torch.ones(2)
s = Sub([1.0, 2.0])
results = s + 1, torch.cat([s, torch.ones(1)]), s.sum(), torch.stack([plain, s]), s.max(0)[0], s.split(1)[1], s[None]
print([type(result).__name__ for result in (*results, F.relu(s), plain * s, F.linear(s, torch.ones(3, 2)), s.add_(1))])

class Logged(torch.Tensor):
    seen = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.seen.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})

x = torch.ones(2, requires_grad=True).as_subclass(Logged)
y = (x * 2).exp().sum()
print([name for name in Logged.seen if name != "__get__"], type(y).__name__, y.requires_grad)
leaf = torch.Tensor._make_subclass(Logged, torch.ones(3), True)
(leaf * 3).sum().backward()
print(leaf.grad.tolist(), leaf.is_leaf)

class Duck:
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return func.__name__, [kind.__name__ for kind in types]

torch.cat([plain, plain])
print(torch.add(Duck(), 1), torch.matmul(plain, Duck()), torch.cat([plain, Duck()]))
print(is_tensor_like(Duck()), is_tensor_like(3))

class Counting(TorchFunctionMode):
    def __init__(self):
        self.calls = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.calls.append(func.__name__)
        return func(*args, **(kwargs or {}))

plain + plain
with Counting() as outer:
    torch.mul(plain, 2), torch.zeros(3), torch.sin(plain)
    with Counting() as inner:
        torch.cos(plain)
print(outer.calls, inner.calls, torch.mul(plain, 2), outer.calls)
print(has_torch_function_unary(plain), has_torch_function_unary(s))

class Silent:
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return NotImplemented

try:
    torch.add(Silent(), 1)
except TypeError as error:
    print("NotImplemented" in str(error))

def doubled(t, n=1):
    if has_torch_function_unary(t):
        return handle_torch_function(doubled, (t,), t, n=n)
    return "plain"

print(doubled(plain), doubled(Duck()))

class Tagged(torch.Tensor):
    @staticmethod
    def __new__(cls, data, tag):
        made = torch.as_tensor(data).as_subclass(cls)
        made.tag = tag
        return made

t = Tagged([1.0, 2.0], "x")
print(t.tag, type(t + 1).__name__, (t + 1).tolist(), type(torch.nn.Parameter(plain) + 1).__name__)
"""


ABSENT = {
    "import torch.onnx; torch.onnx.export()": "NotSupportedError: onnx.export: telegrad exports no graphs",
    "torch.mps.empty_cache()": "AttributeError: torch.mps.empty_cache is not there: .* see torch.cuda",
    "torch.distributed.init_process_group(world_size=2, rank=0)": "NotSupportedError: distributed.*DataParallel",
    "import torch.distributed.elastic": "ModuleNotFoundError: torch.distributed.elastic is not there: .*DataParallel",
    "torch.jit.trace(len, ())": "NotSupportedError: jit.trace: .* call the function or the module itself",
    "torch.unknown_function": "AttributeError: torch.unknown_function is not there: .*, which does not have it yet",
    "torch.jit.unfold": "AttributeError: torch.jit.unfold is not there: .*TorchScript is not served",
    "torch.UntypedStorage(3)": r"NotSupportedError: UntypedStorage: .* use tensor\.untyped_storage\(\)",
    "torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))": "ArgumentError: .*has not been initialized",
    "torch.autograd.profiler.emit_nvtx()": "NotSupportedError: emit_nvtx: .*profiler.profile",
    "torch.nn.Lineer(2, 3)": "AttributeError: torch.nn.Lineer is not there: .* has Linear",
    "from torch._dynamo.testing import CompileCounter": "ModuleNotFoundError: torch._dynamo.testing .*explain",
    "from torch._dynamo.utils import counters": "ImportError: torch._dynamo.utils.counters is .*_dynamo.explain",
    "import torch.nowhere.at_all": "ModuleNotFoundError: torch.nowhere is not there",
    "from torch.nn import Lineer": "ImportError: torch.nn.Lineer is not there: .* has Linear",
}


def test_absent_names_say_what_to_use(server: ServerProcess, tmp_path: Path) -> None:
    *caught, uncaught = ABSENT
    tries = [f"try: {line}\nexcept Exception as e: print(f'{{type(e).__name__}}: {{e}}')" for line in caught]
    (tmp_path / "program.py").write_text("\n".join(["import torch", *tries, uncaught, ""]))
    found = _run("-m", "telegrad", "program.py", folder=tmp_path, url=server.url)
    assert found.returncode == 1
    for line, message in zip(found.stdout.splitlines(), [ABSENT[statement] for statement in caught], strict=True):
        assert re.match(message, line)
    first, second, *_, last = found.stderr.splitlines()
    line = f'  File "program.py", line {2 * len(caught) + 2}, in <module>'
    assert (first, second) == ("Traceback (most recent call last):", line)
    assert re.match(ABSENT[uncaught], last)


def test_a_program_that_fails_at_its_end_keeps_the_status_that_it_has_raised(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import torch\ntorch.zeros(3).index_select(0, torch.tensor([7]))\nraise SystemExit(3)\n"
    )
    found = _run("-m", "telegrad", "program.py", folder=tmp_path)
    assert found.returncode == 3 and "IndexOutOfRangeError" in found.stderr


def test_a_program_ends_with_its_own_status(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import sys\nprint('before')\nsys.exit(7)\n")
    found = _run("-m", "telegrad", "program.py", folder=tmp_path)
    assert (found.returncode, found.stdout, found.stderr) == (7, "before\n", "")


def test_torch_is_served_to_a_notebook_once(tmp_path: Path) -> None:
    (tmp_path / "cells.py").write_text(
        "import telegrad\n"
        "torch = telegrad.as_torch()\n"
        "import torch as again, torch.nn.functional as F\n"
        "assert again is torch is telegrad.as_torch()\n"
        "torch.backends.cudnn.benchmark = True\n"
        "assert telegrad.backends.cudnn.benchmark and F.relu(torch.ones(2)).sum() == 2\n"
        "assert torch.version.__version__ == '2.13.0' and torch.__version__.startswith('2.13.0')\n"
    )
    found = _run("cells.py", folder=tmp_path)
    assert (found.returncode, found.stderr) == (0, "")


def test_pytorch_that_is_imported_already_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "cells.py").write_text("import torch, telegrad\ntelegrad.as_torch()\n")
    found = _run("cells.py", folder=tmp_path)
    assert found.returncode == 1 and "ImportError: PyTorch is imported in this process already" in found.stderr
