"""Programs compute what their modules compute, at all sizes, also after they were saved and loaded."""

from __future__ import annotations

import dataclasses
import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from .modules import CASES, Case, decoder, decoder_inputs, dynamic, shape_of


def _pair(tg: Any, case: Case) -> tuple[Any, Any]:
    """Return a case's module of telegrad and of PyTorch, with the same weights."""
    torch.manual_seed(0)
    theirs = case.make(torch).eval()
    ours = case.make(tg).eval()
    ours.load_state_dict({name: tg.tensor(value.numpy()) for name, value in theirs.state_dict().items()})
    return ours, theirs


def _arrays(case: Case, sizes: dict[str, int], rng: np.random.Generator) -> dict[str, Any]:
    made = {name: rng.standard_normal(shape_of(shape, sizes)) for name, shape in case.inputs.items()}
    return {name: array.astype(np.float32) for name, array in made.items()}


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in _leaves(item)]
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in _leaves(item)]
    return [value.detach().numpy()]


@pytest.mark.parametrize("name", CASES)
def test_programs_compute_what_modules_compute(
    tg: Any, name: str, rng: np.random.Generator, tmp_path: Path
) -> None:  # fmt: skip
    case = CASES[name]
    ours, _ = _pair(tg, case)
    before = {key: value.numpy() for key, value in ours.state_dict().items()}
    example = {key: tg.tensor(array) for key, array in _arrays(case, case.example, rng).items()}
    program = tg.export.export(ours, (), example, dynamic_shapes=dynamic(tg, case))
    for key, value in ours.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), before[key])  # an export computes nothing
    tg.export.save(program, tmp_path / "program.safetensors")
    loaded = tg.export.load(tmp_path / "program.safetensors")
    assert str(loaded) == str(program)
    graph = tg.fx.GraphModule(tg.nn.Module(), loaded.graph)
    for sizes in [case.example, *case.others]:
        arrays = _arrays(case, sizes, rng)
        made, theirs = _pair(tg, case)
        programs = [tg.export.export(made, (), example, dynamic_shapes=dynamic(tg, case)), loaded]
        if name == "with_state":  # a program shares the buffers that it writes to
            programs = [tg.export.load(tmp_path / "program.safetensors")]
        results = [one.module()(**{key: tg.tensor(array) for key, array in arrays.items()}) for one in programs]
        held = [loaded.tensor(one).detach().clone() for one in loaded.description.tensors]
        results.append(graph(*held, *[tg.tensor(arrays[one.name]) for one in loaded.description.inputs]))
        wanted = _leaves(theirs(**{key: torch.tensor(array) for key, array in arrays.items()}))
        for result in results:
            for leaf, reference in zip(_leaves(result), wanted, strict=True):
                assert leaf.shape == reference.shape and leaf.dtype == reference.dtype
                np.testing.assert_allclose(leaf, reference, rtol=2e-2 if name == "autocast" else 1e-4, atol=1e-4)


def test_nodes_of_a_graph_call_pytorchs_operators(tg: Any) -> None:
    def nodes(t: Any) -> list[tuple[str, str, str, str]]:
        nn = t.nn
        module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()).eval()
        rows = {0: t.export.Dim("rows", min=2, max=8)}
        graph = t.export.export(module, (t.ones(2, 1, 6, 6),), dynamic_shapes=(rows,)).graph
        return [(node.op, node.name, str(node.target), str(node.args)) for node in graph.nodes]

    assert nodes(tg) == nodes(torch)


def test_signatures_and_ranges_are_pytorchs(tg: Any) -> None:
    """What PyTorch 2.13 tells of the same module."""
    case = CASES["recurrent"]
    program = tg.export.export(
        case.make(tg).eval(), (tg.ones(2, 6, 3), tg.ones(2, 6)), dynamic_shapes=dynamic(tg, case)
    )  # fmt: skip
    names = [f"rnn.{kind}_{side}_l{layer}" for layer in (0, 1) for kind in ("weight", "bias") for side in ("ih", "hh")]
    signature = program.graph_signature
    assert (signature.user_inputs, signature.parameters) == (("x", "mask"), tuple(names))
    assert (signature.buffers, signature.non_persistent_buffers) == (("scale",), ("scale",))
    assert signature.inputs_to_parameters == {f"p_{name.replace('.', '_')}": name for name in names}
    assert (list(program.state_dict), list(program.constants)) == (names, ["scale"])
    assert str(program.range_constraints) == "{'batch': VR[1, int_oo]}"
    with pytest.raises(RuntimeError, match=r"Unable to call ExportedProgram directly"):
        program(1)


def test_written_buffers_are_in_the_signature(tg: Any) -> None:
    case = CASES["with_state"]
    program = tg.export.export(case.make(tg), (tg.ones(2, 2),))
    assert not program.graph_signature.buffers_to_mutate
    program = program.run_decompositions()
    assert sorted(program.graph_signature.buffers_to_mutate.values()) == ["cache", "seen", "steps"]
    assert program.graph_signature.lifted_tensor_constants == ("lifted_tensor_0", "lifted_tensor_1")


def test_a_module_shares_the_parameters_and_trains(tg: Any, rng: np.random.Generator) -> None:
    module = CASES["mlp"].make(tg)
    program = tg.export.export(module, (tg.ones(2, 4),), dynamic_shapes=({0: tg.export.Dim.DYNAMIC},))
    x = tg.tensor(rng.standard_normal((5, 4)).astype(np.float32))
    program.module()(x).square().sum().backward()
    gradients = [parameter.grad.clone() for parameter in module.parameters()]
    module.zero_grad()
    module(x).square().sum().backward()
    for parameter, gradient in zip(module.parameters(), gradients, strict=True):
        assert tg.allclose(parameter.grad, gradient)
    assert program.state_dict["0.weight"] is module[0].weight
    for name in ("train", "eval"):  # the mode is that of the export, as in PyTorch
        with pytest.raises(NotImplementedError, match=f"{name}: a program computes what its module did in the mode"):
            getattr(program.module(), name)()


@pytest.mark.parametrize("is_on", [True, False], ids=["export", "export_in_no_grad"])
def test_no_gradient_flows_where_the_module_turns_them_off(tg: Any, tmp_path: Path, is_on: bool) -> None:
    class Target(tg.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.linear = tg.nn.Linear(3, 3)

        def forward(self, x: Any) -> Any:
            with tg.no_grad():
                target = self.linear(x)
            return target, self.linear(x) * target

    x = tg.ones(2, 3)
    with tg.set_grad_enabled(is_on):
        program = tg.export.export(Target(), (x,))
    tg.export.save(program, tmp_path / "program.safetensors")
    assert ("enter_no_grad" in program.graph_module.code) == is_on
    for one in (program, tg.export.load(tmp_path / "program.safetensors")):
        module = one.module()
        target, product = module(x)
        assert target.requires_grad == (not is_on)  # what is off around the export is on around the call
        product.sum().backward()
        factor = target.detach() * (1 if is_on else 2)
        tg.testing.assert_close(module.linear.bias.grad, factor.sum(0))


def test_a_decode_step_with_its_caches_and_sampling_is_one_program(tg: Any) -> None:
    tg.manual_seed(0)
    module = decoder(tg).eval()
    batch = tg.export.Dim("batch")
    shapes = {name: {0: batch} for name in ("token", "place", "keys", "values")}
    program = tg.export.export(module, (), decoder_inputs(tg, 2), dynamic_shapes=shapes)
    assert {str(item.shape[0]) for item in (*program.description.inputs, *program.description.outputs)} == {"batch"}
    decode = program.module()
    state, reference = decoder_inputs(tg, 3), decoder_inputs(tg, 3)
    for place in range(5):
        state, reference = {**decode(**state)}, module(**reference)
        for name in ("token", "keys", "values"):
            assert tg.equal(state[name], reference[name]), (place, name)
        for one in (state, reference):
            one["place"] = tg.full((3,), place + 1)
    module.best = 4
    program = tg.export.export(module, (), decoder_inputs(tg, 2), dynamic_shapes=shapes)
    tokens = {tuple(program.module()(**decoder_inputs(tg, 2))["token"].tolist()) for _ in range(30)}
    assert 1 < len(tokens) <= 16


def test_programs_go_through_streams_with_texts_beside(tg: Any) -> None:
    class Sum(tg.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, pair: tuple[Any, Any], options: dict[str, Any], factor: float = 2.0) -> list[Any]:
            return [pair[0] + pair[1] * factor, options["bias"], 3, None]

    x, y, bias = tg.ones(2), tg.full((2,), 4.0), tg.zeros(1)
    program = tg.export.export(Sum(), ((x, y), {"bias": bias}), {"factor": 0.5})
    assert [item.name for item in program.description.inputs] == ["pair_0", "pair_1", "options_bias"]
    stream = io.BytesIO()
    tg.export.save(program, stream, extra_files={"labels.txt": "cat\ndog"})
    stream.seek(0)
    texts = {"labels.txt": ""}
    loaded = tg.export.load(stream, extra_files=texts)
    total, same, three, none = loaded.module()((x, y), {"bias": bias}, factor=0.5)
    assert texts == {"labels.txt": "cat\ndog"} and (three, none) == (3, None)
    assert total.tolist() == [3.0, 3.0] and same.tolist() == [0.0]
    with pytest.raises(ValueError, match=r"exported with 0.5, and is called with 0.25"):
        loaded.module()((x, y), {"bias": bias}, factor=0.25)


def test_programs_of_files_keep_numbers_among_arguments_and_results(tg: Any, tmp_path: Path) -> None:
    class Sized(tg.nn.Module):
        """Returns what it was given, sizes, and numbers that JSON does not have."""

        def forward(self, x: Any, k: Any) -> Any:
            return x * k, x.shape[0] * 2 + 1, [float("inf"), -0.0, None, {"text": "a", "n": float("nan")}]

    sizes = {"x": {0: tg.export.Dim("rows")}, "k": None}
    program = tg.export.export(Sized(), (tg.ones(3, 2), 2), dynamic_shapes=sizes)
    tg.export.save(program, tmp_path / "program.safetensors")
    for one in (program, tg.export.load(tmp_path / "program.safetensors")):
        module = one.module()
        assert repr(module(tg.ones(5, 2), 2)[1:]) == "(11, [inf, -0.0, None, {'text': 'a', 'n': nan}])"
        for other in (2.0, True, 3):
            with pytest.raises(ValueError, match="was exported with 2"):
                module(tg.ones(5, 2), other)


@pytest.mark.parametrize("is_small", [True, False])
def test_a_loaded_program_is_of_the_file_that_was_there(
    tg: Any, tmp_path: Path, is_small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("telegrad.export._opened_file._SMALL", 1 << 20 if is_small else 0)
    path = tmp_path / "program.safetensors"
    layers = [tg.nn.Linear(2, 2) for _ in range(2)]
    loaded = []
    for layer in layers:
        tg.export.save(tg.export.export(layer, (tg.ones(3, 2),)), path)
        loaded.append(tg.export.load(path))
    path.unlink()
    for layer, program in zip(layers, loaded, strict=True):
        assert tg.equal(program.module()(tg.ones(3, 2)), layer(tg.ones(3, 2)))


def test_a_file_that_is_written_into_is_refused(
    tg: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setattr("telegrad.export._opened_file._SMALL", 0)
    path = tmp_path / "program.safetensors"
    tg.export.save(tg.export.export(tg.nn.Linear(2, 2), (tg.ones(3, 2),)), path)
    loaded = tg.export.load(path)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 1)
    with pytest.raises(tg.errors.ProgramError, match="has changed since it was opened"):
        loaded.module()


def test_hints_share_sizes_or_become_static(tg: Any) -> None:
    Dim = tg.export.Dim

    class Net(tg.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.fc = tg.nn.Linear(6, 2)

        def forward(self, x: Any, y: Any) -> Any:
            return self.fc(x) + y

    every = {"x": [Dim.AUTO, Dim.AUTO], "y": [Dim.AUTO, Dim.AUTO]}
    program = tg.export.export(Net(), (tg.ones(4, 6), tg.ones(4, 2)), dynamic_shapes=every)
    first, second = [item.shape for item in program.description.inputs]
    assert list(map(str, first)) == ["s0", "6"] and list(map(str, second)) == ["s0", "2"]
    assert program.module()(tg.ones(9, 6), tg.ones(9, 2)).shape == (9, 2)
    with pytest.raises(RuntimeError, match=r"input 'y': dimension 0 must be s0 = 9, not 8"):
        program.module()(tg.ones(9, 6), tg.ones(8, 2))
    derived = Dim("half")
    shapes = {"x": {0: 2 * derived}, "y": {0: derived * 2}}
    program = tg.export.export(Net(), (tg.ones(4, 6), tg.ones(4, 2)), dynamic_shapes=shapes)
    assert program.module()(tg.ones(6, 6), tg.ones(6, 2)).shape == (6, 2)
    with pytest.raises(RuntimeError, match=r"dimension 0 must be 2\*half = 6, not 7"):
        program.module()(tg.ones(7, 6), tg.ones(7, 2))


def test_examples_tell_which_dimensions_differ(tg: Any) -> None:
    examples = tg.export.AdditionalInputs()
    examples.add((tg.ones(5, 4),))
    program = tg.export.export(CASES["mlp"].make(tg), (tg.ones(3, 4),), dynamic_shapes=examples)
    examples.verify(program)
    assert list(map(str, program.description.inputs[0].shape)) == ["s0", "4"]
    x = tg.ones(3, 4)
    shapes = tg.export.ShapesCollection()
    shapes[x] = {0: tg.export.Dim("rows")}
    program = tg.export.export(CASES["mlp"].make(tg), (x,), dynamic_shapes=shapes)
    assert tg.export.unflatten(program)(tg.ones(9, 4)).shape == (9, 3)


_ALIASED = """
import torch
from torch.export import Dim, ExportedProgram, export

class M(torch.nn.Module):
    def forward(self, x):
        return x.relu()

program = export(M(), (torch.ones(2, 3),), dynamic_shapes={"x": {0: Dim("batch", max=8)}})
assert isinstance(program, ExportedProgram) and torch.export.export is export
assert program.module()(-torch.ones(5, 3)).sum() == 0
assert "relu" in str(program)
"""


def test_torch_export_is_there_under_its_name(tmp_path: Path) -> None:
    script = tmp_path / "aliased.py"
    script.write_text(_ALIASED)
    subprocess.run([sys.executable, "-m", "telegrad", str(script)], check=True, timeout=120)


def test_a_module_can_tell_that_it_is_exported(tg: Any) -> None:
    told = []

    class Asks(tg.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            told.append((tg.compiler.is_exporting(), tg.compiler.is_compiling()))
            return x + 1

    tg.export.export(Asks(), (tg.ones(2),))
    assert set(told) == {(True, True)}
    Asks()(tg.ones(2))
    assert told[-1] == (False, False)


def _described(lib: Any) -> list[Any]:
    """Return what a program with a dataclass among its arguments tells of its inputs, and computes."""

    @dataclasses.dataclass
    class Pair:
        first: Any
        second: Any = None

    class Scaled(lib.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("offset", lib.ones(2))
            self.layer = lib.nn.Linear(2, 2)
            self.scale = lib.nn.Parameter(lib.ones(2))

        def forward(self, pair: Any) -> Any:
            return Pair(self.layer(pair.first) * 0 + self.scale * pair.first + self.offset)

    lib.export.register_dataclass(Pair)
    program = lib.export.export(Scaled(), (Pair(lib.zeros(1, 2)),))
    made = program.module()(Pair(lib.full((1, 2), 3.0)))
    specs = [(spec.kind.name, spec.target) for spec in program.graph_signature.input_specs]
    return [specs, made.first.tolist(), made.second]


def test_parameters_come_before_buffers_and_dataclasses_are_trees_as_in_pytorch(tg: Any) -> None:
    assert _described(tg) == _described(torch)
