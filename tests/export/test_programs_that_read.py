"""Programs of modules that read elements, or whose results have a length that elements decide."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch


def _selecting(lib: Any) -> Any:
    class Selecting(lib.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = lib.nn.Linear(3, 2)
            with lib.no_grad():
                for parameter in self.parameters():
                    parameter.fill_(0.5)
            self.register_buffer("calls", lib.zeros(()))
            self.shift = lib.full((2,), 0.25)

        def forward(self, x: Any, threshold: Any, *, factor: int = 2) -> Any:
            self.calls = self.calls + 1
            y = self.layer(x) + self.shift
            rows = (y.sum(1) > threshold).nonzero().squeeze(1)
            return {"rows": y[rows] * factor, "count": rows.shape[0], "all": y * self.calls}

    return Selecting()


def _routing(lib: Any) -> Any:
    class Routing(lib.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any, route: Any, n: Any) -> Any:
            made = lib.zeros_like(x)
            for expert in range(2):
                rows = lib.where(route == expert)[0]
                made = made.index_add(0, rows, x[rows] * (expert + 1))
            return made, lib.ones(n.item()).sum(), x[route > 0], lib.repeat_interleave(route)

    return Routing()


def _looping(lib: Any) -> Any:
    class Looping(lib.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any, n: Any) -> Any:
            if lib is torch:
                for _ in range(int(n)):
                    x = x * 2 - 1
                return x
            start = lib.zeros((), dtype=lib.int64)
            return lib.while_loop(lambda i, y: i < n, lambda i, y: (i + 1, y * 2 - 1), (start, x))[1]

    return Looping()


def _leaves(value: Any) -> list[Any]:
    value = list(value.values()) if isinstance(value, dict) else value
    return [leaf for part in value for leaf in _leaves(part)] if isinstance(value, (list, tuple)) else [value]


Make = Callable[[Any], Any]
CASES: dict[str, tuple[Make, list[Any], list[list[Any]], Any]] = {
    "selecting": (_selecting, [np.ones((2, 3), "f4"), np.float32(3)], [[np.eye(3, dtype="f4"), np.float32(2.4)],
        [np.zeros((5, 3), "f4"), np.float32(9)]], ({0: "rows"}, None)),
    "routing": (_routing, [np.ones((3, 2), "f4"), np.array([0, 1, 1]), np.array(4)],
        [[np.arange(6, dtype="f4").reshape(3, 2), np.array([1, 1, 1]), np.array(0)]], None),
    "looping": (_looping, [np.ones(3, "f4"), np.array(2)],
        [[np.arange(3, dtype="f4"), np.array(n)] for n in (0, 5)], None),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_modules_compute_what_they_are_given(tg: Any, name: str) -> None:
    make, example, others, dims = CASES[name]
    sizes = dims and tuple([spec and {dim: tg.export.Dim(size) for dim, size in spec.items()} for spec in dims])
    module, theirs = make(tg), make(torch)
    program = tg.export.export(module, tuple(map(tg.tensor, example)), dynamic_shapes=sizes)
    exported = program.module()
    for arrays in [*others, example, *others] if dims else [example, *others]:
        made, wanted = _leaves(exported(*map(tg.tensor, arrays))), _leaves(theirs(*map(torch.tensor, arrays)))
        for one, reference in zip(made, wanted, strict=True):
            np.testing.assert_allclose(
                *[np.asarray(value.detach() if hasattr(value, "detach") else value) for value in (one, reference)],
                rtol=1e-6,
            )


def test_signatures_have_parameters_buffers_and_constants(tg: Any) -> None:
    module = _selecting(tg)
    weight = module.layer.weight
    program = tg.export.export(module, (tg.ones(2, 3), tg.tensor(3.0)), {"factor": 3})
    assert module.layer.weight is weight and module.calls == 0  # as they were
    signature = program.graph_signature
    assert (signature.parameters, signature.buffers) == (("layer.weight", "layer.bias"), ("calls",))
    assert signature.user_inputs == ("x", "threshold", 3) and list(program.constants) == ["lifted_tensor_0"]
    assert str(program.range_constraints) == "{'u0': VR[0, int_oo]}"
    targets = [str(node.target) for node in program.graph.nodes]
    assert "aten.nonzero.default" in targets and "aten.sym_size.int" in targets
    apart = program.run_decompositions({})
    assert list(apart.graph_signature.buffers_to_mutate.values()) == ["calls"]
    x = tg.full((2, 3), 3.0, requires_grad=True)
    made = apart.module()(x, tg.tensor(3.0), factor=3)
    made["rows"].sum().backward()
    assert x.grad.tolist() == [[3.0] * 3] * 2 and module.layer.weight.grad is not None and module.calls == 1


def test_what_no_graph_can_say_is_refused_with_its_line(tg: Any) -> None:
    class Deciding(tg.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return x + 1 if x.sum() > 0 else x - 1

    with pytest.raises(RuntimeError, match=r"reads the elements of a tensor .* at .*test_programs_that_read.py"):
        tg.export.export(Deciding(), (tg.ones(2),))
    program = tg.export.export(_looping(tg), (tg.ones(3), tg.tensor(2)))
    with pytest.raises(RuntimeError, match="the program reads elements"):
        tg.export.save(program, io.BytesIO())
    with pytest.raises(NotImplementedError, match="a program that reads elements is one graph"):
        tg.export.unflatten(program)
    with pytest.raises(RuntimeError, match=r"input 'x': dimension 0 must be 3, not 4"):
        program.module()(tg.ones(4), tg.tensor(2))


def test_what_the_module_checks_is_checked_when_the_program_runs(tg: Any) -> None:
    from telegrad._programs.private.checks import _check

    class Checking(tg.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, n: Any) -> Any:
            size = n.item()
            _check(2 <= size < 10)
            return tg.ones(size)

    program = tg.export.export(Checking(), (tg.tensor(3),))
    assert str(program.range_constraints) == "{'u0': VR[2, 9]}"
    assert program.module()(tg.tensor(9)).tolist() == [1.0] * 9
    with pytest.raises(RuntimeError, match="expected a number of at least 2 and of at most 9"):
        program.module()(tg.tensor(10))


def test_operators_whose_kernels_read_are_nodes(tg: Any) -> None:
    from telegrad import library

    with library._scoped_library("reading_programs", "DEF") as own:
        own.define("sine(Tensor x) -> Tensor")
        own.impl("sine", lambda x: tg.from_numpy(np.sin(x.numpy())), "CPU")
        own.define("places(Tensor x) -> (Tensor, Tensor)")
        own.impl("places", lambda x: tuple(map(tg.from_numpy, np.nonzero(x.numpy()))), "CPU")
        library.register_fake("reading_programs::sine", tg.empty_like, lib=own)

        def fake_places(x: Any) -> Any:
            count = library.get_ctx().new_dynamic_size()
            return x.new_empty(count, dtype=tg.int64), x.new_empty(count, dtype=tg.int64)

        library.register_fake("reading_programs::places", fake_places, lib=own)
        ops = tg.ops.reading_programs

        class Calling(tg.nn.Module):  # type: ignore[misc, name-defined]
            def forward(self, x: Any) -> Any:
                rows, columns = ops.places(x)
                return ops.sine(x) + 1, rows * 2, tg.zeros(columns.shape[0] + 1)

        program = tg.export.export(Calling(), (tg.eye(2),), dynamic_shapes=({0: tg.export.Dim("rows")},))
        assert [str(node.target) for node in program.graph.nodes if "reading" in str(node.target)] == [
            "reading_programs.places.default", "reading_programs.sine.default",
        ]  # fmt: skip
        array = np.array([[0, 3], [2, 0], [1, 1]], "f4")
        sine, rows, zeros = program.module()(tg.tensor(array))
        np.testing.assert_allclose(sine.numpy(), np.sin(array) + 1, rtol=1e-6)
        assert rows.tolist() == [0, 2, 4, 4] and zeros.shape == (5,)
