"""``tg.cuda.comm`` and ``nn.parallel`` on two GPUs: what they give, what they refuse, that they train as PyTorch."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np
import pytest
import torch

from telegrad_protocol.errors import ArgumentError, DeviceError, ShapeError

Point = namedtuple("Point", ("x", "y"))


def _places(tensors: Any) -> list[str]:
    return [str(tensor.device) for tensor in tensors]


def test_a_tensor_is_copied_to_all_gpus(node: Any) -> None:
    comm = node.cuda.comm
    x = node.arange(6.0, device="cuda:0")
    copies = comm.broadcast(x, (0, "cuda:1"))
    assert copies[0] is x and _places(copies) == ["cuda:0", "cuda:1"] and copies[1].tolist() == x.tolist()
    assert _places(comm.broadcast(x.cpu(), [1, 0])) == ["cuda:1", "cuda:0"]
    out = [node.zeros(6, device="cuda:1"), x]
    assert comm.broadcast(x, out=out)[0] is out[0] and out[0].tolist() == x.tolist()
    lists = comm.broadcast_coalesced([x, x + 1], [0, 1])
    assert [_places(row) for row in lists] == [["cuda:0"] * 2, ["cuda:1"] * 2]
    assert lists[0][0] is x and lists[1][1].tolist() == (x + 1).tolist()


def test_tensors_of_all_gpus_are_added(node: Any) -> None:
    comm = node.cuda.comm
    x, y = node.ones(3, device="cuda:0"), node.full((3,), 2.0, device="cuda:1")
    for destination, place in ((None, "cuda:0"), (1, "cuda:1"), ("cuda:0", "cuda:0")):
        total = comm.reduce_add([x, y, x], destination)
        assert (str(total.device), total.tolist()) == (place, [4, 4, 4])
    assert x.tolist() == [1, 1, 1], "operands stay what they were"
    with node.cuda.device(1):
        rows = comm.reduce_add_coalesced([[x, x * 2], [y, y * 2]])
    assert _places(rows) == ["cuda:1", "cuda:1"] and [row.tolist()[0] for row in rows] == [3, 6]
    assert comm.reduce_add([x]) is x


def test_a_tensor_is_split_over_gpus_and_joined(node: Any) -> None:
    comm = node.cuda.comm
    for x in (node.arange(10.0, device="cuda:1").reshape(5, 2), node.arange(10.0, device="cpu").reshape(5, 2)):
        parts = comm.scatter(x, (0, 1))
        assert _places(parts) == ["cuda:0", "cuda:1"] and [tuple(p.shape) for p in parts] == [(3, 2), (2, 2)]
        assert [tuple(p.shape) for p in comm.scatter(x, (0, 1), chunk_sizes=[1, 4])] == [(1, 2), (4, 2)]
        assert [tuple(p.shape) for p in comm.scatter(x, (0, 1), dim=-1)] == [(5, 1), (5, 1)]
        assert len(comm.scatter(x[:1], (0, 1))) == 1, "one row goes to one GPU"
        out = [node.zeros(2, 2, device="cuda:1"), node.zeros(3, 2, device="cuda:0")]
        comm.scatter(x, out=out)
        assert out[1].tolist() == x[2:].tolist()
        for destination, place in ((None, "cuda:0"), ("cuda:1", "cuda:1"), ("cpu", "cpu"), (-1, "cpu")):
            joined = comm.gather(parts, destination=destination)
            assert str(joined.device) == place and joined.tolist() == x.tolist()
        target = node.zeros(5, 2, device="cuda:1")
        assert comm.gather(parts, out=target) is target and target.tolist() == x.tolist()


REFUSED = {
    "comm.broadcast(x)": (ArgumentError, "Exactly one of 'devices' and 'out' must be specified"),
    "comm.broadcast(x, [0], out=[x])": (ArgumentError, "Exactly one of"),
    "comm.broadcast(x, [])": (ArgumentError, "at least one device"),
    "comm.broadcast(x, ['cpu'])": (DeviceError, "expected a GPU"),
    "comm.broadcast(x, out=[x[:2]])": (ShapeError, "tensor 0"),
    "comm.reduce_add([x, x.cpu()])": (DeviceError, "input 1 is on cpu"),
    "comm.reduce_add([x, x[:2]])": (ArgumentError, r"input 1 has invalid size: got \[2\], but expected \[6\]"),
    "comm.reduce_add([x, x], 1)": (DeviceError, "destination to be on the same GPU with one of the tensors"),
    "comm.reduce_add_coalesced([[x], [x, x]])": (ArgumentError, "one length"),
    "comm.scatter(x, [0, 1], [1, 2, 3])": (ArgumentError, r"len\(devices\) = 2 and len\(chunk_sizes\) = 3"),
    "comm.scatter(x)": (ArgumentError, "Exactly one of"),
    "comm.scatter(x, out=[x[:2]])": (ShapeError, "2 elements along dim 0, not 6"),
    "comm.gather([x, x.cpu()])": (DeviceError, "tensor at index 1 has device 'cpu'"),
    "comm.gather([x], 0, 1, out=x)": (ArgumentError, "must not be specified"),
    "tg.nn.parallel.gather([x.cpu(), x.cpu()], 0)": (DeviceError, "not implemented for CPU tensors"),
    "tg.nn.parallel.gather([{'a': x}, {}], 0)": (ArgumentError, "same number of keys"),
    "tg.nn.parallel.data_parallel(tg.nn.Linear(6, 1, device=1), x, [0, 1])": (
        DeviceError, r"parameters and buffers on device cuda:0 \(device_ids\[0\]\) .* on device: cuda:1"),
    "tg.nn.DataParallel(tg.nn.Linear(6, 1, device=0), [1, 0])(x)": (DeviceError, r"on device cuda:1 .* cuda:0"),
    "tg.nn.DataParallel(tg.nn.Linear(6, 1), [0, 3])": (DeviceError, "cuda:3 is not there"),
    "tg.nn.DataParallel(tg.nn.LazyLinear(1))(x)": (RuntimeError, "uninitialized parameters can't be used"),
    "tg.nn.DataParallel(tg.nn.Linear(6, 1)).bias": (AttributeError, "'DataParallel' object has no attribute 'bias'"),
}  # fmt: skip


@pytest.mark.parametrize("program", REFUSED)
def test_what_does_not_fit_is_refused(node: Any, program: str) -> None:
    error, message = REFUSED[program]
    x = node.arange(6.0, device="cuda:0")
    with pytest.raises(error, match=message):
        eval(program, {"tg": node, "comm": node.cuda.comm, "x": x})  # noqa: S307 - the test's own programs


def test_arguments_are_split_and_results_joined_in_any_structure(node: Any) -> None:
    parallel = node.nn.parallel
    x = node.arange(4.0)
    structure = {"a": (x, [x * 2, "text"]), "b": Point(x, 3), "c": ()}
    first, second = parallel.scatter(structure, [0, 1])
    assert first["a"][1][1] == "text" and first["b"].y == second["b"].y == 3 and first["c"] == ()
    assert isinstance(second["b"], Point) and second["b"].x.device == second["a"][0].device == "cuda:1"
    assert (first["a"][0].tolist(), second["a"][1][0].tolist()) == ([0, 1], [4, 6])
    outputs = [{"out": (part["a"][0], None), "p": Point(part["b"].x, part["a"][0])} for part in (first, second)]
    joined = parallel.gather(outputs, "cuda:1")
    assert joined["out"][0].tolist() == joined["p"].y.tolist() == x.tolist() and joined["out"][1] is None
    assert joined["out"][0].device == "cuda:1"
    inputs, named = parallel.scatter_kwargs((x[:1],), {"y": x}, [0, 1])
    assert [len(row) for row in inputs] == [1, 0] and [sorted(row) for row in named] == [["y"], ["y"]]
    with pytest.warns(UserWarning, match="all input tensors were scalars"):
        assert parallel.gather([x.sum(), x.sum().to("cuda:1")], 0).tolist() == [6, 6]


def test_replicas_share_nothing_but_what_is_there(node: Any) -> None:
    shared = node.nn.Linear(2, 2)
    net = node.nn.Sequential(shared, node.nn.Sequential(shared), node.nn.ParameterList([node.ones(2)]))
    net.register_buffer("steps", node.zeros(1))
    here, there = node.nn.parallel.replicate(net, [0, 1])
    assert there[0].weight is there[1][0].weight and there[0].weight.device == there[2][0].device == "cuda:1"
    assert here[0].weight is shared.weight and here.steps is net.steps, "on its own GPU nothing is copied"
    assert not there[0].weight.is_leaf and there.steps.device == "cuda:1"
    there[0].weight.sum().backward()
    assert shared.weight.grad.tolist() == [[1, 1], [1, 1]] and shared.weight.grad.device == "cuda:0"
    assert not node.nn.parallel.replicate(net, [1], detach=True)[0][0].weight.requires_grad
    assert [n for n, _ in net.named_parameters()] == ["0.weight", "0.bias", "2.0"], "the module stays what it was"


def test_each_replica_runs_on_its_gpu_and_says_if_it_fails(node: Any) -> None:
    class Net(node.nn.Module):
        def forward(self, x: Any, fails: bool = False) -> Any:
            if fails and x.device == "cuda:1":
                raise KeyError("broken")
            return x + node.full(x.shape, float(node.cuda.current_device())), node.zeros(1).device.index

    seen = node.nn.parallel.parallel_apply([Net(), Net()], [node.ones(2, device=0), node.ones(2, device=1)])
    assert [(out.tolist(), index) for out, index in seen] == [([1, 1], 0), ([2, 2], 1)]
    with pytest.raises(KeyError, match="broken") as raised:
        node.nn.DataParallel(Net())(node.ones(4), fails=True)
    assert raised.value.__notes__ == ["in replica 1 on device cuda:1"]
    with pytest.raises(ArgumentError, match="for each of 2 modules"):
        node.nn.parallel.parallel_apply([Net(), Net()], [node.ones(2)])


def test_names_and_settings_are_those_of_pytorch(node: Any) -> None:
    net = node.nn.Linear(3, 2)
    net.register_buffer("scale", node.ones(1))
    wrapped = node.nn.DataParallel(net)
    theirs = torch.nn.DataParallel(torch.nn.Linear(3, 2))
    assert list(wrapped.state_dict()) == [*theirs.state_dict(), "module.scale"]
    assert (wrapped.device_ids, wrapped.output_device, wrapped.dim, wrapped.module) == ([0, 1], 0, 0, net)
    wrapped.load_state_dict({name: value + 1 for name, value in wrapped.state_dict().items()})
    assert net.scale.item() == 2 and net.scale.device == "cuda:0"
    one = node.nn.DataParallel(node.nn.Linear(3, 2), device_ids=["cuda:1"])
    out = one(node.ones(4, 3, device="cpu"))
    assert (one.device_ids, one.output_device) == ([1], 1) and out.device == one.module.weight.device == "cuda:1"
    assert wrapped(node.ones(1, 3)).shape == (1, 2), "a batch of one row goes to one GPU"
    joined = node.nn.DataParallel(net, output_device=1)(node.ones(5, 3, device="cpu"))
    assert joined.device == "cuda:1" and joined.shape == (5, 2)
    assert node.nn.DataParallel(net, output_device="cpu")(node.ones(5, 3)).device == "cpu"


def test_without_gpus_the_module_is_called(tg: Any) -> None:
    net = tg.nn.Linear(3, 2)
    wrapped = tg.nn.DataParallel(net)
    x = tg.ones(4, 3)
    assert wrapped.device_ids == [] and wrapped(x).tolist() == net(x).tolist()
    with pytest.raises(DeviceError, match="no available GPUs"):
        tg.nn.parallel.data_parallel(net, x)


def _model(nn: Any) -> Any:
    class Model(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 8))
            self.head = nn.Linear(8, 3, bias=False)
            self.register_buffer("scale", self.head.weight.detach().new_full((1,), 0.5))

        def forward(self, batch: Any, *, shift: Any) -> Any:
            hidden = self.inner(batch["x"]) + shift
            return {"logits": self.head(hidden) * self.scale, "norms": (hidden * hidden).sum(1)}

    return Model()


@pytest.mark.parametrize("how", ["module", "function"])
def test_a_model_trains_as_under_pytorch(node: Any, rng: np.random.Generator, how: str) -> None:
    """Batches of odd sizes, so that the GPUs' parts differ; against PyTorch on the CPU, from the same weights."""
    torch.manual_seed(int(rng.integers(1 << 30)))
    reference = _model(torch.nn)
    net = _model(node.nn)
    net.load_state_dict({name: node.tensor(value.numpy()) for name, value in reference.state_dict().items()})
    wrapped = node.nn.DataParallel(net) if how == "module" else None
    ours = node.optim.AdamW(net.parameters(), lr=1e-2)
    theirs = torch.optim.AdamW(reference.parameters(), lr=1e-2)
    for step in range(12):
        rows = (7, 4, 1, 9)[step % 4]
        x, shift = rng.standard_normal((rows, 6), np.float32), rng.standard_normal((rows, 8), np.float32)
        y = rng.integers(0, 3, rows)
        losses = []
        for tg, optimizer, run in ((node, ours, wrapped or net), (torch, theirs, reference)):
            batch, named = {"x": tg.from_numpy(x)}, {"shift": tg.from_numpy(shift)}
            if run is net:
                out = node.nn.parallel.data_parallel(net, (batch,), module_kwargs=named)
            else:
                out = run(batch, **named)
            loss = tg.nn.functional.cross_entropy(out["logits"], tg.from_numpy(y)) + 0.01 * out["norms"].mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        np.testing.assert_allclose(losses[0], losses[1], rtol=2e-5, atol=1e-6, err_msg=f"step {step}")
    for name, value in reference.state_dict().items():
        np.testing.assert_allclose(net.state_dict()[name].numpy(), value.numpy(), rtol=2e-3, atol=2e-5, err_msg=name)
