"""What programs print that ask for more than numbers, the same under PyTorch and by ``telegrad run``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.pytorch_process import PyTorchProcess

from ..examples.running import run_on_pytorch
from .programs import run
from .server_process import ServerProcess

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


@pytest.mark.parametrize("program", ["SHOWN", "OVERRIDES"])
def test_what_programs_print_is_what_they_print_under_pytorch(
    program: str, server: ServerProcess, tmp_path: Path
) -> None:
    file = tmp_path / "program.py"
    file.write_text(globals()[program])
    found = run("-m", "telegrad", "program.py", folder=tmp_path, url=server.url)
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.splitlines() == run_on_pytorch(file, []).splitlines()


def test_settings_and_names_beside_tensors_are_pytorchs(
    server: ServerProcess, pytorch: PyTorchProcess, tmp_path: Path
) -> None:
    """PyTorch has a process of its own, whose settings the program changes."""
    (tmp_path / "program.py").write_text(NAMES)
    expected = pytorch.run("program.py", folder=tmp_path)
    found = run("-m", "telegrad", "program.py", folder=tmp_path, url=server.url)
    assert (expected.returncode, found.returncode) == (0, 0), found.stderr + expected.stderr
    assert found.stdout.splitlines() == expected.stdout.splitlines()
