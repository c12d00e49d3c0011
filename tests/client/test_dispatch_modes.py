"""``__torch_dispatch__`` of modes: which operators they see, what autograd makes of what they return, FLOP counters."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx as torchs_make_fx
from torch.utils._python_dispatch import TorchDispatchMode as TorchsMode
from torch.utils.flop_counter import FlopCounterMode as TorchsCounter

from telegrad.fx.experimental import proxy_tensor
from telegrad.utils import _python_dispatch as dispatch
from telegrad.utils.flop_counter import FlopCounterMode, register_flop_formula
from telegrad.utils.module_tracker import ModuleTracker

PROGRAMS = {
    "in place": "x = torch.ones(3, 4); x.add_(1); x.mul_(x); x.zero_(); x.fill_(2); x.copy_(torch.ones(4)); "
    "x.clamp_(0, 1); x[0].add_(2); F.relu_(x)",
    "making": "torch.zeros(2); torch.ones(2); torch.empty(2); torch.full((2,), 3.); torch.arange(4); torch.eye(2); "
    "torch.rand(2); torch.randn(2); torch.zeros_like(torch.ones(2)); torch.linspace(0, 1, 3); torch.randperm(3)",
    "views": "x = torch.ones(3, 4); x[0]; x.t(); x.reshape(2, 6); x.view(12); x.permute(1, 0); x[None]; x[1:]; "
    "x.unsqueeze(0).squeeze(0); x.expand(2, 3, 4); x.flatten(); x.chunk(2, 1); x.split(2); x.unbind(0)",
    "reductions": "x = torch.ones(3, 4); x.sum(); x.sum(0); x.mean(); x.mean(1, keepdim=True); x.max(); x.max(1); "
    "x.amax(0); x.argmax(); x.std(); x.var(0); x.prod(); x.any(); x.all(1); x.cumsum(0); x.softmax(1); "
    "x.topk(2); x.sort(); x.logsumexp(1)",
    "arithmetic": "x = torch.ones(3, 4); x * 2; x + 1; x - x; x / 3; x ** 2; 2 ** x; x == 1; x > x; x % 2; -x; "
    "x.exp(); torch.where(x > 0, x, x); torch.cat([x, x]); torch.stack([x, x]); torch.maximum(x, x); x.clamp(0, 1)",
    "types": "x = torch.ones(3, 4); x.double(); x.to(torch.float16); x.clone(); x.detach(); x.t().contiguous(); "
    "x.sum().item()",
    "products": "x = torch.ones(3, 4); x @ x.t(); torch.bmm(torch.ones(2, 3, 4), torch.ones(2, 4, 3)); "
    "x @ torch.ones(4); F.linear(x, x); F.linear(x, x, torch.ones(3)); torch.addmm(torch.ones(3), x, x.t())",
    "layers": "m = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2)); "
    "m(torch.ones(1, 3, 8, 8)); torch.nn.LayerNorm(4)(torch.ones(3, 4)); torch.nn.Embedding(3, 2).weight.sum()",
}


def _seen(program: str, library: Any, mode: Any) -> Counter[str]:
    seen: Counter[str] = Counter()

    class Log(mode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen[str(func)] += 1
            return func(*args, **(kwargs or {}))

    with library.no_grad(), Log():
        exec(program, {"torch": library, "F": library.nn.functional})  # noqa: S102 - they are ours
    return seen


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_mode_sees_the_operators_that_pytorchs_mode_sees(tg: Any, name: str) -> None:
    theirs, ours = _seen(PROGRAMS[name], torch, TorchsMode), _seen(PROGRAMS[name], tg, dispatch.TorchDispatchMode)
    for counts in (theirs, ours):
        for free in ("aten._unsafe_view.default", "aten.view.default", "aten.detach.default"):
            del counts[free]  # who reshapes how is the library's own matter
    assert ours == theirs


class _Counting(dispatch.TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def test_training_under_a_mode_gives_the_same_gradients_and_shows_the_backward_pass(tg: Any) -> None:
    layers = [
        tg.nn.Conv2d(2, 4, 3, padding=1),
        tg.nn.BatchNorm2d(4),
        tg.nn.GELU(),
        tg.nn.Flatten(),
        tg.nn.Linear(64, 3),
    ]
    model, x, y = tg.nn.Sequential(*layers), tg.randn(5, 2, 4, 4), tg.tensor([0, 1, 2, 0, 1])

    def gradients() -> list[Any]:
        model.zero_grad()
        tg.nn.functional.cross_entropy(model(x), y).backward()
        return [p.grad.numpy() for p in model.parameters()]

    plain = gradients()
    with _Counting() as mode:
        seen = gradients()
    for mine, other in zip(seen, plain, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-6)
    assert mode.seen.count("convolution") == 1 and mode.seen.count("convolution_backward") == 1
    assert {"addmm", "mm", "gelu_backward", "_log_softmax_backward_data"} <= set(mode.seen)


def test_passes_go_through_operations_inside_and_outside_of_a_mode(tg: Any, rng: np.random.Generator) -> None:
    values = rng.normal(size=(3, 3)) / 4  # where tanh is saturated, gradients are all rounding
    results = []
    for library, mode in ((torch, TorchsMode), (tg, dispatch.BaseTorchDispatchMode)):

        class Plain(mode):  # type: ignore[misc, valid-type]
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                return func(*args, **(kwargs or {}))

        x = library.tensor(values, requires_grad=True)
        called: list[Any] = []
        inner = x.sin() @ x
        with Plain():
            kept = (inner * x).exp()
            kept.register_hook(lambda grad, called=called: called.append(grad) or grad * 2)
            changed = kept * 1
            changed.mul_(x)
        total = (changed.tanh() * x).sum()
        (first,) = library.autograd.grad(total, x, create_graph=True)
        (second,) = library.autograd.grad((first**2).sum(), x)
        results.append([t.detach().numpy() for t in (total, first, second, called[0])])
    for theirs, ours in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)


def test_autograd_differentiates_what_a_mode_returns_as_the_operators_result(tg: Any) -> None:
    class Rounding(dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            return result.round() if func is tg.ops.aten.mul.Tensor else result

    x = tg.tensor([0.4, 1.4], requires_grad=True)
    with Rounding():
        y = x * 2
    assert y.tolist() == [1.0, 3.0]
    y.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0] and y.grad_fn.name() == "MulBackward0"


def test_modes_nest_and_are_left_while_they_answer(tg: Any) -> None:
    order: list[str] = []

    class Named(dispatch.TorchDispatchMode):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            order.append(f"{self.name} {func.__name__} {len(dispatch._get_current_dispatch_mode_stack())}")
            return func(*args, **(kwargs or {}))

    x = tg.ones(2)
    with Named("outer"), Named("inner"):
        x.add(1)
        with dispatch._disable_current_modes():
            x.mul(2)
        with dispatch._pop_mode_temporarily():
            x.sub(1)
    assert order == ["inner add.Tensor 1", "outer add.Tensor 0", "outer sub.Tensor 0"]
    assert not dispatch.is_in_torch_dispatch_mode()
    x.add(1)
    assert len(order) == 3


def test_a_mode_that_refuses_stops_the_program_at_the_line(tg: Any) -> None:
    class NoNaN(dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            if isinstance(result, tg.Tensor) and result.is_floating_point() and bool(result.isnan().any()):
                raise FloatingPointError(str(func))
            return result

    x = tg.tensor([-1.0, 1.0], requires_grad=True)
    with pytest.raises(FloatingPointError, match=r"aten\.log\.default"), NoNaN():
        x.abs().log().sum().add(x.log())
    assert x.add(1).tolist() == [0.0, 2.0]


def test_autocast_casts_above_modes(tg: Any) -> None:
    layer, x = tg.nn.Linear(4, 3), tg.ones(2, 4)
    with tg.autocast("cpu", tg.bfloat16), _Counting() as mode:
        y = layer(x)
        y.float().sum().backward()
    assert y.dtype is tg.bfloat16 and layer.weight.grad.dtype is tg.float32 and "addmm" in mode.seen


def _counted(library: Any, counter: Any) -> Any:
    nn = library.nn
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(64, 7))
    with counter(display=False) as counts:
        model(library.ones(2, 3, 8, 8)).sum().backward()
        library.bmm(library.ones(2, 3, 4), library.ones(2, 4, 5))
        nn.Linear(4, 4)(library.ones(2, 3, 4)).sum().backward()
        nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)(library.ones(2, 5, 16)).sum().backward()
    return {module: sum(of.values()) for module, of in counts.get_flop_counts().items()}


def test_flop_counters_count_as_pytorchs_do_by_module(tg: Any) -> None:
    theirs, ours = _counted(torch, TorchsCounter), _counted(tg, FlopCounterMode)
    assert {module: count for module, count in ours.items() if module in theirs} == theirs


def test_flop_counters_take_formulas_and_print_a_table(tg: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def of_sum(shape: Any, *args: Any, out_shape: Any = None, **kwargs: Any) -> int:
        return int(np.prod(shape))

    with FlopCounterMode(custom_mapping={tg.ops.aten.sum: of_sum}) as counter:
        tg.ones(30, 40).sum()
    assert counter.get_total_flops() == 1200 and "1.200K" in capsys.readouterr().out
    assert register_flop_formula([])(of_sum) is of_sum


def test_a_module_tracker_knows_where_the_program_is(tg: Any) -> None:
    inner = tg.nn.Linear(2, 2)
    model, seen = tg.nn.Sequential(inner, tg.nn.ReLU()), []
    passes: list[bool] = []
    with ModuleTracker() as tracker:
        inner.register_forward_pre_hook(lambda *_: seen.append(set(tracker.parents)))
        inner.register_full_backward_hook(lambda *_: passes.append(tracker.is_bw))
        out = model(tg.ones(1, 2, requires_grad=True)).sum()
        passes.append(tracker.is_bw)
        out.backward()
        assert tracker.parents == {"Global"}
    assert (passes, tracker.is_bw) == ([False, True], False)
    assert seen == [{"Global", "Sequential", "Sequential.0"}]


PROGRAM = Path(__file__).parent / "dispatch_program.txt"
PRINTED_UNDER_PYTORCH = """\
LoggingTensor(tensor([6.])) ['torch._ops.aten.mul.Tensor']
LoggingTensor ['torch._ops.aten.sin.default', 'torch._ops.aten.exp.default', \
'torch._ops.aten.sum.default', 'torch._ops.aten.ones_like.default', 'torch._ops.aten.expand.default', \
'torch._ops.aten.mul.Tensor', 'torch._ops.aten.cos.default', 'torch._ops.aten.mul.Tensor']
['mode aten.ones.default', 'mode aten.add.Tensor']
Double 4.0
48
True torch.Size([3, 5])
torch.ones
torch.sin
Parameter containing:
tensor(..., device='meta', size=(3, 2), requires_grad=True)
"""


def test_a_program_of_pytorchs_kind_prints_the_same(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.read_text())
    run = subprocess.run([sys.executable, "-m", "telegrad", program], capture_output=True, text=True, cwd=tmp_path)
    assert (run.stdout, run.stderr) == (PRINTED_UNDER_PYTORCH, "")


def _weighted(t: Any) -> Any:
    weight = t.arange(12.0).reshape(4, 3)
    return lambda x: t.nn.functional.linear(x, weight).relu().sum()


TRACED: dict[str, Any] = {
    "closure": _weighted,
    "module": lambda t: t.nn.Linear(3, 2),
    "data": lambda t: lambda x: (x + t.tensor([1.0, 2.0, 3.0])).mul_(2),
    "several": lambda t: lambda x: x.max(1)[0] + x.split(2)[0].clone().add_(1).sum(),
    "tree": lambda t: lambda x: {"a": x.t() @ x, "b": [x * 2, 3]},
    "composites": lambda t: lambda x: t.softmax(x, -1).var(0) + t.nn.functional.gelu(x).norm(),
    "views": lambda t: lambda x: x[1].reshape(-1).cumsum(0),
}


@pytest.mark.parametrize("kind", ["real", "fake"])
@pytest.mark.parametrize("name", TRACED)
def test_make_fx_has_pytorchs_operators(tg: Any, rng: np.random.Generator, name: str, kind: str) -> None:
    has_constants = name in ("closure", "module", "data")  # which are no fake tensors
    arrays = rng.standard_normal((2, 2, 3)).astype(np.float32)
    graphs = []
    for t, make_fx in ((tg, proxy_tensor.make_fx), (torch, torchs_make_fx)):
        first, second = (t.tensor(array) for array in arrays)
        function = TRACED[name](t)
        traced = make_fx(function, tracing_mode="real" if has_constants else kind)(first)
        graphs.append([(node.op, str(node.target)) for node in traced.graph.nodes])
        for x in (first, second):
            t.testing.assert_close(traced(x), function(x))
    assert graphs[0] == graphs[1]


def test_make_fx_refuses_what_it_cannot_see(tg: Any) -> None:
    for function, message in (
        (lambda x: x * x.sum().item(), "get value out of a tracing tensor"),
        (lambda x: tg.func.jvp(tg.sin, (x,), (x,))[1], "jvp, jacfwd and hessian are in no graph"),
    ):
        with pytest.raises(RuntimeError, match=message):
            proxy_tensor.make_fx(function)(tg.ones(3))


def _gradients(lib: Any) -> dict[str, Any]:
    """Return functions that differentiate, of two tensors."""
    functional = lib.nn.functional

    def trained(w: Any, x: Any) -> Any:
        w = w.detach().requires_grad_()
        (x @ w.t()).relu().sum().backward()
        return w.grad

    def twice(w: Any, x: Any) -> Any:
        w = w.detach().requires_grad_()
        (first,) = lib.autograd.grad((w.exp() * x).sum(), w, create_graph=True)
        return lib.autograd.grad(first.sin().sum(), w)[0]

    return {
        "product": trained,
        "second": twice,
        "vjp": lambda w, x: lib.func.vjp(lib.sin, w)[1](x)[0],
        "update": lambda w, x: w - 0.5 * lib.func.grad(lambda w: (w * x).tanh().sum())(w),
        "convolution": lambda w, x: lib.func.grad(
            lambda w: functional.max_pool1d(functional.conv1d(x[:, None], w[:, None], padding=1), 2).sum()
        )(w),
    }


@pytest.mark.parametrize("name", ["product", "second", "vjp", "update", "convolution"])
def test_make_fx_traces_gradients(tg: Any, rng: np.random.Generator, name: str) -> None:
    arrays = rng.standard_normal((2, 3, 4)).astype(np.float32)
    graphs = []
    for lib, make_fx in ((tg, proxy_tensor.make_fx), (torch, torchs_make_fx)):
        w, x = (lib.tensor(array) for array in arrays)
        function = _gradients(lib)[name]
        traced = make_fx(function)(w, x)
        lib.testing.assert_close(traced(x, w), function(x, w))
        graphs.append([str(node.target) for node in traced.graph.nodes])
    if name in ("product", "second"):  # others have more copies, or their gradients consist of other operators
        assert sorted(graphs[0]) == sorted(graphs[1])


_FORWARD: dict[str, Any] = {
    "jvp": lambda t, x: t.func.jvp(lambda y: t.nn.functional.layer_norm(y, (3,)) * y, (x,), (x + 1,))[1],
    "jacfwd": lambda t, x: t.func.jacfwd(lambda y: y.clone().mul_(2).add_(y * y))(x),
    "hessian": lambda t, x: t.func.hessian(lambda y: (y.softmax(-1) * y**2).sum())(x),
    "gradient": lambda t, x: t.func.grad(lambda y: t.func.jvp(lambda z: (z**3).sum(), (y,), (y,))[1])(x),
    "batched": lambda t, x: t.func.vmap(lambda y: t.func.jvp(lambda z: z.exp().sum(), (y,), (y,))[1])(x.expand(2, 3)),
}


@pytest.mark.parametrize("records", [True, False])
@pytest.mark.parametrize("name", _FORWARD)
def test_modes_leave_tangents_as_they_are(tg: Any, rng: np.random.Generator, name: str, records: bool) -> None:
    x = tg.tensor(rng.standard_normal(3))
    expected = _FORWARD[name](tg, x)
    assert expected.abs().sum() > 0
    with tg.set_grad_enabled(records), dispatch.BaseTorchDispatchMode():
        tg.testing.assert_close(_FORWARD[name](tg, x), expected)
