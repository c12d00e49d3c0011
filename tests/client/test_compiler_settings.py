"""Settings and stances of the compiler, and compiled modules in files, are what PyTorch's programs expect."""

from __future__ import annotations

import copy
import io
import pickle
from contextlib import ExitStack
from typing import Any

import pytest


def test_settings_of_the_compiler_are_changed_for_a_block(tg: Any) -> None:
    from telegrad.compiler import dynamo, functorch, inductor

    assert functorch.config.activation_memory_budget == 1 and functorch.config.donated_buffer is True
    assert dynamo.config.recompile_limit + dynamo.config.accumulated_recompile_limit == 8 + 256
    with dynamo.config.patch({"recompile_limit": 3}), dynamo.config.patch("verbose", True):
        assert dynamo.config.recompile_limit == 3 and dynamo.config.verbose is True
    assert dynamo.config.recompile_limit == 8 and not dynamo.config.verbose

    @inductor.config.patch({"triton.cudagraphs": True}, debug=1)
    def inside() -> tuple[Any, Any]:
        return inductor.config.triton.cudagraphs, inductor.config.debug

    assert inside() == (True, 1)
    assert not inductor.config.triton.cudagraphs and not inductor.config.debug


def test_settings_begin_with_pytorchs_values(tg: Any) -> None:
    from telegrad.compiler import dynamo, inductor

    assert dynamo.config.suppress_errors is False and dynamo.config.capture_scalar_outputs is False
    assert inductor.config.max_autotune is False and inductor.config.triton.cudagraphs is False
    assert {"max_autotune", "triton.cudagraphs"} <= {*inductor.list_options()}
    tuned = {"triton.cudagraphs": True, "max_autotune": True, "coordinate_descent_tuning": True}
    assert inductor.list_mode_options("max-autotune") == tuned == inductor.list_mode_options()["max-autotune"]
    graph = tg.fx.symbolic_trace(lambda x: x + 1)
    assert inductor.compile(graph, [tg.ones(2)])(tg.ones(2)).tolist() == [2.0, 2.0]


def test_a_print_ends_no_full_graph_where_settings_say_so(tg: Any, capsys: pytest.CaptureFixture[str]) -> None:
    from telegrad.compiler import dynamo

    def function(x: Any) -> Any:
        print("here")
        return x + 1

    with dynamo.config.patch(reorderable_logging_functions={print}):
        assert tg.compile(function, fullgraph=True)(tg.ones(1)).item() == 2.0
    assert capsys.readouterr().out == "here\n"
    with pytest.raises(dynamo.exc.Unsupported, match=r"print\(\) is called"):
        tg.compile(function, fullgraph=True)(tg.ones(1))


def test_compiled_modules_go_through_files_and_pickle(tg: Any) -> None:
    compiled = tg.compile(tg.nn.Sequential(tg.nn.Linear(3, 4), tg.nn.ReLU()), fullgraph=True)
    x = tg.randn(2, 3)
    for _ in range(8):
        expected = compiled(x).tolist()
    file = io.BytesIO()
    tg.save(compiled, file)
    file.seek(0)
    for copied in (tg.load(file, weights_only=False), pickle.loads(pickle.dumps(compiled))):
        assert type(copied) is type(compiled) and list(copied.state_dict()) == list(compiled.state_dict())
        assert copied._compile_options == compiled._compile_options
        assert [copied(x).tolist() for _ in range(8)] == [expected] * 8


def test_copies_of_a_module_that_is_compiled_in_place_call_their_own_weights(tg: Any) -> None:
    layer, x = tg.nn.Linear(3, 2), tg.randn(4, 3)
    layer.compile()
    for _ in range(6):
        expected = layer(x).tolist()
    file = io.BytesIO()
    tg.save(layer, file)
    file.seek(0)
    for copied in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), tg.load(file, weights_only=False)):
        assert copied(x).tolist() == expected
        with tg.no_grad():
            copied.weight.zero_()
            copied.bias.fill_(2)
        assert copied(x).tolist() == [[2.0, 2.0]] * 4 and layer(x).tolist() == expected
    layer.forward = layer.weight.sum
    layer.compile()
    assert copy.deepcopy(layer)().tolist() == layer().tolist() == layer.weight.sum().tolist()


def test_a_backend_is_one_that_there_is(tg: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from telegrad.compiler import backends, dynamo

    monkeypatch.setattr(backends, "_tags", dict(backends._tags))
    with pytest.raises(dynamo.exc.InvalidBackend, match=r"Invalid backend: 'mine', see `torch._dynamo.list_backends"):
        tg.compile(lambda x: x, backend="mine")
    dynamo.register_backend(lambda graph, inputs: graph.forward, name="mine", tags=("debug",))
    assert tg.compile(lambda x: x + 1, backend="mine")(tg.ones(2)).tolist() == [2.0, 2.0]
    assert "mine" in dynamo.list_backends(None) and "mine" not in dynamo.list_backends()
    with pytest.raises(ValueError, match="duplicate name: mine"):
        dynamo.register_backend(print, name="mine")
    graph = tg.fx.symbolic_trace(lambda x: x * 3)
    for name in ("mine", "eager", "inductor"):
        assert dynamo.lookup_backend(name)(graph, [tg.ones(1)])(tg.ones(2)).tolist() == [3.0, 3.0]


def test_a_backend_is_forced_in_the_default_stance_alone(tg: Any) -> None:
    with pytest.raises(ValueError, match="force_backend goes with"):
        tg.compiler.set_stance("force_eager", force_backend="eager")
    seen: list[bool] = []
    tg.compile(lambda: seen.append(tg.compiler.is_compiling()))()
    assert seen == [True]


def test_graph_breaks_are_errors_in_a_block(tg: Any) -> None:
    from telegrad.compiler import dynamo

    def function(x: Any, *errors: bool) -> Any:
        y = x.sin()
        with ExitStack() as blocks:
            for error in errors:
                blocks.enter_context(dynamo.error_on_graph_break(error))
            dynamo.graph_break("here")
        return y.cos()

    compiled, x = tg.compile(function), tg.ones(2)
    for errors in ([True], [False, True]):
        with pytest.raises(dynamo.Unsupported, match=r"in function: graph_break\(\) was called: here"):
            compiled(x, *errors)
        for others in ([], [False], [True, False]):
            assert compiled(x, *others).tolist() == function(x).tolist()
    with pytest.raises(dynamo.Unsupported):
        dynamo.error_on_graph_break(True)(compiled)(x)
    with pytest.raises(dynamo.Unsupported):
        tg.compile(function, fullgraph=True)(x, False)
    assert dynamo.error_on_graph_break(True)(function)(x).tolist() == compiled(x).tolist()


def test_a_compiled_module_compiles_other_functions_as_itself(tg: Any) -> None:
    from telegrad.compiler import dynamo

    compiled = tg.compile(tg.nn.Linear(2, 2), fullgraph=True).dynamo_ctx(lambda x: x * x.tolist()[0])
    with pytest.raises(dynamo.Unsupported):
        compiled(tg.ones(2))
