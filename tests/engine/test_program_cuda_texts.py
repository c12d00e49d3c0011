"""Fused CUDA kernels: the texts of random chains compile, and on a GPU they compute what single operations compute."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("cuda.bindings.nvrtc")

from server.compilations import compilations
from server.engine import keys
from server.engine.cuda import check, families
from server.engine.cuda.pointwise import fused
from server.engine.cuda.runtime import compiler
from server.engine.cuda.runtime.launch import collecting
from server.engine.operators import OPERATORS
from server.engine.programs.analysis import Analysis, shared_memory
from server.engine.programs.graph import Graph, Slot, Step, run
from server.engine.programs.grouping import Grouping
from server.engine.programs.lowering import lowered
from server.engine.programs.specialise import specialise
from telegrad_protocol.meta import Device, Meta

from ..ops.adapters import EngineAdapter
from .cuda_registrations import registrations, withdraw
from .random_programs import ELEMENTWISE, RandomProgram

_ = registrations
withdraw()
GPU = Device("cuda:0")


def texts_of(program: RandomProgram) -> list[str]:
    """The texts of a program's fused kernels, if its tensors were on a GPU."""
    graph = program.graph()
    metas = [value.meta for value in program.values[: program.inputs]]
    known = {slot: Meta.of(m.shape, m.dtype, GPU, m.strides, m.offset) for slot, m in zip(graph.inputs, metas)}
    analysis = Analysis(graph.steps, known, dict(zip(graph.inputs, shared_memory(program.values))))
    groups = [group.positions for group in Grouping(graph.steps, analysis, {GPU: keys.CUDA}).ordered()]
    needed = frozenset(analysis.roots.values())
    return [
        fused.written(lowered(group, graph.steps, analysis, needed).kernel).text for group in groups if len(group) > 1
    ]


def test_texts_of_random_chains_compile(seed: int, tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TELEGRAD_KERNEL_CACHE", f"{tmp_path}/kernels")
    families.import_families()
    adapter, rng = EngineAdapter(), random.Random(seed)
    torch.manual_seed(seed)
    texts: list[str] = []
    with collecting(check.OLDEST):
        while len(texts) < 6:
            program = RandomProgram(adapter, rng, large=False)
            program.record(12, ELEMENTWISE)
            texts += texts_of(program)
    for text in texts:
        assert check.compile_one(text, check.OLDEST, ()) is None, text


@pytest.mark.parametrize("name", ["logaddexp2", "gcd", "lcm", "lgamma"])
def test_texts_have_the_functions_that_few_expressions_call(
    name: str, seed: int, tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TELEGRAD_KERNEL_CACHE", f"{tmp_path}/kernels")
    families.import_families()
    adapter, rng = EngineAdapter(), random.Random(seed)
    texts: list[str] = []
    with collecting(check.OLDEST):
        for _ in range(100):
            program = RandomProgram(adapter, rng, large=False)
            program.record(4, [OPERATORS[name], OPERATORS["add"]])
            texts += [text for text in texts_of(program) if f" {name}_" in text]
            if texts:
                break
    assert texts
    assert check.compile_one(texts[0], check.OLDEST, ()) is None, texts[0]


@pytest.mark.gpu
def test_fused_chains_on_a_gpu(cuda_device: str, seed: int) -> None:
    """Within a few units in the last place: the compiler contracts products and sums across operations."""
    adapter, rng = EngineAdapter(cuda_device), random.Random(seed)
    torch.manual_seed(seed)
    names = ("add", "mul", "sub", "tanh", "exp_", "sigmoid", "where", "gt", "mul_", "add_", "silu", "maximum", "abs")
    for large in (False, True) * 10:
        program = RandomProgram(adapter, rng, large, types=(torch.float32, torch.bool, torch.int32))
        program.record(10, [OPERATORS[name] for name in names])
        graph = program.graph()
        plain, quick = program.fresh_inputs(), program.fresh_inputs()
        executable = specialise(graph, [value.meta for value in quick], shared_memory(quick))
        generator = adapter.context.generators[adapter.device]
        generator.manual_seed(seed)
        results = [*executable.run(quick), *quick]
        generator.manual_seed(seed)
        for mine, wanted in zip(results, [*run(graph, plain), *plain], strict=True):
            got, expected = adapter.numpy(mine).astype(np.float64), adapter.numpy(wanted).astype(np.float64)
            np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4, err_msg=str(executable.describe()))


@pytest.mark.gpu
def test_kernels_are_compiled_beside_a_session_on_a_gpu(
    cuda_tg: Any, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step with dropout and a rate that changes: unfused at first, then fused, captured, and close to eager."""
    monkeypatch.setenv("TELEGRAD_KERNEL_CACHE", f"{tmp_path}/kernels")
    rng = np.random.default_rng(seed)
    batches = rng.standard_normal((400, 6, 32)).astype("f")

    def losses(compiled: bool, stop: Callable[[int], bool]) -> list[float]:
        cuda_tg.manual_seed(seed)
        weight = (cuda_tg.randn(32, 32, device="cuda") / 6).requires_grad_()
        gain = cuda_tg.ones(32, device="cuda").requires_grad_()
        optimizer = cuda_tg.optim.SGD([weight, gain], lr=0.1)

        def step(x: Any) -> Any:
            optimizer.zero_grad()
            hidden = x @ weight
            gated = hidden * (hidden * 1.5 + 0.1).sigmoid() * gain
            loss = (cuda_tg.nn.functional.dropout(gated, 0.1) - x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        run, made = cuda_tg.compile(step) if compiled else step, []
        for number, batch in enumerate(batches):
            optimizer.param_groups[0]["lr"] = 0.1 / (1 + number % 7)
            made.append(run(cuda_tg.tensor(batch, device="cuda")).item())
            if stop(number):
                break
        return made

    beside, last = compilations.beside, [0, 0]
    waited: list[str] = []
    compiled = compiler._compile
    monkeypatch.setattr(
        compiler, "_compile", lambda source, options: waited.append(source) or compiled(source, options)
    )

    def stop(number: int) -> bool:
        if compilations.beside == last[1] and compilations.beside > beside:
            return number > last[0] + 40
        last[:] = number, compilations.beside
        time.sleep(0.02)  # the compiler's process has time
        return False

    mine = losses(True, stop)
    expected = losses(False, lambda number: number + 1 >= len(mine))
    np.testing.assert_allclose(mine, expected, rtol=1e-3)
    assert compilations.beside > beside
    assert not [source for source in waited if " fused(" in source], "no session waits for a fused kernel"


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_a_gated_unit_on_a_gpu(cuda_device: str, dtype: torch.dtype) -> None:
    """SwiGLU written out is one kernel, within the rounding of the result's type."""
    adapter = EngineAdapter(cuda_device)
    gate, up = torch.randn(33, 65, dtype=dtype), torch.randn(65, dtype=dtype)
    x, y, z, u, v = map(Slot, range(5))
    steps = [("sigmoid", (x,), z), ("mul", (x, z), u), ("mul", (u, y), v)]
    graph = Graph([Step(OPERATORS[name], args, (out,)) for name, args, out in steps], [x, y], [v])
    values = [adapter.tensor(gate), adapter.tensor(up)]
    executable = specialise(graph, [value.meta for value in values], shared_memory(values))
    assert executable.describe().kernels_after == 1
    expected = torch.nn.functional.silu(gate.double()) * up.double()
    got = adapter.numpy(executable.run(values)[0]).astype(np.float64)
    np.testing.assert_allclose(got, expected.numpy(), rtol=torch.finfo(dtype).eps * 2, atol=1e-6)
