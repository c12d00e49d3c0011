"""Compiled functions: they do what they do without ``compile``, and what they queue is sent as runs of programs."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from telegrad_protocol import messages, wire
from telegrad_protocol.programs.messages import DefineProgram, RunProgram

from .asserting import increased

CALLS = 4


class Sent:
    """The instructions that a session has sent, batch by batch, and their bytes."""

    def __init__(self, session: Any) -> None:
        self.batches: list[bytes] = []
        send = session.transport.send_batch

        def note(body: bytes) -> None:
            self.batches.append(bytes(body))
            send(body)

        session.transport.send_batch = note

    def take(self) -> list[Any]:
        """Return the instructions since the last call."""
        taken = [one for body in self.batches for one in wire.decode_instructions(body)]
        self.batches.clear()
        return taken


@pytest.fixture
def session(tg: Any) -> Any:
    return tg.ones(1)._session


@pytest.fixture
def sent(session: Any) -> Sent:
    return Sent(session)


def _training(tg: Any, width: int = 8) -> tuple[Any, Any]:
    tg.manual_seed(5)
    model = tg.nn.Sequential(tg.nn.Linear(6, width), tg.nn.GELU(), tg.nn.Dropout(0.3), tg.nn.Linear(width, 3))
    return model, tg.optim.AdamW(model.parameters(), lr=1e-2)


def _step(tg: Any, model: Any, optimizer: Any, x: Any, y: Any) -> Any:
    optimizer.zero_grad()
    loss = tg.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    tg.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.detach()


def _losses(tg: Any, compiled: bool, rng: np.random.Generator, steps: int = 12) -> list[Any]:
    model, optimizer = _training(tg)
    scheduler = tg.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    step = tg.compile(_step) if compiled else _step
    losses = []
    for _ in range(steps):
        rows = int(rng.integers(2, 5))
        x, y = tg.tensor(rng.standard_normal((rows, 6)).astype("f")), tg.tensor(rng.integers(0, 3, rows))
        losses.append(step(tg, model, optimizer, x, y))
        scheduler.step()
    return [loss.item() for loss in losses]


def test_training_is_equal_to_the_bit(tg: Any, session: Any, seed: int) -> None:
    eager = _losses(tg, False, np.random.default_rng(seed))
    assert session.programs.runs == 0
    assert _losses(tg, True, np.random.default_rng(seed)) == eager
    assert session.programs.runs >= 8, "shapes, learning rates and random numbers change, and the program stays"


def test_a_step_is_one_short_instruction(tg: Any, session: Any, sent: Sent, rng: np.random.Generator) -> None:
    model, optimizer = _training(tg)
    x, y = tg.tensor(rng.standard_normal((4, 6)).astype("f")), tg.tensor(rng.integers(0, 3, 4))
    step = tg.compile(_step, fullgraph=True)
    for _ in range(6):
        loss = step(tg, model, optimizer, x, y)
    session.flush()
    sent.batches.clear()
    for _ in range(3):
        loss = step(tg, model, optimizer, x, y)
        session.flush()
        nbytes = sum(map(len, sent.batches))
        (run,) = [one for one in sent.take() if not isinstance(one, messages.Free)]  # of the loss before
        assert isinstance(run, RunProgram) and nbytes < 200
    assert loss.item() > 0


def _views(tg: Any, x: Any) -> Any:
    y = x.clone()
    y[0].mul_(2)
    y.t()[1] += 1
    return y, y[:, :2], x.sum(0, keepdim=True).expand(3, -1)


def _gradients(tg: Any, x: Any) -> Any:
    leaf = x.detach().clone().requires_grad_()
    (first,) = tg.autograd.grad((leaf.sin() * leaf).sum(), leaf, create_graph=True)
    first.pow(2).sum().backward()
    return leaf.grad, first.detach()


def _modes(tg: Any, x: Any) -> Any:
    with tg.no_grad():
        a = x * 2
    with tg.autocast("cpu", dtype=tg.bfloat16):
        b = x @ x.t()
    with tg.inference_mode():
        c = x.exp()
    return a, b, c.clone()


def _branches(tg: Any, x: Any) -> Any:
    total = x.sum()
    return x * 2 if total.item() > 0 else x - 1


def _loops(tg: Any, x: Any) -> Any:
    result = x
    for n in range(x.shape[0]):
        result = tg.cat([result, x[n : n + 1] * n])
    return result


def _random(tg: Any, x: Any) -> Any:
    tg.manual_seed(x.shape[0])
    return tg.rand(3), tg.nn.functional.dropout(x, 0.5), tg.randn_like(x)


def _constants(tg: Any, x: Any) -> Any:
    return x + tg.tensor([1.0, 2.0, 3.0]), x * -0.0, x.new_zeros(2), tg.arange(x.shape[0])


def _data_dependent(tg: Any, x: Any) -> Any:
    return x[x > 0], (x > 0).nonzero(), tg.unique(x.round())


def _out(tg: Any, x: Any) -> Any:
    into = tg.empty_like(x)
    tg.add(x, 1, out=into)
    return into, tg.where(x > 0, x, 0.5), tg.stack([x, into]).max(0)


def _lists(tg: Any, x: Any) -> Any:
    parts = x.split(1, dim=1)
    return tg.cat(parts[::-1], 1), tg.einsum("ij,kj->ik", x, x), [part.mean() for part in parts]


def _functions(tg: Any, x: Any) -> Any:
    class Double(tg.autograd.Function):
        @staticmethod
        def forward(ctx: Any, value: Any) -> Any:
            ctx.save_for_backward(value)
            return value * 2

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * ctx.saved_tensors[0].cos()

    leaf = x.detach().clone().requires_grad_()
    leaf.register_hook(lambda grad: grad + 1)
    Double.apply(leaf * 1).sum().backward()
    return leaf.grad


def _caught(tg: Any, x: Any) -> Any:
    try:
        x @ tg.ones(7, 7)
    except RuntimeError:
        return x + 1
    return x


FUNCTIONS = (
    _views, _gradients, _modes, _branches, _loops, _random, _constants, _data_dependent, _out, _lists, _functions,
    _caught,
)  # fmt: skip


def _as_lists(results: Any) -> Any:
    if isinstance(results, (tuple, list)):
        return [_as_lists(result) for result in results]
    return results.float().tolist() if results.dtype.is_floating_point else results.tolist()


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__.strip("_"))
def test_results_are_those_without_compile(
    tg: Any, session: Any, function: Callable[..., Any], rng: np.random.Generator
) -> None:
    arrays = [rng.standard_normal((rows, 3)).astype("f") for rows in (3, 3, 4, 3, 2)]
    compiled = tg.compile(function)
    tg.manual_seed(1)
    expected = [_as_lists(function(tg, tg.tensor(array))) for array in arrays]
    tg.manual_seed(1)
    results = [compiled(tg, tg.tensor(array)) for array in arrays]
    assert [_as_lists(result) for result in results] == expected


def test_a_module_is_compiled_in_place_or_wrapped(tg: Any, session: Any, rng: np.random.Generator) -> None:
    model = tg.nn.Sequential(tg.nn.Linear(3, 4), tg.nn.ReLU(), tg.nn.Linear(4, 2))
    wrapped, inplace = tg.compile(model), copy.deepcopy(model)
    inplace.compile()
    for _ in range(CALLS):
        x = tg.tensor(rng.standard_normal((5, 3)).astype("f"))
        expected = model(x).tolist()
        before = session.programs.runs
        assert wrapped(x).tolist() == expected and inplace(x).tolist() == expected
    assert session.programs.runs == before + 2
    assert next(name for name, _ in wrapped.named_parameters()) == "_orig_mod.0.weight"


def test_explain_names_the_line_of_each_break(tg: Any) -> None:
    from telegrad.compiler import dynamo

    def function(x: Any) -> Any:
        y = x.sin() + 1
        if y.sum().item() > 0:  # line of a break
            y = y * 2
        dynamo.graph_break()  # line of a break
        return y.cos()

    explained = dynamo.explain(function)(tg.ones(3))
    lines = [reason.line.line for reason in explained.break_reasons]
    assert len(lines) == 2 and all("# line of a break" in line for line in lines)
    assert explained.ops_per_graph == [["sin", "add", "sum"], ["mul"], ["cos"]]
    assert (explained.graph_count, explained.graph_break_count, explained.op_count) == (3, 2, 5)
    assert "Graph Count: 3\nGraph Break Count: 2\nOp Count: 5\n" in str(explained)
    assert "the elements of a tensor are read" in str(explained)


def test_fullgraph_refuses_a_break_and_names_its_line(tg: Any) -> None:
    from telegrad.compiler.dynamo import Unsupported

    @tg.compile(fullgraph=True)
    def function(x: Any) -> Any:
        return x * 2 if x.sum() > 0 else x

    with pytest.raises(Unsupported, match=r"test_compile.py:\d+ in function: the elements of a tensor are read") as e:
        function(tg.ones(2))
    assert isinstance(e.value, NotImplementedError) and "torch.where" in str(e.value)
    assert (tg.ones(2) + 1).tolist() == [2.0, 2.0], "the session goes on"


@pytest.mark.parametrize("captured", [
    lambda tg, x: tg.cond(x.sum() > 0, tg.sin, tg.cos, (x,)),
    lambda tg, x: tg.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 2), (tg.tensor(0), x))[1],
    lambda tg, x: tg.func.hessian(lambda y: (y**3).sum())(x),
    lambda tg, x: x * x.sum().item(),
    lambda tg, x: x[x > 0],
    lambda tg, x: x + tg.from_numpy(x.numpy()),
    lambda tg, x: tg.ops.full_graphs.sorted_by_numpy(x),
    lambda tg, x: increased(x),
])  # fmt: skip
def test_fullgraph_permits_what_pytorch_has_in_one_graph(tg: Any, rng: Any, captured: Any) -> None:
    library = tg.library.Library("full_graphs", "DEF")
    library.define("sorted_by_numpy(Tensor x) -> Tensor")
    library.impl("sorted_by_numpy", lambda x: tg.from_numpy(np.sort(x.tolist())), "CPU")
    compiled = tg.compile(lambda x: captured(tg, x) * 2, fullgraph=True)
    for _ in range(5):
        x = tg.from_numpy(rng.standard_normal(6))
        assert compiled(x).tolist() == (captured(tg, x) * 2).tolist()
    library._destroy()


def test_numbers_are_breaks_in_blocks_where_breaks_are_errors(tg: Any) -> None:
    from telegrad.compiler import dynamo

    read = tg.compile(lambda x: x * x.sum().item())
    with dynamo.error_on_graph_break(True), pytest.raises(dynamo.Unsupported):
        read(tg.ones(2))
    chosen = tg.compile(lambda x: tg.cond(x.sum() > 0, tg.sin, tg.cos, (x,)))
    with dynamo.error_on_graph_break(True):
        assert chosen(tg.zeros(2)).tolist() == [1.0, 1.0]


def test_what_is_disabled_is_not_compiled(tg: Any) -> None:
    from telegrad.compiler import dynamo

    told = []

    @tg.compiler.disable(reason="it prints")
    def inner(x: Any) -> Any:
        told.append(tg.compiler.is_compiling())
        return x + 1

    def function(x: Any) -> Any:
        told.append(tg.compiler.is_compiling())
        return inner(x * 2) * 3

    explained = dynamo.explain(function)(tg.ones(1))
    assert told == [True, False] and not tg.compiler.is_compiling()
    assert "inner is not to be compiled: it prints" in explained.break_reasons[0].reason
    assert explained.ops_per_graph == [["mul"], ["mul"]]
    with tg.compiler.set_stance("force_eager"):
        tg.compile(function)(tg.ones(1))
    assert told[2:] == [False, False]


def test_a_failure_names_the_line_and_programs_go_on(tg: Any, session: Any) -> None:
    @tg.compile
    def function(x: Any, index: Any) -> Any:
        y = x * 2
        return y.index_select(0, index) + 1

    good, bad = tg.tensor([1]), tg.tensor([9])
    for index in (good, good, good, bad, good, good, good):
        result = function(tg.ones(3), index)
        if index is bad:
            with pytest.raises(IndexError, match="index 9") as error:
                result.tolist()
            assert "test_compile.py" in error.value.site and "in function" in error.value.site
        else:
            assert result.tolist() == [3.0]


def test_other_threads_work_meanwhile(tg: Any, session: Any) -> None:
    inside, may_leave, results = threading.Event(), threading.Event(), []

    @tg.compile
    def function(x: Any) -> Any:
        y = x + 1
        inside.set()
        may_leave.wait()
        return y * 2

    for _ in range(CALLS):
        inside.clear()
        may_leave.clear()
        thread = threading.Thread(target=lambda: results.append(function(tg.ones(2)).tolist()))
        thread.start()
        inside.wait()
        assert (tg.ones(3) * 3).tolist() == [3.0, 3.0, 3.0], "a read of this thread does not wait for the other one"
        may_leave.set()
        thread.join()
    assert results == [[4.0, 4.0]] * CALLS


def test_numbers_of_a_call_may_change_in_type_and_sign(tg: Any, session: Any, sent: Sent) -> None:
    @tg.compile
    def function(x: Any, number: Any) -> Any:
        return x * number + 0.0

    numbers = (2, 2, 2, 2.0, True, 0.0, -0.0, float("nan"), 1e300, 2)
    for number in numbers:
        x = tg.tensor([1, -1])
        expected = (x * number + 0.0).tolist()
        np.testing.assert_array_equal(function(x, number).tolist(), expected)
    session.flush()
    assert sum(isinstance(one, DefineProgram) for one in sent.take()) <= 2


def test_a_failing_function_sends_what_it_has_queued(tg: Any) -> None:
    total = tg.zeros(1)

    @tg.compile
    def function(raises: bool) -> None:
        total.add_(1)
        if raises:
            raise KeyError("stop")
        total.add_(10)

    for raises in (False, True, False, True, False):
        if raises:
            with pytest.raises(KeyError):
                function(raises)
        else:
            function(raises)
    assert total.item() == 35.0


def test_compile_checks_what_it_is_given(tg: Any) -> None:
    with pytest.raises(ValueError, match="unrecognized mode='fastest'"):
        tg.compile(lambda x: x, mode="fastest")
    with pytest.raises(ValueError, match="either mode or options"):
        tg.compile(lambda x: x, mode="default", options={"a": 1})
    with pytest.raises(TypeError, match="expected a function or a module"):
        tg.compile(3)
    assert tg.compile(disable=True)(len) is len


def test_long_functions_are_several_programs(tg: Any, session: Any, sent: Sent) -> None:
    @tg.compile
    def function(x: Any) -> Any:
        for _ in range(3000):
            x = x + 1
        return x

    for _ in range(CALLS):
        assert function(tg.zeros(1)).item() == 3000.0
    kinds = [type(one) for one in sent.take()]
    assert kinds.count(messages.Call) < 3 * 3000 and kinds.count(RunProgram) >= 3
