"""Training over two GPUs of one session: gradients, in-place rules, autocast, optimizers, scaling, saving, loading."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from telegrad._ops.functions import function
from telegrad_protocol.errors import AutogradError, DeviceError, InplaceError, TelegradError


def test_a_gradient_lands_where_its_tensor_is(node: Any) -> None:
    w = node.tensor([1.0, 2.0], device="cuda:0", requires_grad=True)
    v = node.tensor([3.0, 4.0], device="cuda:1", requires_grad=True)
    moved = w.to("cuda:1")
    moved.retain_grad()
    ((moved * v).to("cpu") * 2).sum().backward()
    assert (w.grad.device, moved.grad.device, v.grad.device) == ("cuda:0", "cuda:1", "cuda:1")
    assert (w.grad.tolist(), v.grad.tolist()) == ([6, 8], [2, 4])
    first, second = node.autograd.grad((w.cuda(1) ** 3 * v).sum(), [w, v], create_graph=True)
    (again,) = node.autograd.grad((first.cuda(1) * second).sum(), [v])
    assert (first.device, second.device, again.device) == ("cuda:0", "cuda:1", "cuda:1")
    np.testing.assert_allclose(again.numpy(), 3 * np.float32([1, 2]) ** 5)  # the gradient of 3 w^2 v * w^3


def test_copies_into_a_tensor_of_another_gpu_are_differentiated(node: Any) -> None:
    w = node.tensor([1.0, 2.0, 3.0], device="cuda:0", requires_grad=True)
    target = node.zeros(2, 3, device="cuda:1")
    target[1].copy_(w * 2)
    target[0] = w
    (target * target).sum().backward()
    assert target.grad_fn is not None and w.grad.device == "cuda:0"
    np.testing.assert_allclose(w.grad.numpy(), np.float32([1, 2, 3]) * (2 + 8))
    picked = w.detach().requires_grad_()
    picked[node.tensor([2, 0, 2], device="cpu")].to("cuda:1").sum().backward()
    assert picked.grad.tolist() == [1, 0, 2], "indices may be on the host"
    assert picked[node.tensor([True, False, True], device="cpu")].tolist() == [1, 3]


def test_a_tensor_that_was_saved_on_another_gpu_must_not_be_changed(node: Any) -> None:
    w = node.ones(2, device="cuda:0", requires_grad=True)
    moved = w.to("cuda:1") * 1
    loss = (moved * moved).sum().to("cuda:0")
    moved.add_(1)
    with pytest.raises(TelegradError, match="modified"):
        loss.backward()
        node.cuda.synchronize()
    fine = w.to("cuda:1")
    product = (fine * 3).sum()
    w.detach().add_(1)  # the copy was not changed
    product.backward()
    assert w.grad.tolist() == [3, 3]
    with pytest.raises(InplaceError, match="leaf"):
        w.copy_(node.ones(2, device="cuda:1"))


WRONG = {
    "a + b": "add: ", "a @ b": "matmul: ", "a.add_(b)": "add_: ", "tg.add(a, a, out=b)": "add: ", "a == b": "eq: ",
    "tg.cat([a, b])": "cat: ", "tg.stack([a[0, 0], b[0, 0]])": "stack: ", "tg.where(a > 0, a, b)": "where: ",
    "a[b.long()]": "index: ", "a.masked_fill(b > 0, 1)": "masked_fill: ", "tg.nn.functional.linear(a, b)": "linear: ",
    "a.cpu() * b": "mul: ", "a.gather(0, b.long())": "gather: ", "tg.nn.Linear(2, 2)(b)": "linear: ",
    "tg.nn.functional.mse_loss(a, b)": "mse_loss: ", "a.index_put_((tg.tensor([0]),), b[0])": "index_put_: ",
    "tg.einsum('ij,jk->ik', a, b)": "", "tg.ones((), device='cpu').add_(a[0, 0])": "add_: ", "a.mul_(b[0])": "mul_: ",
    "a.cpu()[a.long()]": "index: ",
}  # fmt: skip


@pytest.mark.parametrize("program", WRONG)
def test_operands_on_two_gpus_are_refused_at_the_call(node: Any, program: str) -> None:
    a, b = node.ones(2, 2, device="cuda:0"), node.ones(2, 2, device="cuda:1")
    wanted = WRONG[program] + r".*Expected all tensors to be on the same device, but found at least two devices, "
    trips = a._session.round_trips
    with pytest.raises(DeviceError, match=wanted + r"(cuda:[01]|cpu) and (cuda:[01]|cpu)!"):
        eval(program, {"tg": node, "a": a, "b": b})  # noqa: S307 - the test's own programs
    assert a._session.round_trips == trips, "nothing was asked of the server"
    assert (a + b.to("cuda:0")).tolist() == [[2, 2], [2, 2]]


FINE = {
    "a * tg.tensor(2.0, device='cpu')": [[2, 2], [2, 2]], "tg.tensor(2.0, device='cpu') - b": [[1, 1], [1, 1]],
    "a.copy_(b * 3)": [[3, 3], [3, 3]], "a.masked_fill(a > 0, tg.tensor(5.0, device='cpu'))": [[5, 5], [5, 5]],
    "a.fill_(b[0, 0] * 4)": [[4, 4], [4, 4]], "a[tg.tensor([1], device='cpu')]": [[1, 1]],
    "a.type_as(b.double()) + b": [[2, 2], [2, 2]], "a.reshape(4).view_as(b)": [[1, 1], [1, 1]],
    "tg.where(a > 1, a, tg.tensor(7.0, device='cpu'))": [[7, 7], [7, 7]], "b.new_zeros(2, 2) + b": [[1, 1], [1, 1]],
    "a.index_put((tg.tensor([0], device='cpu'),), tg.tensor(9.0, device='cpu'))": [[9, 9], [1, 1]],
}  # fmt: skip


@pytest.mark.parametrize("program", FINE)
def test_some_operands_may_be_elsewhere_as_in_pytorch(node: Any, program: str) -> None:
    a, b = node.ones(2, 2, device="cuda:0"), node.ones(2, 2, device="cuda:1")
    result = eval(program, {"tg": node, "a": a, "b": b})  # noqa: S307 - the test's own programs
    assert result.is_cuda and result.tolist() == FINE[program]


class Pipeline:
    """A model of two stages that may be on different devices, and an optimizer for both."""

    def __init__(self, tg: Any, places: tuple[str, str], optimizer: str) -> None:
        nn = tg.nn
        tg.manual_seed(11)
        self.tg, self.places = tg, places
        self.first = nn.Sequential(nn.Linear(6, 16, device="cpu"), nn.ReLU()).to(places[0])
        self.second = nn.Sequential(nn.LayerNorm(16, device="cpu"), nn.Linear(16, 3, device="cpu")).to(places[1])
        settings = {"SGD": {"lr": 0.1, "momentum": 0.9}, "AdamW": {"lr": 0.01}, "Adam": {"lr": 0.01, "amsgrad": True}}
        self.optimizer = getattr(tg.optim, optimizer)(self.parameters, **settings[optimizer])
        self.scaler = tg.amp.GradScaler("cuda", init_scale=8.0, growth_interval=3)

    @property
    def parameters(self) -> list[Any]:
        return [*self.first.parameters(), *self.second.parameters()]

    def logits(self, x: np.ndarray) -> Any:
        return self.second(self.first(self.tg.tensor(x, device=self.places[0])).to(self.places[1]))

    def step(self, x: np.ndarray, y: np.ndarray, kind: int = 0, lower: Any = None) -> float:
        """One step; ``kind`` picks a loss, and ``lower`` a type to cast to, with scaled gradients."""
        F = self.tg.nn.functional
        with self.tg.autocast("cuda", dtype=lower or self.tg.bfloat16, enabled=lower is not None):
            logits = self.logits(x)
            target = self.tg.tensor(y, device=self.places[1])
            loss = F.cross_entropy(logits, target) if kind == 0 else (logits.float() ** 2).mean() * kind
        self.optimizer.zero_grad()
        if lower is None:
            loss.backward()
            self.optimizer.step()
        else:
            self.scaler.scale(loss).backward()
            self.scaler.unscale_(self.optimizer)
            self.scaler.step(self.optimizer)
            self.scaler.update()
        return float(loss.item())


def _batch(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    return rng.standard_normal((8, 6), np.float32), rng.integers(0, 3, 8)


@pytest.mark.parametrize("optimizer", ["SGD", "AdamW", "Adam"])
@pytest.mark.parametrize("lower", [None, "float16", "bfloat16"])
def test_a_pipeline_trains_as_on_one_gpu(
    node: Any, rng: np.random.Generator, optimizer: str, lower: str | None
) -> None:
    """Many steps, so that backward passes are replayed, with other losses in between; all losses are the same bits."""
    one, two = Pipeline(node, ("cuda:0", "cuda:0"), optimizer), Pipeline(node, ("cuda:0", "cuda:1"), optimizer)
    dtype = None if lower is None else getattr(node, lower)
    for step in range(30):
        x, y = _batch(rng)
        kind = (0, 0, 0, 1, 0, 2)[step % 6] if step > 8 else 0
        assert one.step(x, y, kind, dtype) == two.step(x, y, kind, dtype), f"step {step}"
    assert {p.grad.device.name for p in two.parameters} == {"cuda:0", "cuda:1"}
    for mine, other in zip(one.parameters, two.parameters, strict=True):
        np.testing.assert_array_equal(mine.numpy(force=True), other.numpy(force=True))
    assert one.scaler.get_scale() == two.scaler.get_scale()


@pytest.mark.parametrize("both", [False, True])
def test_replayed_passes_over_two_gpus_give_the_gradients_of_the_engine(
    node: Any, rng: np.random.Generator, both: bool
) -> None:
    """A graph whose root, leaves and saved tensors are on two GPUs, the same in every step, with data that changes."""
    w, v = (
        node.tensor(rng.standard_normal((4, 4), np.float32) / 3, device=place, requires_grad=True)
        for place in ("cuda:0", "cuda:1")
    )
    for step in range(25):
        data = rng.standard_normal((4, 4), np.float32)
        x = node.tensor(data, device="cuda:0")
        hidden = (x @ w).tanh().to("cuda:1")
        out = (hidden @ v).exp()
        loss = (out.to("cuda:0") * x).sum() if both else out.sum()
        w.grad = v.grad = None
        loss.backward()
        tw, tv = (torch.tensor(p.numpy(force=True), requires_grad=True) for p in (w, v))
        tx = torch.tensor(data)
        result = ((tx @ tw).tanh() @ tv).exp()
        (result * tx if both else result).sum().backward()
        for mine, theirs in ((w, tw), (v, tv)):
            assert mine.grad.device == mine.device
            np.testing.assert_allclose(
                mine.grad.numpy(), theirs.grad.numpy(), rtol=1e-4, atol=1e-4, err_msg=f"step {step}"
            )
        with node.no_grad():
            w -= 0.01 * w.grad.clamp(-1, 1)
            v -= 0.01 * v.grad.clamp(-1, 1)


def test_a_step_skips_all_gpus_where_a_gradient_of_one_overflows(node: Any) -> None:
    w = node.ones(2, device="cuda:0", requires_grad=True)
    v = node.ones(2, device="cuda:1", requires_grad=True)
    scaler = node.amp.GradScaler("cuda", init_scale=4.0)
    optimizer = node.optim.SGD([w, v], lr=0.5)
    for factor, moved, scale in ((float("inf"), [1, 1], 2.0), (1.0, [0.5, 0.5], 2.0)):
        optimizer.zero_grad()
        loss = w.sum() + (v * factor).sum().to("cuda:0")
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        assert (w.tolist(), v.tolist(), scaler.get_scale()) == (moved, moved, scale)


@pytest.mark.parametrize("order", [1.0, 2.0, float("inf"), 0.0])
def test_gradients_on_two_gpus_are_clipped_as_on_one(node: Any, rng: np.random.Generator, order: float) -> None:
    grads = [rng.standard_normal(5).astype(np.float32) for _ in range(3)]
    theirs = [torch.zeros(5, requires_grad=True) for _ in grads]
    ours = [node.zeros(5, device=f"cuda:{n % 2}", requires_grad=True) for n in range(3)]
    for mine, reference, grad in zip(ours, theirs, grads, strict=True):
        mine.grad, reference.grad = node.tensor(grad, device=mine.device), torch.tensor(grad)
    wanted = torch.nn.utils.clip_grad_norm_(theirs, 0.7, order)
    norm = node.nn.utils.clip_grad_norm_(ours, 0.7, order)
    assert norm.device == "cuda:0"
    np.testing.assert_allclose(norm.item(), wanted.item(), rtol=1e-5)
    for mine, reference in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine.grad.numpy(), reference.grad.numpy(), rtol=1e-5)
        assert mine.grad.device == mine.device
    node.nn.utils.clip_grad_value_(ours, 0.01)
    assert all(float(mine.grad.abs().max()) <= 0.0101 for mine in ours)


def test_lists_of_tensors_may_span_gpus_row_by_row(node: Any) -> None:
    a = [node.ones(2, device=0), node.ones(2, device=1)]
    total = function("_foreach_add")(a, a)
    assert [(t.tolist(), t.device.index) for t in total] == [([2, 2], 0), ([2, 2], 1)]
    function("_foreach_mul_")(total, 3.0)
    function("_foreach_copy_")(a, [total[1], total[0]])
    assert [(t.tolist(), t.device.index) for t in a] == [([6, 6], 0), ([6, 6], 1)]
    with pytest.raises(DeviceError, match="Expected all tensors to be on the same device"):
        function("_foreach_add")(a, a[::-1])


def test_a_learning_rate_may_be_a_tensor_of_one_gpu(node: Any) -> None:
    params = [node.ones(2, device=n, requires_grad=True) for n in (0, 1)]
    optimizer = node.optim.SGD(params, lr=node.tensor(0.25, device="cuda:1"))
    for parameter in params:
        parameter.grad = node.ones_like(parameter)
    optimizer.step()
    assert [p.tolist() for p in params] == [[0.75, 0.75]] * 2


def test_modules_and_their_state_move_between_gpus(node: Any, tmp_path: Path) -> None:
    net = node.nn.Sequential(node.nn.Linear(3, 2), node.nn.Linear(2, 1))
    net[0].register_buffer("steps", node.zeros(1))
    x = node.ones(4, 3)
    expected = net(x).tolist()
    net(x).sum().backward()
    weight = net[0].weight
    net.to("cuda:1")
    assert net[0].weight is weight and weight.grad.device == weight.device == net[0].steps.device == "cuda:1"
    assert net(x.to("cuda:1")).tolist() == expected
    with node.cuda.device(0):
        net.cuda()
    assert {p.device.index for p in net.parameters()} == {0}
    net[1].cuda(1)
    assert net[1](net[0](x).cuda(1)).tolist() == expected
    node.save(net.state_dict(), tmp_path / "net.safetensors")
    loaded = node.load(tmp_path / "net.safetensors", map_location="cuda:1")
    assert {value.device.index for value in loaded.values()} == {1}
    other = node.nn.Sequential(node.nn.Linear(3, 2), node.nn.Linear(2, 1))
    other[0].register_buffer("steps", node.ones(1))
    other.load_state_dict(loaded)
    assert other[0].weight.device == "cuda:0" and other(x).tolist() == expected
    with node.cuda.device(1):
        assert next(iter(node.load(tmp_path / "net.safetensors").values())).device == "cuda:1"
        cuda = node.load(tmp_path / "net.safetensors", map_location="cuda")
        assert {value.device.index for value in cuda.values()} == {1}


def test_the_state_of_an_optimizer_follows_its_parameters(node: Any, rng: np.random.Generator) -> None:
    trained = Pipeline(node, ("cuda:0", "cuda:1"), "AdamW")
    batches = [_batch(rng) for _ in range(4)]
    for x, y in batches[:2]:
        trained.step(x, y)
    copy = Pipeline(node, ("cuda:1", "cuda:0"), "AdamW")
    for mine, theirs in ((copy.first, trained.first), (copy.second, trained.second)):
        mine.load_state_dict(theirs.state_dict())
    copy.optimizer.load_state_dict(trained.optimizer.state_dict())
    for x, y in batches[2:]:
        np.testing.assert_allclose(copy.step(x, y), trained.step(x, y), rtol=1e-6)
    for parameter, state in copy.optimizer.state.items():
        assert {value.device for value in state.values()} == {parameter.device}


def test_autocast_keeps_a_cast_of_each_gpus_weights(node: Any) -> None:
    weights = [node.ones(4, 4, device=index, requires_grad=True) for index in (0, 1)]
    with node.autocast("cuda", dtype=node.bfloat16):
        first = node.ones(2, 4, device="cuda:0") @ weights[0]
        second = first.to("cuda:1") @ weights[1]
        again = first.to("cuda:1") @ weights[1]
    assert (first.dtype, second.dtype, second.device) == (node.bfloat16, node.bfloat16, "cuda:1")
    (second + again).float().sum().backward()
    assert [w.grad.device.index for w in weights] == [0, 1]
    assert weights[1].grad.dtype is node.float32 and weights[1].grad[0, 0].item() == 16
    with pytest.raises(AutogradError):
        (second + again).float().sum().backward()
        node.cuda.synchronize()
