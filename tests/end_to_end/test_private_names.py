"""Private names that published packages use mean what they mean in PyTorch, or say what to use instead."""

from __future__ import annotations

from pathlib import Path

from .both_libraries import on_pytorch, on_telegrad
from .server_process import ServerProcess

PROGRAM = """
import argparse
import torch
from functorch.experimental import control_flow
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
print(control_flow.map(torch.mul, x, torch.ones(2)).tolist(), torch.ops.higher_order.cond.name())
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
    program.write_text(PROGRAM)
    assert on_telegrad(program, tmp_path / "a", server.url) == on_pytorch(program, tmp_path / "b")


def test_what_would_need_processes_says_what_to_use(server: ServerProcess, tmp_path: Path) -> None:
    uses = (
        "FullyShardedDataParallel(torch.nn.Linear(1, 1))", "fully_shard(torch.nn.ReLU())", "DeviceMesh('cpu', [0])",
        "DTensor(torch.ones(1))", "torch.distributed.FileStore('f', 2)",
    )  # fmt: skip
    lines = [f"try: {use}\nexcept NotImplementedError as e: print(e)" for use in uses]
    names = "from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard"
    more = "from torch.distributed.tensor import DeviceMesh, DTensor"
    (tmp_path / "program.py").write_text("\n".join(["import torch", names, more, *lines]))
    printed, errors = on_telegrad(tmp_path / "program.py", tmp_path / "run", server.url)
    assert errors == "" and len(printed) == len(uses)
    assert all("nn.DataParallel" in line for line in printed)


def test_types_without_tensors_are_refused_in_words(server: ServerProcess, tmp_path: Path) -> None:
    uses = (
        "torch.zeros(3, dtype=torch.float8_e4m3fn)", "torch.ones(3).to(torch.float8_e5m2)",
        "torch.tensor([1.0], dtype=torch.qint8)", "torch.set_default_dtype(torch.float8_e4m3fn)",
    )  # fmt: skip
    lines = [f"try: {use}\nexcept RuntimeError as e: print(e)" for use in uses]
    (tmp_path / "program.py").write_text("\n".join(["import torch", *lines, "print(torch.ones(1))"]))
    printed, errors = on_telegrad(tmp_path / "program.py", tmp_path / "run", server.url)
    assert errors == "" and printed[-1] == "tensor([1.])" and len(printed) == 5
    assert all("there are no tensors of torch." in line and "use bfloat16" in line for line in printed[:-1])
