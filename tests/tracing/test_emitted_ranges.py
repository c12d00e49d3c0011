"""``emit_nvtx``: what a profiler that is attached to the worker is shown of a program, beside PyTorch's names."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from telegrad_protocol.errors import ArgumentTypeError, AutogradError, ShapeError

from ..support.written_ranges import WrittenRanges, write_ranges


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Iterator[WrittenRanges]:
    yield (written := write_ranges(monkeypatch))
    assert not written.open, "ranges are open that nobody ends"


def _train(lib: Any, optimizer: Any, weight: Any, x: Any) -> None:
    with lib.autograd.profiler.record_function("forward"):
        loss = lib.mm(x, weight).relu().sum()
    loss.backward()
    optimizer.step()


def test_a_training_step_has_pytorchs_names_between_the_programs_ranges(
    tg: Any, written: WrittenRanges, rng: np.random.Generator
) -> None:
    w, x = rng.standard_normal((3, 4), np.float32), rng.standard_normal((2, 3), np.float32)
    weight, data = tg.tensor(w).requires_grad_(), tg.tensor(x)
    expected = torch.tensor(w).requires_grad_()
    ours, theirs = tg.optim.SGD([weight], lr=0.1), torch.optim.SGD([expected], lr=0.1)
    for _ in range(4):
        _train(torch, theirs, expected, torch.tensor(x))
        with tg.autograd.profiler.emit_nvtx(record_shapes=True) as block, tg.cuda.nvtx.range("step {}", 1):
            _train(tg, ours, weight, data)
            tg.cuda.nvtx.mark("done")
        assert block.entered
        np.testing.assert_allclose(weight.tolist(), expected.tolist(), rtol=1e-5)
        lines = written.take()
        assert lines[:4] == [
            "step 1", "  forward", "    aten::mm, seq = 0, sizes = [[2, 3], [3, 4]]",
            "    aten::relu, seq = 1, sizes = [[2, 4]]",
        ]  # fmt: skip
        names = [line.strip() for line in lines]
        nodes = [name.partition(", sizes")[0] for name in names if "Backward0" in name]
        assert nodes == ["SumBackward0, seq = 2", "ReluBackward0, seq = 1", "MmBackward0, seq = 0"]
        assert names[-1] == "! done" and "Optimizer.step#SGD.step" in names
    assert len(data.tolist()) == 2 and not written.lines, "nothing is emitted outside of the block"


def test_names_tell_no_shapes_unless_asked_to(tg: Any, written: WrittenRanges) -> None:
    with tg.autograd.profiler.emit_nvtx():
        (tg.ones(2, 3) @ tg.ones(3, 4)).tolist()
    assert "aten::matmul" in written.lines and not any("sizes" in line for line in written.lines)


def test_what_is_executed_as_one_otherwise_is_a_range_for_each_operation(tg: Any, written: WrittenRanges) -> None:
    """These are calls that a loop makes again and again, a compiled function, and passes that are replayed."""

    def chain(x: Any) -> Any:
        for _ in range(12):
            x = x.sin()
        return x.exp()

    compiled = tg.compile(chain)
    x, leaf = tg.ones(4), tg.ones(4, requires_grad=True)

    def results() -> list[list[float]]:
        leaf.grad = None
        chain(leaf).sum().backward()
        return [chain(x).tolist(), compiled(x).tolist(), leaf.grad.tolist()]

    expected = [results() for _ in range(20)][-1]
    with tg.autograd.profiler.emit_nvtx():
        for _ in range(20):
            written.take()
            assert results() == expected
            names = [line.strip().partition(",")[0] for line in written.take()]
            assert (names.count("aten::sin"), names.count("SinBackward0")) == (36, 12)
    assert results() == expected


def test_ranges_of_threads_and_ranges_that_overlap(tg: Any, written: WrittenRanges) -> None:
    nvtx = tg.cuda.nvtx
    assert (nvtx.range_push("outside"), nvtx.range_pop(), nvtx.range_start("outside")) == (-2, -2, 0)
    with tg.autograd.profiler.emit_nvtx():
        assert (nvtx.range_pop(), nvtx.range_push("a"), nvtx.range_push("b")) == (-2, 0, 1)
        whole = nvtx.range_start("whole")
        assert whole > 0 and nvtx.range_pop() == 1
        other = threading.Thread(target=lambda: (nvtx.range_push("other"), nvtx.mark("there"), nvtx.range_pop()))
        other.start()
        other.join()
        nvtx.range_end(whole)
        assert nvtx.range_pop() == 0
        for call, wrong in ((nvtx.range_push, 3), (nvtx.mark, None), (nvtx.range_start, b"x"), (nvtx.range_end, "x")):
            with pytest.raises(ArgumentTypeError, match="nvtx: expected"):
                call(wrong)
        assert tg.ones(1).item() == 1
    assert [line for line in written.take() if "::" not in line] == [
        "a", "  b", "    whole", "  whole", "    other", "      ! there",
    ]  # fmt: skip


def test_ranges_end_where_the_program_fails(tg: Any, written: WrittenRanges) -> None:
    emit, part = tg.autograd.profiler.emit_nvtx, tg.profiler.record_function
    with pytest.raises(ShapeError), emit(), tg.cuda.nvtx.range("step"), part("part"):
        tg.cuda.nvtx.range_push("never popped")
        tg.mm(tg.ones(2, 3), tg.ones(2, 3)).tolist()
    assert not tg.autograd._profiler_enabled()
    tg.ones(2).tolist()
    assert "    never popped" in written.take() and not written.open
    with emit():
        assert tg.square(tg.ones(1)).item() == 1
    assert "aten::square" in written.lines


def test_one_thing_looks_at_a_program_at_a_time(tg: Any, written: WrittenRanges) -> None:
    emit = tg.autograd.profiler.emit_nvtx
    with emit() as block:
        assert tg.autograd._profiler_enabled()
        for other in (tg.profiler.profile(), tg.autograd.profiler.profile(), emit()):
            with pytest.raises(AutogradError, match="is going on in this program"):
                other.__enter__()
        with pytest.raises(AutogradError, match="cannot be entered twice"):
            block.__enter__()
    with tg.profiler.profile() as profile, pytest.raises(AutogradError, match="a profile is going on"):
        emit().__enter__()
    assert profile.events() is not None
    with emit(enabled=False):
        tg.ones(2).tolist()
    assert not any("aten::ones" in line for line in written.lines)


def test_a_server_without_a_gpu_emits_nothing_and_says_so(tg: Any) -> None:
    emit_nvtx, emit_itt = tg.autograd.profiler.emit_nvtx, tg.autograd.profiler.emit_itt
    with pytest.warns(UserWarning, match="emit_nvtx: the server has no GPU, so nothing is emitted"), emit_nvtx():
        assert not tg.autograd._profiler_enabled()
        with tg.cuda.nvtx.range("step"):
            assert tg.ones(2).sum().item() == 2
    with pytest.warns(UserWarning, match=r"emit_itt: Intel's profilers .* profiler.profile\(\)"), emit_itt():
        assert tg.ones(2).sum().item() == 2


def test_launches_are_made_within_the_range_of_their_operation(
    node: Any, written: WrittenRanges, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = node.ones(4, device="cuda")
    backend = x._session.transport._session.state.backends[x.device]
    flushed: list[list[str]] = []
    plain = backend.flush

    def flush() -> None:
        flushed.append(list(written.open))
        plain()

    monkeypatch.setattr(backend, "flush", flush, raising=False)
    with node.autograd.profiler.emit_nvtx():
        assert (x + x).tolist() == [2] * 4
    assert ["aten::add"] in flushed


def test_cupys_library_takes_what_a_program_emits(cuda_tg: Any) -> None:
    """Whether a profiler shows it cannot be told from within: nothing fails, and results are the same."""
    tg = cuda_tg
    weight, x = tg.randn(64, 64), tg.randn(64, 64)
    gradients = []
    for enabled in (False, True):
        leaf = weight.clone().requires_grad_()
        for _ in range(4):
            with tg.autograd.profiler.emit_nvtx(enabled, record_shapes=True), tg.cuda.nvtx.range("step"):
                tg.cuda.nvtx.mark("begin")
                tg.nn.functional.gelu(x @ leaf).sum().backward()
        gradients.append(leaf.grad.tolist())
    np.testing.assert_allclose(*gradients, rtol=1e-4, atol=1e-4)
    with tg.autograd.profiler.emit_nvtx():
        graph = tg.cuda.CUDAGraph()
        with tg.cuda.graph(graph):
            captured = (x * 2).sin()
        graph.replay()
        np.testing.assert_allclose(captured.tolist(), (x * 2).sin().tolist(), rtol=1e-6)
