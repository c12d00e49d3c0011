"""What published packages use of PyTorch beside tensors: the same program prints the same under both libraries."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from tests.support.pytorch_process import PyTorchProcess

from ..examples.running import run_on_pytorch
from .programs import run
from .server_process import ServerProcess

PROGRAM = """
import collections, copy, hashlib, os, pathlib, sys
from unittest import mock
from pytest import MonkeyPatch
import torch, torch.fx, torch.hub
import torch.utils._pytree as pytree
from torch import Tensor
from torch.distributions.constraints import __all__ as constraints
from torch.distributions.utils import _standard_normal, _sum_rightmost
from torch.jit.annotations import BroadcastingList2, List
from torch.serialization import MAP_LOCATION
from torch.utils.checkpoint import get_device_states, set_device_states
from torch.utils.model_zoo import load_url

@torch.library.custom_op("ours::scale_add", mutates_args=())
def scale_add(x: Tensor, y: Tensor, by: float = 2.0) -> Tensor:
    return x * by + y

@scale_add.register_fake
def _(x, y, by=2.0):
    return torch.empty_like(x)

def setup(ctx, inputs, output):
    ctx.by = inputs[2]

scale_add.register_autograd(lambda ctx, g: (g * ctx.by, g, None), setup_context=setup)
x, y = torch.arange(3.0, requires_grad=True), torch.ones(3)
for result in (scale_add(x, y, by=3.0), torch.ops.ours.scale_add(x, y), torch.ops.ours.scale_add.default(x, y, 4.0)):
    result.sum().backward()
    print(result.tolist(), x.grad.tolist())
lib = torch.library.Library("theirs", "DEF")
lib.define("twice(Tensor x) -> Tensor")
lib.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
print(torch.ops.theirs.twice(y).tolist())
try:
    torch.ops.load_library("/nowhere/at/all.so")
except OSError:
    print("no such library")

Pair = collections.namedtuple("Pair", "a b")
tree = {"b": [1, (2, None)], "a": Pair(3, collections.OrderedDict(z=4)), "d": collections.deque([5], maxlen=3),
        "e": collections.defaultdict(list, q=6)}
leaves, spec = pytree.tree_flatten(tree)
print(leaves, spec.num_leaves, spec.num_nodes, pytree.tree_unflatten(leaves, spec) == tree)
print(pytree.tree_unflatten(leaves, spec)["d"].maxlen, spec == pytree.tree_structure(tree))
print(pytree.tree_map(lambda a, b: (a, b), [1, [2]], [3, [4]]), pytree.tree_map_only(int, lambda v: v + 1, [1, "a"]))
print([pytree.keystr(path) for path, _ in pytree.tree_flatten_with_path(tree)[0]])
print(pytree.tree_leaves([[1], 2], is_leaf=lambda v: v == [1]), pytree.tree_any(lambda v: v == 6, tree))
for wrong in (lambda: pytree.tree_map(lambda a, b: a, [1, [2]], [1, 2]), lambda: spec.unflatten([1])):
    try:
        wrong()
    except ValueError:
        print("another structure")

class Point:
    def __init__(self, x, y):
        self.x, self.y = x, y

pytree.register_pytree_node(Point, lambda p: ([p.x, p.y], None), lambda children, _: Point(*children))
moved = pytree.tree_map(lambda v: v + 1, [Point(1, 2)])[0]
print(moved.x, moved.y)

torch.hub.set_dir("hub")
torch.save({"w": torch.ones(2)}, "weights.pth")
digits = hashlib.sha256(open("weights.pth", "rb").read()).hexdigest()[:8]
os.rename("weights.pth", f"w-{digits}.pth")
url = pathlib.Path(f"w-{digits}.pth").absolute().as_uri()
print(torch.hub.load_state_dict_from_url(url, progress=False, check_hash=True)["w"].tolist())
os.remove(f"w-{digits}.pth")
kept = os.listdir(os.path.join(torch.hub.get_dir(), "checkpoints"))
print(load_url(url, progress=False)["w"].tolist(), kept == [f"w-{digits}.pth"])
pathlib.Path("w-00000000.pth").write_bytes(b"other")
try:
    load_url(pathlib.Path("w-00000000.pth").absolute().as_uri(), progress=False, check_hash=True)
except RuntimeError:
    print("another file", len(os.listdir("hub/checkpoints")))

print(torch.fx.wrap(len) is len, isinstance(x, torch.fx.Proxy), isinstance(x, torch.UntypedStorage))
print(torch.float8_e4m3fn, torch.finfo(torch.float8_e5m2).max, torch.float8_e5m2.itemsize, x.dtype == torch.float8_e5m2)
print(get_device_states(x)[0], set_device_states([], []), torch.torch is torch, "positive" in constraints)
print(_standard_normal((2,), torch.float64, "cpu").dtype, _sum_rightmost(torch.ones(2, 3), 1).tolist())
families = {name for name, value in torch.distributions.__dict__.items()
            if isinstance(value, type) and issubclass(value, torch.distributions.Distribution)}
optimizers = {name for name, value in torch.optim.__dict__.items()
              if isinstance(value, type) and issubclass(value, torch.optim.Optimizer)}
print(len(families), sorted(optimizers))
relu = torch.nn.functional.relu
torch.nn.functional.relu = lambda x, inplace=False: x + 1
print(torch.nn.ReLU()(y).tolist())
torch.nn.functional.relu = relu
print(torch.nn.ReLU()(y).tolist())

matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
with MonkeyPatch.context() as patch:
    patch.setattr(torch.backends.cuda, "matmul", 1)
    patch.setattr(torch.backends.cuda, "matmul", 2)
    patch.setattr(torch.backends, "cudnn", 3)
    patch.setattr(torch.cuda, "invented", 4, raising=False)
    patch.setattr(torch.backends.mps, "is_available", lambda: True)
    print(torch.backends.cuda.matmul, torch.backends.cudnn, torch.cuda.invented, torch.backends.mps.is_available())
print(torch.backends.cuda.matmul is matmul, torch.backends.cudnn is cudnn, hasattr(torch.cuda, "invented"))
with mock.patch.object(torch.backends.cuda, "matmul", 1):
    with mock.patch("torch.backends.cuda.matmul", 2), mock.patch("torch.cuda.invented", 4, create=True):
        print(torch.backends.cuda.matmul, torch.cuda.invented)
    print(torch.backends.cuda.matmul, hasattr(torch.cuda, "invented"))
print(torch.backends.cuda.matmul is matmul, torch.backends.mps.is_available())

def numbers():
    return [torch.tensor([1.0, 2.0]), torch.tensor([3.0, 5.0])]

for results in (
    torch._foreach_mul(numbers(), scalar=2.0), torch._foreach_add(numbers(), other=numbers(), alpha=3),
    torch._foreach_sub(numbers(), scalars=[1, 2]), torch._foreach_pow(numbers(), exponent=[2, 3]),
    torch._foreach_lerp(numbers(), tensors1=torch._foreach_neg(numbers()), weight=0.25),
    torch._foreach_lerp(numbers(), numbers(), weights=numbers()), torch._foreach_addcmul(*[numbers()] * 3, 3),
    torch._foreach_addcdiv(numbers(), numbers(), tensor2=numbers(), scalars=[3, 4]),
    torch._foreach_addcmul(numbers(), numbers(), numbers(), torch.tensor([3, 4])),
    torch._foreach_maximum(numbers(), scalar=2.5),
):
    print([result.tolist() for result in results])

class Kept(torch.nn.Linear):
    def _replicate_for_data_parallel(self):
        replica = super()._replicate_for_data_parallel()
        replica.own = None
        return replica

layer = torch.nn.Sequential(Kept(1, 1), torch.nn.BatchNorm1d(1))
replica, inner = layer._replicate_for_data_parallel(), layer[0]._replicate_for_data_parallel()
print([*replica._modules], replica[1] is layer[1], replica._modules is layer._modules, inner.own, inner._parameters)
compiled = torch.compile(layer)
compiled._orig_mod = replica
print(compiled._orig_mod is replica, "_orig_mod" in layer._modules)
loader = torch.utils.data.DataLoader(range(4), num_workers=1, persistent_workers=True)
print(loader._iterator, [batch.tolist() for batch in loader], loader._iterator is None)
loader._iterator._shutdown_workers()
print(torch.distributions.Wishart(torch.tensor(5.0), torch.eye(3))._bartlett_sampling(torch.Size([2])).shape)
optimizer = torch.optim.SGD([{"params": layer[0].parameters()}, {"params": layer[1].parameters()}], lr=0.1)
optimizer.step()
print([k for k in vars(optimizer).keys() - vars(copy.deepcopy(optimizer)).keys() if k[0] != "_"])
optimizer.param_groups.extend(optimizer.param_groups)
print([group["params"] for group in optimizer.state_dict()["param_groups"]])
print(torch.utils.data.DataLoader(int).dataset is int)  # what it is, is seen when something is read
"""


def _on_pytorch(program: Path, folder: Path) -> tuple[list[str], str]:
    """Return what ``_run`` returns of a program under PyTorch, which this process has imported."""
    folder.mkdir()
    with contextlib.chdir(folder):
        return _lines(run_on_pytorch(program, []), folder), ""


def _lines(printed: str, folder: Path) -> list[str]:
    return re.sub(r"w-\w{8}", "w-hash", printed.replace(str(folder), "")).splitlines()


def _run(*command: object, folder: Path, url: str) -> tuple[list[str], str]:
    folder.mkdir()
    done = run("-W", "ignore", *command, folder=folder, url=url)
    return _lines(done.stdout, folder), done.stderr


def _apart(pytorch: PyTorchProcess, program: Path, folder: Path) -> tuple[list[str], str]:
    """The same under PyTorch in a process of its own."""
    folder.mkdir()
    done = pytorch.run(program, folder=folder)
    return _lines(done.stdout, folder), done.stderr


def test_what_packages_use_beside_tensors_is_pytorchs(
    server: ServerProcess, pytorch: PyTorchProcess, tmp_path: Path
) -> None:
    """PyTorch has a process of its own, in which bars of progress leave a thread."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    ours = _run("-m", "telegrad", program, folder=tmp_path / "a", url=server.url)
    assert ours == _apart(pytorch, program, tmp_path / "b")


PRIVATE = """
import argparse
import torch
from torch import TensorType
from torch.utils._foreach_utils import _group_tensors_by_device_and_dtype
from torch._higher_order_ops.associative_scan import associative_scan
from torch._tensor import _rebuild_from_type_v2
from torch._utils import _get_device_index
from torch.ao.nn.intrinsic import ConvReLU2d
from torch.ao.quantization import FakeQuantizeBase, ObserverBase
from torch.ao.quantization.qconfig import QConfig
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor, Shard
from torch.futures import Future
from torch.nn.quantized.dynamic import LSTM
from torch.quantization.observer import HistogramObserver
from torch.quasirandom import SobolEngine
from torch.serialization import DEFAULT_PROTOCOL
from torch.utils.data._utils.collate import collate_tensor_fn

net, x = torch.nn.Linear(2, 2), torch.arange(1.0, 8.0)
grouped = _group_tensors_by_device_and_dtype([[x, x.int(), x], [x, x, x + 1]], with_indices=True)
print(isinstance(x, TensorType), sorted((str(key[1]), len(lists[1]), at) for key, (lists, at) in grouped.items()))
print([norm.item() for norm in torch._foreach_norm([x, x[:2]], ord=1)])
print([isinstance(net, k) for k in (FullyShardedDataParallel, ObserverBase, FakeQuantizeBase, LSTM, ConvReLU2d)],
      isinstance(net.weight, DTensor), issubclass(ZeroRedundancyOptimizer, torch.optim.Optimizer))
config = QConfig(HistogramObserver.with_args(reduce_range=True), HistogramObserver.with_args(bins=3).with_args(eps=1.0))
print(type(config).__name__, callable(config.weight))
print(MixedPrecision(param_dtype=torch.bfloat16).param_dtype, ShardingStrategy.NO_SHARD.name, CheckpointImpl.REENTRANT)
print(associative_scan(lambda a, b: a * b, x, 0, combine_mode="generic").tolist(), Future[int] is not None)
print(associative_scan(torch.add, x.view(7, 1), 0, reverse=True, combine_mode="generic").flatten().tolist())
print(torch._softmax_backward_data(x, x.softmax(0), 0, torch.float32).sum().abs() < 1e-5, DEFAULT_PROTOCOL)
print(torch.sym_max(2, 3.0), torch.sym_int(2.5), torch.sym_ite(True, 1, 2), torch.sym_not(1), torch.sym_sum([1, 2]))
print(torch._shape_as_tensor(x), _get_device_index("cuda:1"), collate_tensor_fn([x, x]).shape)
print(torch.randperm(5, generator=torch.default_generator).shape, torch.get_autocast_cpu_dtype())
state = torch.default_generator.get_state()
drawn = torch.rand(3)
torch.default_generator.set_state(state)
print(torch.equal(drawn, torch.rand(3)), torch.default_generator.manual_seed(5).initial_seed(), torch.initial_seed())
points = SobolEngine(2)
print(points.draw(3).tolist(), points.fast_forward(1).draw(1).tolist(), points.reset().draw_base2(1).tolist())

class Named(torch.Tensor):
    pass

print(type(_rebuild_from_type_v2(lambda: x, Named, (), {})).__name__, torch.distributed.is_initialized())

class Around(torch.optim.Optimizer):
    def __init__(self, inner):
        self.inner = inner

    @property
    def param_groups(self):
        return self.inner.param_groups

    def step(self, closure=None):
        return self.inner.step(closure)

net(torch.ones(1, 2)).sum().backward()
before = net.weight.detach().clone()
Around(torch.optim.SGD(net.parameters(), lr=0.5)).step()
print(torch.allclose(before - net.weight, torch.full((2, 2), 0.5)))
torch.save({"args": argparse.Namespace(rate=0.1), "net": net}, "f.pt")
read = torch.load("f.pt", weights_only=False)
print(read["args"], torch.equal(read["net"].weight, net.weight), read["net"])
"""


def test_private_names_that_packages_use_mean_what_they_mean_in_pytorch(server: ServerProcess, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PRIVATE)
    assert _run("-m", "telegrad", program, folder=tmp_path / "a", url=server.url) == _on_pytorch(
        program, tmp_path / "b"
    )


def test_what_would_need_processes_says_what_to_use(server: ServerProcess, tmp_path: Path) -> None:
    uses = (
        "FullyShardedDataParallel(torch.nn.Linear(1, 1))", "fully_shard(torch.nn.ReLU())", "DeviceMesh('cpu', [0])",
        "DTensor(torch.ones(1))", "torch.distributed.FileStore('f', 2)",
    )  # fmt: skip
    lines = [f"try: {use}\nexcept NotImplementedError as e: print(e)" for use in uses]
    names = "from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard"
    more = "from torch.distributed.tensor import DeviceMesh, DTensor"
    (tmp_path / "program.py").write_text("\n".join(["import torch", names, more, *lines]))
    printed, errors = _run("-m", "telegrad", tmp_path / "program.py", folder=tmp_path / "run", url=server.url)
    assert errors == "" and len(printed) == len(uses)
    assert all("nn.DataParallel" in line for line in printed)


def test_types_without_tensors_are_refused_in_words(server: ServerProcess, tmp_path: Path) -> None:
    uses = (
        "torch.zeros(3, dtype=torch.float8_e4m3fn)", "torch.ones(3).to(torch.float8_e5m2)",
        "torch.tensor([1.0], dtype=torch.qint8)", "torch.set_default_dtype(torch.float8_e4m3fn)",
    )  # fmt: skip
    lines = [f"try: {use}\nexcept RuntimeError as e: print(e)" for use in uses]
    (tmp_path / "program.py").write_text("\n".join(["import torch", *lines, "print(torch.ones(1))"]))
    printed, errors = _run("-m", "telegrad", tmp_path / "program.py", folder=tmp_path / "run", url=server.url)
    assert errors == "" and printed[-1] == "tensor([1.])" and len(printed) == 5
    assert all("there are no tensors of torch." in line and "use bfloat16" in line for line in printed[:-1])


FILES = """
from concurrent.futures import ThreadPoolExecutor
import torch
import safetensors.torch as files
from safetensors import safe_open
tensors = {"a": torch.arange(6.0).view(2, 3), "b": torch.ones(3, dtype=torch.bfloat16), "c": torch.tensor(7),
           "d": torch.tensor([True, False]), "e": torch.zeros(0, 4)}
files.save_file(tensors, "x.safetensors", metadata={"by": "us"})
for read in (files.load_file("x.safetensors"), files.load(files.save(tensors))):
    print([(name, tensor.dtype, tensor.shape, tensor.tolist()) for name, tensor in sorted(read.items())])
with safe_open("x.safetensors", framework="pt", device="cpu") as file:
    part = file.get_slice("a")
    print(file.metadata(), sorted(file.keys()), part.get_shape(), part.get_dtype(), part[:, 1:].tolist())
    print(file.get_tensor("b").dtype, file.get_tensor("c").item())
many = {str(name): torch.full((3, 1000), float(name)) for name in range(64)}
files.save_file(many, "many.safetensors")
with safe_open("many.safetensors", framework="pt") as file, ThreadPoolExecutor(8) as pool:
    for _ in range(8):
        read = list(pool.map(lambda name: file.get_slice(name)[1:], many))
        print(all(torch.equal(one, many[name][1:]) for name, one in zip(many, read)))
model, copy = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
files.save_model(model, "m.safetensors")
print(files.load_model(copy, "m.safetensors"), torch.equal(model.weight, copy.weight))
with safe_open("m.safetensors", framework="np") as file:
    print(type(file.get_tensor("bias")).__name__)
print(torch.empty(1).is_mps, torch.is_autocast_enabled("mps"), isinstance(3, torch.SymInt))
print(torch.nn.functional.conv2d(torch.ones(1, 1, 4, 4), torch.ones(1, 1, 2, 2), stride=[2]).shape)
"""


def test_safetensors_files_are_written_and_read_by_their_own_package(server: ServerProcess, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(FILES)
    assert _run("-m", "telegrad", program, folder=tmp_path / "a", url=server.url) == _on_pytorch(
        program, tmp_path / "b"
    )


PIPES = """
import torch
from torch.utils.data import DataLoader, IterableDataset, IterDataPipe, MapDataPipe, functional_datapipe
from torch.utils.data.datapipes import iter as streams, map as sequences
from torch.utils.data.datapipes.iter.combinatorics import ShufflerIterDataPipe

def is_odd(x):
    return x % 2 == 1

def next_one(x):
    return x + 1

def total(x, y):
    return x + y

S, M = streams.IterableWrapper, sequences.SequenceWrapper
print(list(S(range(10)).map(next_one).filter(is_odd).batch(2)), list(S(range(7)).batch(3, drop_last=True)))
nested = [[[1], [2]], [[3]]]
print([list(S(nested).unbatch(level)) for level in (1, 2, -1)], list(S(iter([1, 2]))))
print(list(S(range(3)).zip(S("abc"))), list(S([1]).concat(S([2, 3]))), list(S(range(4)).sharding_filter()))
print(len(S(range(5)).batch(2)), len(S("abc").map(ord)), len(S("abc").concat(S("ab"))), len(S("abc").zip(S("ab"))))
shuffled = S(range(20)).shuffle(buffer_size=8)
print(sorted(shuffled), isinstance(shuffled, ShufflerIterDataPipe), len(shuffled), list(shuffled.set_shuffle(False)))
torch.manual_seed(5)
passes = [list(shuffled.set_shuffle(True)) for _ in range(2)]
torch.manual_seed(5)
print(passes[0] != passes[1], list(shuffled) == passes[0], list(shuffled.set_seed(3)) == list(shuffled.set_seed(3)))
pairs = [(1, 2), (3, 4)]
print(list(S(pairs).map(next_one, input_col=0)), list(S(pairs).map(total, input_col=[0, 1], output_col=-1)))
print(list(S(pairs).map(total, input_col=[0, 1])), list(S([{"a": 1}]).map(next_one, input_col="a", output_col="b")))
print(list(S(pairs).filter(is_odd, input_col=1)), [x.tolist() for x in S(pairs).collate()])
sharded = S(range(7)).sharding_filter()
sharded.apply_sharding(3, 1)
print(list(sharded), len(sharded))
pipe = M(range(5)).map(next_one)
print(pipe[2], len(pipe), list(pipe), M([1]).concat(M([2]))[1], M([1, 2]).zip(M([3, 4]))[1], sorted(pipe.shuffle()))
print(M(range(5)).batch(2)[2], len(M(range(5)).batch(2)), [x.tolist() for x in DataLoader(pipe, batch_size=2)])

@functional_datapipe("twice")
class Twice(IterDataPipe):
    def __init__(self, source):
        self.source = source

    def __iter__(self):
        for x in self.source:
            yield x
            yield x

print(list(S([1, 2]).twice()), [x.tolist() for x in DataLoader(S(range(5)).twice(), batch_size=4)], Twice([1]))
for use in (
    lambda: S([1]).concat([1]), lambda: S([1]).nothing, lambda: len(S([1]).filter(is_odd)), lambda: S([1]).batch(0),
    lambda: list(S([1]).unbatch()), lambda: M([1]).batch(1)[1], lambda: S([1]).map(is_odd, output_col=1),
    lambda: functional_datapipe("twice")(Twice), lambda: S([1]).shuffle(buffer_size=0),
):
    try:
        print(use())
    except Exception as error:
        print([kind.__name__ for kind in (TypeError, AttributeError, AssertionError, IndexError, ValueError)
               if isinstance(error, kind)])
print(issubclass(IterDataPipe, IterableDataset), issubclass(MapDataPipe, torch.utils.data.Dataset))
"""


def test_data_pipes_are_joined_by_calls(server: ServerProcess, pytorch: PyTorchProcess, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PIPES)
    ours = _run("-m", "telegrad", program, folder=tmp_path / "a", url=server.url)
    assert ours == _apart(pytorch, program, tmp_path / "b") and len(ours[0]) > 20


CASES = """
import unittest
import numpy as np
import torch
from torch.testing._internal.common_utils import TestCase, instantiate_parametrized_tests, parametrize, subtest

case = TestCase()
ones, close = torch.ones(2), torch.ones(2) + 1e-6
equal = [
    (ones, close), (ones, np.ones(2, np.float32)), (ones, [1.0, 1.0]), (torch.tensor(3), 3), (torch.tensor([3.5]), 3.5),
    (1, 1.0), (1.0, 1.0 + 1e-8), ("a", "a"), (None, None), ({"a": [ones]}, {"a": [close]}), ((1, ones), [1, ones]),
    (torch.float32, torch.float32), ({1, 2}, {2, 1}), (np.float64(2), 2.0), (torch.tensor(float("nan")), float("nan")),
    (True, True), ([], []), (torch.empty(0), torch.empty(0)), (int, int), (torch.Size([2]), (2,)),
]
different = [
    (ones, ones + 0.1), (ones, ones.double()), (ones, torch.ones(3)), (ones, [1.0, 2.0]), (torch.tensor(3), 4), (1, 2),
    ("a", "b"), (None, 0), ({"a": 1}, {"b": 1}), ([1], [1, 2]), ({"a": [ones]}, {"a": [-ones]}), (ones, None), (1, "1"),
    (torch.float32, torch.float64), (ones, "a"),
]
print([case.assertEqual(x, y) for x, y in equal])
for x, y in different:
    try:
        case.assertEqual(x, y)
        print("equal", x, y)
    except (AssertionError, TypeError) as error:
        print("different")
case.assertNotEqual(ones, -ones)
case.assertEqual(ones, ones + 0.1, atol=0.2, rtol=0)
case.assertEqual(ones, ones.double(), exact_dtype=False)
for wrong in (lambda: case.assertNotEqual(ones, close), lambda: case.assertEqual(ones, ones + 0.1, atol=0.01, rtol=0)):
    try:
        print("passes", wrong())
    except AssertionError:
        print("fails")

class Tests(TestCase):
    precision = 0.5

    def test_own_tolerance(self):
        self.assertEqual(ones, ones + 0.4)
        self.assertEqual(1.0, 1.25)

    @parametrize("x", [1, 2.5, "a"])
    @parametrize("f,y", [(abs, 1), subtest((len, 2), name="length")])
    def test_each(self, x, f, y):
        self.assertTrue(callable(f) and y in (1, 2) and x in (1, 2.5, "a"))

    def test_fails(self):
        self.assertEqual(ones, ones + 0.6)

instantiate_parametrized_tests(Tests)
result = unittest.TestResult()
unittest.defaultTestLoader.loadTestsFromTestCase(Tests).run(result)
print(sorted(name for name in dir(Tests) if name.startswith("test_")), result.testsRun)
print([test._testMethodName for test, _ in result.failures], result.errors)
"""


def test_cases_of_packages_compare_tensors(server: ServerProcess, pytorch: PyTorchProcess, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(CASES)
    ours = _run("-m", "telegrad", program, folder=tmp_path / "a", url=server.url)
    assert ours == _apart(pytorch, program, tmp_path / "b") and len(ours[0]) > 15
