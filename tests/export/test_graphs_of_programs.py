"""Graphs of programs are modules of ``torch.fx``: run, changed and traced again, as PyTorch's are."""

from __future__ import annotations

import copy
import io
import re
from typing import Any

import numpy as np
import pytest
import torch


def _mlp(lib: Any) -> Any:
    class Mlp(lib.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = lib.nn.Linear(4, 8), lib.nn.Linear(8, 2)
            self.register_buffer("scale", lib.full((2,), 2.0), persistent=False)

        def forward(self, x: Any, *, factor: int, more: Any) -> Any:
            return {"out": self.last(self.first(x).relu()) * self.scale * factor + more[0]}

    lib.manual_seed(0)
    return Mlp()


def _program(lib: Any) -> Any:
    rows = lib.export.Dim("rows", min=2)
    shapes = {"x": {0: rows}, "factor": None, "more": [{0: rows}]}
    given = {"factor": 3, "more": [lib.zeros(3, 2)]}
    return lib.export.export(_mlp(lib), (lib.ones(3, 4),), given, dynamic_shapes=shapes)


def _nodes(graph: Any) -> list[tuple[str, str, str]]:
    return [(node.op, node.name, str(node.target)) for node in graph.nodes]


def test_both_graphs_have_pytorchs_nodes(tg: Any) -> None:
    ours, theirs = _program(tg), _program(torch)
    assert _nodes(ours.graph) == _nodes(theirs.graph)
    assert _nodes(ours.module().graph) == _nodes(theirs.module().graph)
    assert isinstance(ours.graph_module, tg.fx.GraphModule) and isinstance(ours.module(), tg.fx.GraphModule)
    dims = [
        [len(node.meta["val"].shape) for node in one.graph.nodes if node.op == "call_function"]
        for one in (ours, theirs)
    ]
    assert dims[0] == dims[1]
    assert ours.call_spec.in_spec.num_leaves == theirs.call_spec.in_spec.num_leaves
    assert list(ours.module().state_dict()) == [name for name, _ in ours.named_parameters()]


def test_nodes_are_named_as_pytorchs(tg: Any) -> None:
    def named(lib: Any) -> list[tuple[str, str, str]]:
        class Several(lib.nn.Module):  # type: ignore[misc, name-defined]
            def forward(self, x: Any, y: Any) -> Any:
                first, last = x.unbind()
                largest = lib.where(x > 0, x, y).topk(2)[0].split(1)
                y.add_(1).mul_(first)
                return x.sum(0) + x.max(1)[0] + x.abs().min(), last, largest, x.pow(2).sum()

        return _nodes(lib.export.export(Several(), (lib.ones(2, 2), lib.ones(2, 2))).graph)

    assert named(tg) == named(torch)


def test_programs_are_printed_as_pytorchs(tg: Any) -> None:
    def told(lib: Any) -> list[str]:
        layers = lib.nn.Sequential(lib.nn.Linear(4, 8), lib.nn.ReLU(), lib.nn.Linear(8, 2))
        program = lib.export.export(layers, (lib.ones(3, 4),))
        lines = [
            re.sub(r"# File: .*", "", line).strip().replace("telegrad", "torch") for line in str(program).splitlines()
        ]
        return [line for line in lines if line]

    assert told(tg) == told(torch)


def test_modules_are_run_by_interpreters_changed_copied_and_traced(tg: Any, rng: np.random.Generator) -> None:
    x = tg.tensor(rng.standard_normal((5, 4)).astype(np.float32))
    named = {"factor": 3, "more": [tg.ones(5, 2)]}
    program, module = _program(tg), _program(tg).module()
    wanted = module(x, **named)["out"]
    assert tg.equal(tg.fx.Interpreter(module).run(x, 3, [tg.ones(5, 2)])["out"], wanted)
    assert tg.equal(copy.deepcopy(module)(x, more=[tg.ones(5, 2)], factor=3)["out"], wanted)
    again = tg.export.export(module, (x,), named)
    assert tg.equal(again.module()(x, **named)["out"], wanted)
    for graph in (module.graph, program.graph):
        for node in graph.nodes:
            if node.target is tg.ops.aten.relu.default:
                node.target = tg.ops.aten.sigmoid.default
    module.recompile()
    changed = module(x, **named)["out"]
    layers, linear = program.module(), tg.nn.functional.linear
    hidden = linear(x, layers.first.weight, layers.first.bias).sigmoid()
    by_hand = linear(hidden, layers.last.weight, layers.last.bias) * 6 + 1
    tg.testing.assert_close(changed, by_hand)
    assert not tg.equal(changed, wanted)
    assert tg.equal(layers(x, **named)["out"], changed)
    with pytest.raises(tg.errors.ProgramError, match="the graph of the program was edited"):
        tg.export.save(program, io.BytesIO())
    saved = io.BytesIO()
    tg.export.save(tg.export.export(layers, (x,), named), saved)
    saved.seek(0)
    assert tg.equal(tg.export.load(saved).module()(x, **named)["out"], changed)


def test_what_a_program_does_not_take_is_refused_and_leaves_modes_alone(tg: Any) -> None:
    class Fails(tg.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            with tg.no_grad():
                y = x + 1
            return y * 2

    module = tg.export.export(Fails(), (tg.ones(2),)).module()
    for node in module.graph.nodes:
        if node.target is tg.ops.aten.add.Tensor:
            node.args = (node.args[0], "no tensor")
    module.recompile()
    with pytest.raises(RuntimeError, match="instead found type 'str'"):
        module(tg.ones(2))
    assert tg.is_grad_enabled()
    with pytest.raises(ValueError, match="takes arguments of the structure"):
        module(y=tg.ones(2))


def test_sizes_between_those_of_samples_are_those_of_the_program(tg: Any) -> None:
    class Steps(tg.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, step: int) -> None:
            super().__init__()
            self.step = step

        def forward(self, x: Any) -> Any:
            count = x.shape[0] // self.step
            return x * count, x.sum(0, keepdim=True).expand(count + 1, 2)

    shapes = {"x": {0: tg.export.Dim("rows", max=100)}}
    program = tg.export.export(Steps(32), (tg.ones(60, 2),), dynamic_shapes=shapes)
    for rows in (4, 31, 32, 100):
        product, rest = program.module()(tg.ones(rows, 2))
        assert product.unique().tolist() == [rows // 32] and rest.shape[0] == rows // 32 + 1
    with pytest.raises(tg.errors.ProgramError, match="depends on rows in no way that a program can say"):
        tg.export.export(Steps(30), (tg.ones(60, 2),), dynamic_shapes=shapes)  # (rows + 4) // 32 has the nearest steps


def test_a_hint_that_ends_below_the_example_is_no_multiple(tg: Any) -> None:
    class Branches(tg.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return x + 1 if x.shape[0] > 2 else x - 1

    program = tg.export.export(Branches(), (tg.ones(3, 4),), dynamic_shapes={"x": {0: tg.export.Dim.AUTO}})
    assert str(program.range_constraints) == "{'s0': VR[3, int_oo]}"
    assert program.module()(tg.ones(4, 4)).sum() == 32


def _writing(lib: Any) -> Any:
    class Writing(lib.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.norm = lib.nn.BatchNorm1d(4)
            self.register_buffer("count", lib.zeros(2))

        def forward(self, x: Any, y: Any) -> Any:
            self.count[0] += 1
            x.view(-1)[:3].mul_(2)
            return self.norm(x) + self.count.sum(), y.add_(1), {"first": x[0]}

    return Writing()


def test_decomposed_programs_return_what_they_write_and_their_modules_write_it(
    tg: Any, rng: np.random.Generator
) -> None:
    array = rng.standard_normal((3, 4)).astype(np.float32)
    module, x, y = _writing(tg), tg.tensor(array), tg.ones(2)
    program = tg.export.export(module, (x, y)).run_decompositions({})
    statistics = ["norm.num_batches_tracked", "norm.running_mean", "norm.running_var"]
    signature = program.graph_signature  # as PyTorch's is
    assert sorted(signature.buffers_to_mutate.values()) == ["count", *statistics]
    assert sorted(signature.user_inputs_to_mutate.values()) == ["x", "y"] and len(signature.user_outputs) == 3
    assert len(program.graph.output_node().args[0]) == 9
    names = [node.target.name() for node in program.graph.nodes if hasattr(node.target, "overloadpacket")]
    assert not [name for name in names if name.partition(".")[0].endswith("_")]
    made = program.module()(x, y)
    theirs, other_x, other_y = _writing(torch), torch.tensor(array), torch.ones(2)
    wanted = theirs(other_x, other_y)
    ours = (made[0], made[1], made[2]["first"], x, y, *module.buffers())
    for one, reference in zip(
        ours, (wanted[0], wanted[1], wanted[2]["first"], other_x, other_y, *theirs.buffers()), strict=True
    ):
        np.testing.assert_allclose(one.detach().numpy(), reference.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_a_table_takes_operators_of_programs_apart(tg: Any) -> None:
    x = tg.randn(3, 4)
    program = tg.export.export(tg.nn.Sequential(tg.nn.Linear(4, 2), tg.nn.GELU()), (x,))
    table = {tg.ops.aten.gelu.default: lambda x, approximate="none": x * tg.sigmoid(1.702 * x)}
    apart = program.run_decompositions(table)
    names = [str(node.target) for node in apart.graph.nodes if node.op == "call_function"]
    assert "aten.sigmoid.default" in names and "aten.gelu.default" not in names
    linear = tg.nn.functional.linear(x, *program.parameters())
    tg.testing.assert_close(apart.module()(x), linear * tg.sigmoid(1.702 * linear))
    assert tg.equal(tg.export.unflatten(apart)(x), apart.module()(x))
    assert tg.equal(program.module()(x), tg.nn.functional.gelu(linear))


@pytest.mark.parametrize("layer", ["BatchNorm1d", "InstanceNorm1d"])
def test_normalizations_whose_result_is_unused_keep_their_statistics(
    tg: Any, rng: np.random.Generator, layer: str
) -> None:
    def make(lib: Any) -> Any:
        class Unused(lib.nn.Module):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.norm = getattr(lib.nn, layer)(2, track_running_stats=True)

            def forward(self, x: Any) -> Any:
                self.norm(x)
                return x + self.norm.running_mean.sum()

        return Unused()

    array = rng.standard_normal((2, 2, 3)).astype(np.float32)
    module, theirs = make(tg), make(torch)
    program = tg.export.export(module, (tg.tensor(array),)).run_decompositions()
    assert program.graph_signature.buffers_to_mutate
    made = program.module()(tg.tensor(array))
    np.testing.assert_allclose(made.numpy(), theirs(torch.tensor(array)).numpy(), rtol=1e-5)
    for ours, reference in zip(module.buffers(), theirs.buffers(), strict=True):
        np.testing.assert_allclose(ours.numpy(), reference.numpy(), rtol=1e-5)


def _writing_slices(lib: Any, x: Any) -> Any:
    y = x.clone()
    y[1 : x.shape[0] - 1] = 5
    y.view(-1)[: x.shape[0]].mul_(2)
    return y, y.view(x.shape[0] * 2) + 1


def _activated(lib: Any, x: Any) -> Any:
    return lib.nn.functional.silu(lib.cat([x, x])).mean() + lib.nn.functional.silu(x).sum(1)


@pytest.mark.parametrize("function", [_writing_slices, _activated])
def test_decomposed_programs_are_for_all_sizes(tg: Any, rng: np.random.Generator, function: Any) -> None:
    class Called(tg.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return function(tg, x)

    def flat_silu(x: Any) -> Any:
        flat = x.reshape(x.shape[0] * 2)
        return (flat * tg.sigmoid(flat)).view(x.shape) + tg.zeros(x.shape[0], 1)

    rows = tg.export.Dim("rows", min=2)
    program = tg.export.export(Called(), (tg.ones(4, 2),), dynamic_shapes=({0: rows},))
    for table in ({}, {tg.ops.aten.silu.default: flat_silu}):
        program = program.run_decompositions(table)
        assert "aten.silu.default" not in [str(node.target) for node in program.graph.nodes] or not table
        for count in (2, 4, 7):
            array = rng.standard_normal((count, 2)).astype(np.float32)
            made, wanted = program.module()(tg.tensor(array)), function(torch, torch.tensor(array))
            made, wanted = (made, wanted) if isinstance(made, tuple) else ((made,), (wanted,))
            for one, reference in zip(made, wanted, strict=True):
                np.testing.assert_allclose(one.numpy(), reference.numpy(), rtol=1e-5, atol=1e-6)


def test_a_table_that_decides_by_sizes_is_refused(tg: Any) -> None:
    class Exponential(tg.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return x.exp()

    program = tg.export.export(Exponential(), (tg.ones(4),), dynamic_shapes=({0: tg.export.Dim("rows")},))
    table = {tg.ops.aten.exp.default: lambda x: sum([x[i].exp() for i in range(x.shape[0])], x)}
    with pytest.raises(RuntimeError, match="another one for other sizes of rows"):
        program.run_decompositions(table)
