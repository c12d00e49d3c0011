"""Backends of the program's own are given graphs, and what they return computes what the function would have."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from .harness import Case, drawn_cases, exactly
from .recording_backend import Backend
from .test_functions import outcomes_of


@pytest.fixture(autouse=True)
def _modes(tg: Any) -> Iterator[None]:
    yield
    tg.set_grad_enabled(True)
    tg.set_default_dtype(tg.float32)


@pytest.mark.parametrize("case", drawn_cases(24))
def test_graphs_compute_what_the_function_does(tg: Any, case: Case, seed: int) -> None:
    expected = outcomes_of(tg, case, seed, compiled=False)
    compiled = outcomes_of(tg, case, seed, compiled=True, backend=Backend())
    for number, (one, other) in enumerate(zip(compiled, expected, strict=True)):
        assert one == other, f"call {number // 2}"


def test_a_backend_is_given_a_graph_and_its_inputs(tg: Any) -> None:
    backend, weight = Backend(), tg.ones(3)

    @tg.compile(backend=backend)
    def function(x: Any, pair: Any) -> Any:
        y = x / (tg.abs(x) + 1)
        return (2 - y @ pair[0].T).relu()[0], pair[1]["scale"] * weight

    x, first, scale = tg.randn(2, 3), tg.randn(4, 3), tg.randn(3)
    result = function(x, (first, {"scale": scale}))
    names = [node.target for node in backend.graphs[0].graph.nodes if node.op == "placeholder"]
    assert names == ["L_x_", "L_pair_0_", "L_pair_1_scale_", "L_weight_"]
    assert all(given is tensor for given, tensor in zip(backend.inputs[0], (x, first, scale, weight), strict=True))
    assert backend.calls == [
        ["abs", "add", "truediv", "getattr", "matmul", "sub", "relu", "getitem", "mul"],
    ]
    assert exactly(tg, result) == exactly(tg, function._torchdynamo_orig_callable(x, (first, {"scale": scale})))


def test_what_a_backend_returns_computes(tg: Any) -> None:
    def with_cosines(graph: Any) -> Any:
        for node in graph.graph.nodes:
            if node.target is tg.sin:
                node.target = tg.cos
        graph.recompile()
        return graph.forward

    x = tg.randn(3, requires_grad=True)
    compiled = tg.compile(lambda x: tg.sin(x).sum(), backend=Backend(with_cosines))
    for _ in range(3):
        x.grad = None
        compiled(x).backward()
        assert tg.equal(x.grad, -x.detach().sin())
    given = tg.compile(lambda x: (x * 2, x * 3), backend=Backend(lambda graph: lambda x: (x, x)))(x)
    given[0].detach().add_(1)
    assert tg.equal(given[0], x) and tg.equal(given[1], x) and given[0] is not x
    with pytest.raises(TypeError, match="a backend's function returns 2 tensors here, not 1 results"):
        tg.compile(lambda x: (x * 2, x * 3), backend=Backend(lambda graph: lambda x: (x,)))(x)


def test_a_graph_ends_where_the_function_waits_and_another_one_begins(tg: Any) -> None:
    backend = Backend()

    def function(x: Any) -> Any:
        x.add_(1)
        y = x.sin() * 2
        if y.sum() > 0:
            y = y + 1
        return y.cos()

    compiled = tg.compile(function, backend=backend)
    for array in (np.ones(3), np.full(3, 4.0), np.ones(3)):
        x, copied = tg.tensor(array), tg.tensor(array)
        assert exactly(tg, compiled(x)) == exactly(tg, function(copied))
        assert tg.equal(x, copied)
    assert backend.calls == [["add_", "sin", "mul", "sum", "gt"], ["add", "cos"], ["cos"]]


@pytest.mark.parametrize(
    ("dynamic", "counts"), [(None, [1, 1, 2, 2, 2, 3]), (True, [1, 1, 1, 1, 1, 2]), (False, [1, 1, 2, 3, 4, 5])]
)
def test_a_backend_is_given_another_graph_as_in_pytorch(tg: Any, dynamic: bool | None, counts: list[int]) -> None:
    from telegrad.compiler.testing import CompileCounter

    counter = CompileCounter()
    compiled = tg.compile(lambda x: x.sin() * 2, backend=counter, dynamic=dynamic)
    told = []
    for size in (2, 2, 3, 4, 5, 1):
        x = tg.randn(size)
        assert tg.equal(compiled(x), x.sin() * 2)
        told.append(counter.frame_count)
    assert told == counts and counter.op_count == 2 * counts[-1]


@pytest.mark.parametrize(("sizes", "counts"), [((3, 1, 4, 0, 6, 1), [1, 2, 3, 4, 4, 4]), ((1, 3, 4, 5), [1, 2, 2, 2])])
def test_sizes_of_nothing_and_one_tell_that_a_size_varies(tg: Any, sizes: Any, counts: list[int]) -> None:
    from telegrad.compiler.testing import CompileCounter

    counter = CompileCounter()
    compiled = tg.compile(lambda x: x.sin() * 2, backend=counter)
    told = []
    for size in sizes:
        x = tg.randn(size)
        assert tg.equal(compiled(x), x.sin() * 2)
        told.append(counter.frame_count)
    assert told == counts


def test_a_size_that_varies_does_so_on_every_way_through_a_function(tg: Any) -> None:
    from telegrad.compiler.testing import CompileCounter

    counter = CompileCounter()
    compiled = tg.compile(lambda x: x.sin() if x.shape[0] < 5 else x.cos() + 1, backend=counter)
    told = []
    for size in (3, 4, 5, 6, 7, 2):
        x = tg.randn(size, 2)
        assert tg.equal(compiled(x), x.sin() if size < 5 else x.cos() + 1)
        told.append(counter.frame_count)
    assert told == [1, 2, 3, 3, 3, 3]


def test_numbers_that_vary_are_inputs_of_a_graph(tg: Any) -> None:
    backend = Backend()
    compiled = tg.compile(lambda x, n: x.view(x.shape[0] * 2, -1) * n, backend=backend)
    for size, number in ((2, 1.5), (3, 1.5), (4, 2.5), (5, 3.5), (6, 4.5)):
        x = tg.randn(size, 4)
        assert tg.equal(compiled(x, number), x.view(size * 2, -1) * number)
    numbers = [[value for value in inputs if not isinstance(value, tg.Tensor)] for inputs in backend.inputs]
    assert numbers == [[], [6], [8, 2.5]]


def test_modes_are_those_that_operations_were_called_under(tg: Any) -> None:
    backend, layer = Backend(), tg.nn.Linear(3, 3)

    def function(x: Any) -> Any:
        plain = layer(x)
        with tg.autocast("cpu", dtype=tg.bfloat16):
            cast = layer(x)
        with tg.no_grad():
            return plain, cast, layer(x) + 1, layer(x).sum().item()

    compiled, x = tg.compile(function, backend=backend), tg.randn(2, 3)
    for _ in range(3):
        assert exactly(tg, compiled(x)) == exactly(tg, function(x))
    wanted = ["linear", "_enter_autocast", "linear", "_exit_autocast", "set_grad_enabled", "linear"]
    assert backend.calls[0][:6] == wanted
    assert tg.is_grad_enabled() and not tg.is_autocast_enabled("cpu")


def test_a_failing_backend_is_an_error_unless_errors_are_suppressed(tg: Any) -> None:
    from telegrad.compiler import dynamo

    def fail(graph: Any) -> Any:
        raise ValueError("no such thing")

    x = tg.ones(2)
    compiled = tg.compile(lambda x: x.add_(1), backend=Backend(fail))
    with pytest.raises(dynamo.exc.BackendCompilerFailed, match="ValueError: no such thing") as raised:
        compiled(x)
    assert isinstance(raised.value.inner_exception, ValueError)
    with dynamo.config.patch(suppress_errors=True):
        assert compiled(x).tolist() == [3.0, 3.0]


def test_stances_settings_and_limits_tell_when_a_backend_is_asked(tg: Any) -> None:
    from telegrad.compiler import dynamo

    backend = Backend()
    compiled = tg.compile(lambda x: x * 2, backend=backend, dynamic=False)
    strict = tg.compile(lambda x, n: x * n, backend=backend, dynamic=False, fullgraph=True, recompile_limit=2)
    assert compiled(tg.ones(2)).tolist() == [2.0, 2.0]
    with tg.compiler.set_stance("fail_on_recompile"):
        assert compiled(tg.ones(2)).tolist() == [2.0, 2.0]
        with pytest.raises(RuntimeError, match="fail_on_recompile"):
            compiled(tg.ones(3))
    with dynamo.config.patch(error_on_recompile=True), pytest.raises(dynamo.exc.RecompileError):
        compiled(tg.ones(3))
    with tg.compiler.set_stance("eager_on_recompile"):
        assert compiled(tg.ones(3)).tolist() == [2.0] * 3
    assert len(backend.graphs) == 1
    with dynamo.config.patch(recompile_limit=2):
        assert [compiled(tg.ones(size)).sum().item() for size in (3, 4, 5, 2)] == [6.0, 8.0, 10.0, 4.0]
    assert len(backend.graphs) == 2
    with pytest.raises(dynamo.exc.FailOnRecompileLimitHit, match="there are 2 graphs"):
        [strict(tg.ones(2), number) for number in (3, 4, 5)]
    dynamo.reset()
    assert compiled(tg.ones(2)).tolist() == [2.0, 2.0] and len(backend.graphs) == 5


def test_first_calls_that_are_eager_and_numbers_that_are_sizes_count_as_in_pytorch(tg: Any) -> None:
    import torch
    from torch._dynamo.testing import CompileCounter as Theirs

    from telegrad.compiler.testing import CompileCounter

    def counted(lib: Any, counter: Any, stance: str, dynamic: bool | None) -> int:
        compiled = lib.compile(lambda x: x.view(x.shape[0], -1) + x.shape[0], backend=counter, dynamic=dynamic)
        with lib.compiler.set_stance(stance):
            for size in (3, 4, 6, 1):
                assert lib.equal(compiled(lib.ones(size, 2)), lib.ones(size, 2) + size)
        return int(counter.frame_count)

    stances = (
        ("default", True),
        ("eager_then_compile", None),
        ("eager_then_compile", False),
        ("eager_on_recompile", None),
    )
    for stance, dynamic in stances:
        torch._dynamo.reset()
        assert counted(tg, CompileCounter(), stance, dynamic) == counted(torch, Theirs(), stance, dynamic), stance


def test_graphs_are_counted(tg: Any) -> None:
    from telegrad.compiler import dynamo
    from telegrad.compiler.testing import CompileCounterWithBackend, EagerAndRecordGraphs, same

    dynamo.counters.clear()
    counter, keeper, x = CompileCounterWithBackend("eager"), EagerAndRecordGraphs(), tg.ones(2)
    for backend in (counter, keeper):
        compiled = tg.compile(lambda x: [x.sin() + 1, {"y": x.tolist()}], backend=backend)
        assert same(compiled(x), [x.sin() + 1, {"y": [1.0, 1.0]}]) and not same(compiled(x), [x, {"y": [1.0, 1.0]}])
    assert (counter.frame_count, counter.op_count, len(counter.graphs), len(keeper.graphs)) == (1, 2, 1, 1)
    assert dynamo.counters["stats"] == {"unique_graphs": 2, "calls_captured": 4}
    assert dynamo.counters["graph_break"] == {"the elements of a tensor are read": 4}
    assert dynamo.counters["frames"] == {"total": 4, "ok": 4}


def test_frames_are_counted_when_graphs_are_made(tg: Any) -> None:
    import torch

    from telegrad.compiler import dynamo

    def counted(lib: Any, counters: Any, backend: Any) -> tuple[dict[str, int], int]:
        counters.clear()
        for function in (lambda x: x.sin() * 2, lambda x: x.cos() * x.shape[0] if x.shape[0] < 6 else x):
            compiled = lib.compile(function, backend=backend)
            for size in (3, 3, 4, 5, 3, 7):
                compiled(lib.ones(size))
        return dict(counters["frames"]), counters["stats"]["unique_graphs"]

    mine = counted(tg, dynamo.counters, lambda graph, inputs: graph.forward)
    assert mine == counted(torch, torch._dynamo.utils.counters, "eager")


def test_a_dimension_that_is_marked_takes_all_sizes_at_once(tg: Any) -> None:
    from telegrad.compiler import dynamo

    backend = Backend()
    compiled = tg.compile(lambda x: x * 2, backend=backend)
    for size in (3, 4, 5):
        x = tg.ones(2, size)
        dynamo.mark_dynamic(x, 1)
        assert compiled(x).shape == (2, size)
    assert len(backend.graphs) == 1
    dynamo.mark_static(x)
    assert not x._dynamo_dynamic_indices


def test_each_size_of_a_dimension_that_is_marked_static_is_a_graph(tg: Any) -> None:
    import torch
    from torch._dynamo.testing import CompileCounter as Theirs

    from telegrad.compiler.testing import CompileCounter as Ours

    for lib, counter, mark in (
        (tg, Ours(), import_module("telegrad.compiler.dynamo").mark_static),
        (torch, Theirs(), torch._dynamo.mark_static),
    ):
        compiled = lib.compile(lambda x: x.sum(1) * 2, backend=counter)
        for rows, columns in ((3, 2), (4, 2), (5, 2), (3, 4), (3, 5), (3, 6)):
            x = lib.ones(rows, columns)
            mark(x, 0)
            compiled(x)
        assert counter.frame_count == 4  # one for each number of rows with two columns, one for all others of three
        torch._dynamo.reset()


def test_modules_and_copies_of_them_have_backends(tg: Any) -> None:
    import copy

    backend = Backend()
    layers = tg.nn.Sequential(tg.nn.Linear(3, 4), tg.nn.BatchNorm1d(4))
    compiled, x = tg.compile(layers, backend=backend), tg.randn(5, 3)
    expected = exactly(tg, copy.deepcopy(layers)(x))
    assert exactly(tg, compiled(x)) == expected
    names = [node.target for node in backend.graphs[0].graph.nodes if node.op == "placeholder"]
    assert names[:3] == ["L_input_", "L_self_modules_0_parameters_weight_", "L_self_modules_0_parameters_bias_"]
    assert "L_self_modules_1_buffers_running_mean_" in names
    again = copy.deepcopy(compiled)
    again.load_state_dict({name: tg.zeros_like(value) for name, value in again.state_dict().items()})
    assert again(x).tolist() == [[0.0] * 4] * 5
    assert layers[1].num_batches_tracked.item() == 1


def test_full_graphs_end_nowhere(tg: Any) -> None:
    from telegrad.compiler import dynamo

    def function(x: Any) -> Any:
        if x.sum() > 0:
            return x
        return x * 2

    def printing(x: Any) -> Any:
        print("here")
        return x + 1

    backend = Backend()
    for one, line in ((function, 1), (printing, 1)):
        where = f"{one.__code__.co_filename.split('/')[-1]}:{one.__code__.co_firstlineno + line}"
        for chosen in ({"backend": backend}, {}):
            with pytest.raises(dynamo.exc.Unsupported, match=where):
                tg.compile(one, fullgraph=True, **chosen)(tg.ones(2))
    assert not backend.graphs


def test_what_a_graph_cannot_say_is_done_as_it_is(tg: Any) -> None:
    class Triple(tg.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 3

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return gradient * 30

    backend, x = Backend(), tg.ones(2, requires_grad=True)
    compiled = tg.compile(lambda x: (Triple.apply(x.sin()) + 1).sum(), backend=backend)
    compiled(x).backward()
    assert tg.allclose(x.grad, 30 * x.detach().cos()) and not backend.graphs
