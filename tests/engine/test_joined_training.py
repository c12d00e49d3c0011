"""A GPT's training step in mixed precision: its kernels on a GPU, and that joined steps change nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("cuda.bindings.nvrtc")

from server.engine import functional as F
from server.engine import keys
from server.engine.cuda import check, families
from server.engine.cuda.optim import casts
from server.engine.cuda.pointwise.fused import texts_of
from server.engine.cuda.rows import column_sums, layer_norm, totals
from server.engine.cuda.runtime.launch import collecting
from server.engine.programs.analysis import Analysis
from server.engine.programs.expansion import traced
from server.engine.programs.fused import JOINERS, Joiner
from server.engine.programs.graph import Graph, Step, run
from server.engine.programs.grouping import Grouping
from server.engine.programs.joined import CASTS, GRADIENTS, NORM, PARTS, PRODUCTS, SUMS, WEIGHTS, Joined
from server.engine.programs.joins import passes
from server.engine.programs.joins.sums import with_sums_apart
from server.engine.programs.joins.uses import Uses
from server.engine.programs.specialise import Specialisation, specialise
from server.session.programs import recording
from telegrad_protocol import dtypes
from telegrad_protocol.meta import Device, Meta

from ..ops.adapters import EngineAdapter
from .cuda_registrations import registrations, withdraw
from .emulated_kernels import EmulatedKernel
from .joined_steps import ExecutorDevice, join_on_the_host, shifted

_ = registrations
families.import_families()
withdraw()
GPU = Device("cuda:0")
LAYERS, WIDTH, HEADS, WORDS = 6, 32, 2, 19
STEPS = 5


def _gpt(tg: Any, device: str) -> tuple[Any, Callable[[Any, Any], Any]]:
    """The parameters of a GPT, and its logits, with the casts that autocast makes on a GPU written out."""
    nn, F, half = tg.nn, tg.nn.functional, tg.bfloat16

    def linear(x: Any, layer: Any) -> Any:
        return F.linear(x.to(half), layer.weight.to(half), layer.bias.to(half))

    def block() -> Any:
        sizes = ((WIDTH, 3 * WIDTH), (WIDTH, WIDTH), (WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH))
        return nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH), *[nn.Linear(a, b) for a, b in sizes]])

    blocks = nn.ModuleList([block() for _ in range(LAYERS)]).to(device)
    words, norm = nn.Embedding(WORDS, WIDTH).to(device), nn.LayerNorm(WIDTH).to(device)

    def attended(qkv: Any) -> Any:
        n, t, _ = qkv.shape
        q, k, v = [part.view(n, t, HEADS, -1).transpose(1, 2) for part in qkv.split(WIDTH, dim=2)]
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return mixed.transpose(1, 2).reshape(n, t, WIDTH)

    def loss_of(tokens: Any, following: Any) -> Any:
        x = words(tokens)
        for first, second, qkv, out, up, down in blocks:
            x = x + linear(attended(linear(first(x), qkv)), out)
            x = x + linear(F.gelu(linear(second(x), up), approximate="tanh"), down)
        logits = F.linear(norm(x).to(half), words.weight.to(half))
        return F.cross_entropy(logits.view(-1, WORDS).float(), following.view(-1))

    return [*words.parameters(), *blocks.parameters(), *norm.parameters()], loss_of


def _trained(tg: Any, seed: int, compiled: bool, device: str = "cpu", tokens: int = 40) -> list[Any]:
    """Losses, and all parameters after a few steps of AdamW."""
    tg.manual_seed(seed)
    rng = np.random.default_rng(seed)
    parameters, loss_of = _gpt(tg, device)
    optimizer = tg.optim.AdamW(parameters, lr=1e-2, fused=True)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = loss_of(x, y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    run = tg.compile(step) if compiled else step
    told: list[Any] = []
    for _ in range(STEPS):
        batch = tg.tensor(rng.integers(0, WORDS, (8, tokens + 1)), device=device)
        told.append(run(batch[:, :-1].contiguous(), batch[:, 1:].contiguous()).item())
    return [told, *[p.detach().cpu().numpy() for p in parameters]]


@pytest.fixture(autouse=True)
def small_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients as small as these are summed by the kernel that makes them, too."""
    monkeypatch.setattr(column_sums, "_LEAST", 1)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Graph, Any, Any]]:
    """The graphs of what is recorded, with the metas and the memory of inputs."""
    noted: list[tuple[Graph, Any, Any]] = []
    optimise = recording.optimised

    def optimised(graph: Graph, metas: Any, memory: Any) -> Specialisation:
        noted.append((graph, metas, memory))
        return optimise(graph, metas, memory)

    monkeypatch.setattr(recording, "optimised", optimised)
    monkeypatch.setattr(recording, "LONGEST_SECONDS", 1e9)
    return noted


def _there(item: Any) -> Any:
    """The same on a GPU; a learning rate lies in the device's memory there."""
    if isinstance(item, Meta):
        return Meta.of(item.shape, item.dtype, GPU, item.strides, item.offset)
    if isinstance(item, tuple):
        return tuple(map(_there, item))
    if item is float:
        return Meta.of((), dtypes.float64, GPU)
    return GPU if isinstance(item, Device) else item


def _grouped(graph: Graph, metas: Any, memory: Any) -> tuple[Grouping, Grouping, Uses]:
    """The groups of element-wise steps, and those with joined steps besides, if the values were on a GPU."""
    steps = [Step(step.operator, _there(step.args), step.outs) for step in graph.steps]
    known = {slot: _there(meta) for slot, meta in zip(graph.inputs, metas, strict=True)}
    memories = dict(zip(graph.inputs, memory, strict=True))
    plain = Grouping(steps, Analysis(steps, known, memories), {GPU: keys.CUDA})
    steps = with_sums_apart(steps, plain.analysis, {GPU: keys.CUDA})
    analysis = Analysis(steps, known, memories)
    uses = Uses(steps, analysis, graph.outputs)
    return plain, passes.joined(Grouping(steps, analysis, {GPU: keys.CUDA}), uses, graph.outputs), uses


def _kernels(grouping: Grouping) -> Counter[str]:
    """How many kernels there are, by what they do: the names of their steps, or the kind of joined ones."""
    told: Counter[str] = Counter()
    for group in grouping.ordered():
        names = [grouping.steps[p].operator.op.name for p in group.positions]
        if len(names) > 1 or grouping.steps[group.positions[0]].operator.op.view_of is None:
            told[f"{group.kind} of {' '.join(names)}" if group.kind else " ".join(names)] += 1
    return told


@pytest.mark.parametrize("makes_kernels", [False, True], ids=["in turn", "as kernels"])
def test_joined_steps_change_no_bit(tg: Any, seed: int, makes_kernels: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of losses and parameters; on a host that makes kernels of them, and on one that executes them in turn."""
    monkeypatch.setattr(recording, "LONGEST_SECONDS", 1e9)
    expected = _trained(tg, seed, False)
    made = join_on_the_host(monkeypatch) if makes_kernels else []
    for mine, other in zip(_trained(tg, seed, True), expected, strict=True):
        np.testing.assert_array_equal(mine, other)
    assert {one.kind for one in made} == (
        {NORM, GRADIENTS, SUMS, PARTS, CASTS, PRODUCTS, WEIGHTS} if makes_kernels else set()
    )


def test_what_only_moves_elements_is_no_kernel_of_its_own(tg: Any, seed: int, recorded: list[Any]) -> None:
    """Casts of weights and of gradients are one kernel each, those of activations are parts of normalizations.

    Gradients of biases are made with the gradients that they are sums of, but where attention makes these. Attention
    makes the gradients of query, key and value where that of the product belongs.
    """
    _trained(tg, seed, True, tokens=200)
    plain, joined, _ = _grouped(*recorded[-1])
    before, after = _kernels(plain), _kernels(joined)
    weights, norms, of_loss = 8 * LAYERS + 1, 2 * LAYERS + 1, 2
    gradients, residual = weights - before["_to_copy add"], norms - 2
    assert before["_to_copy"] == weights + gradients + 2 * norms + 1 + of_loss
    assert before["_to_copy add"] == 1, "the gradient of the words has two parts"
    assert before["add _to_copy"] == residual
    assert before["add"] == norms, "forward, and in front of the embedding backward"
    assert {name: count for name, count in after.items() if "_to_copy" in name or name == "add"} == {
        "_to_copy": of_loss,
        "_to_copy add": 1,
        f"{NORM} of _layer_norm _to_copy": 1,
        f"{NORM} of add _layer_norm _to_copy": norms - 1,
        f"{GRADIENTS} of _to_copy _layer_norm_gradients _to_copy sum": 1,
        f"{GRADIENTS} of _to_copy _layer_norm_gradients add _to_copy sum": residual,
        f"{GRADIENTS} of _to_copy _layer_norm_gradients add": 1,
        f"{CASTS} of {' '.join(['_to_copy'] * weights)}": 1,
        f"{CASTS} of {' '.join(['_to_copy'] * gradients)}": 1,
    }
    assert {
        name: count for name, count in after.items() if name.startswith((SUMS, PARTS)) or name in ("sum", "cat")
    } == {
        f"{SUMS} of _gelu_backward sum": LAYERS,
        f"{PARTS} of _attention_backward transpose view transpose view transpose view cat": LAYERS,
    }
    fewer = weights + gradients - 2 + 2 * norms + 1 + residual + norms + before["cat"]
    assert after.total() == before.total() - fewer


def test_texts_of_joined_kernels_compile(
    tg: Any, seed: int, recorded: list[Any], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TELEGRAD_KERNEL_CACHE", f"{tmp_path}/kernels")
    _trained(tg, seed, True)
    _, joined, uses = _grouped(*recorded[-1])
    texts: dict[str, str] = {}
    for group in joined.ordered():
        if not group.kind:
            continue
        kernel = passes.described(group, joined.steps, joined.analysis, uses).kernel
        with collecting(check.OLDEST):
            texts.update(dict.fromkeys(texts_of(ExecutorDevice(), kernel), group.kind))  # type: ignore[arg-type]
    assert {*texts.values()} == {NORM, GRADIENTS, SUMS, PARTS, CASTS}
    for text, kind in texts.items():
        assert check.compile_one(text, check.OLDEST, ()) is None, kind


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kinds of joined steps that the host executes by what launches kernels on a GPU, over emulated kernels."""
    launched: list[str] = []
    for module in (layer_norm, totals, casts):
        monkeypatch.setattr(module, "load", lambda text, name: EmulatedKernel(text))
    for kind in (NORM, GRADIENTS, CASTS):
        joiner = JOINERS[keys.CUDA, kind]

        def makes(backend: Any, joined: Joined, own: Joiner = joiner) -> Any:
            launched.append(joined.kind)
            return own.makes(backend, joined)

        monkeypatch.setitem(JOINERS, (keys.CPU, kind), joiner._replace(makes=makes))
    return launched


@pytest.mark.parametrize("name", ["layer", "rms"])
@pytest.mark.parametrize("offset", [0, 1])
def test_launches_pass_what_kernels_declare(
    adapter: EngineAdapter, seed: int, name: str, offset: int, emulated: list[str]
) -> None:
    """Each address and number lies where the kernel looks for it, whatever roles there are."""
    torch.manual_seed(seed)
    length, rms = 48, name == "rms"
    drawn = [torch.randn(5, length), torch.randn(5, length).bfloat16(), torch.randn(5, length).bfloat16()]
    drawn += [torch.randn(length), torch.randn(length), torch.randn(70, 100), torch.randn(3)]

    def both(first: Any, weight: Any, bias: Any, grad: Any, added: Any) -> list[Any]:
        affine = (weight,) if rms else (weight, bias)
        made = getattr(F, f"_{name}_norm")(first, (length,), *affine, 1e-5)
        grad = F._to_copy(F.cumsum(grad, 0), dtype=dtypes.float32)
        gradients = getattr(F, f"_{name}_norm_gradients")(grad, first, *made[1:], weight, (length,))
        by_input = gradients[0] if added is None else F.add(gradients[0], added)
        narrow = [F._to_copy(one, dtype=dtypes.bfloat16) for one in (made[0], by_input)]
        return [*narrow, by_input, *made[1:], *gradients[1:]]

    def function(x: Any, y: Any, grad: Any, weight: Any, bias: Any, *others: Any) -> tuple[Any, ...]:
        total = F.add(y, x)
        results = [total, *both(total, weight, bias, grad, x), *both(x, None, None, grad, None)]
        return *results, *[F._to_copy(other, dtype=dtypes.float16) for other in others]

    values = [shifted(adapter, tensor, offset) for tensor in drawn]
    graph = traced(function, [value.meta for value in values])
    expected = run(graph, values)
    executable = specialise(graph, [value.meta for value in values])
    for mine, other in zip(executable.run(values), expected, strict=True):
        digits = {2: 2.0**-7, 4: 1e-5}[other.meta.dtype.itemsize]
        got, wanted = (adapter.numpy(one).astype(np.float64) for one in (mine, other))
        np.testing.assert_allclose(got, wanted, rtol=digits, atol=digits)
    assert {*emulated} == {NORM, GRADIENTS, CASTS}


def test_a_step_over_emulated_kernels_is_close(
    tg: Any, seed: int, emulated: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "LONGEST_SECONDS", 1e9)
    expected = _trained(tg, seed, False)
    for mine, other in zip(_trained(tg, seed, True), expected, strict=True):
        np.testing.assert_allclose(mine, other, rtol=2e-2, atol=2e-2)
    assert {*emulated} == {NORM, GRADIENTS, CASTS}


@pytest.mark.gpu
def test_joined_steps_on_a_gpu(cuda_tg: Any, seed: int) -> None:
    """Losses and parameters are close to those of eager steps."""
    expected = _trained(cuda_tg, seed, False, "cuda")
    for mine, other in zip(_trained(cuda_tg, seed, True, "cuda"), expected, strict=True):
        np.testing.assert_allclose(mine, other, rtol=2e-2, atol=2e-2)
