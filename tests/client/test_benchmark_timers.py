"""``utils.benchmark``: times end when the server is done, tables say what PyTorch's say."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch.utils.benchmark as theirs

from telegrad.utils import benchmark as ours
from telegrad_protocol.errors import ArgumentError, ArgumentTypeError, NotSupportedError


def _measured(lib: Any, times: list[float], number: int = 10, **words: Any) -> Any:
    task = lib.TaskSpec(**{"stmt": "x @ y", "setup": "pass", **words})
    return lib.Measurement(number, times, task)


@pytest.mark.parametrize("spread", [0.0, 0.01, 0.2, 0.6])
@pytest.mark.parametrize("scale", [3e-8, 4e-5, 0.02, 7.0])
@pytest.mark.parametrize("count", [1, 2, 3, 5, 40])
def test_measurements_say_what_pytorchs_say(rng: np.random.Generator, count: int, scale: float, spread: float) -> None:
    times = (scale * (1 + spread * rng.random(count))).tolist()
    words = {"label": "product", "sub_label": "small", "description": "new", "setup": "a = 1\nb = 2"}
    mine, other = (_measured(lib, times, **words) for lib in (ours, theirs))
    for name in ("median", "mean", "iqr", "times"):
        np.testing.assert_allclose(getattr(mine, name), getattr(other, name), rtol=1e-9, atol=1e-18, err_msg=name)
    for name in ("title", "as_row_name", "env", "number_per_run", "has_warnings", "description"):
        assert getattr(mine, name) == getattr(other, name), name
    assert abs(mine.significant_figures - other.significant_figures) <= 1
    shown, wanted = (repr(each).split("WARNING")[0].split("\n")[1:] for each in (mine, other))
    assert [line for line in shown if line.strip()] == [line for line in wanted if line.strip()]
    assert ("WARNING" in repr(mine)) == ("WARNING" in repr(other))


@pytest.mark.parametrize("label", [None, "product"])
@pytest.mark.parametrize("sub_label", [None, "small"])
@pytest.mark.parametrize("stmt", ["x @ y", "x = y\nx @ y"])
def test_tasks_have_pytorchs_titles(stmt: str, label: str | None, sub_label: str | None) -> None:
    mine, other = (lib.TaskSpec(stmt, "pass", label=label, sub_label=sub_label) for lib in (ours, theirs))
    assert mine.title == other.title


def test_measurements_of_one_task_are_merged() -> None:
    for lib in (ours, theirs):
        (merged,) = lib.Measurement.merge([_measured(lib, [1.0, 2.0]), _measured(lib, [6.0], number=2)])
        assert merged.times == [0.1, 0.2, 3.0]


@pytest.mark.parametrize("trims", [False, True])
def test_tables_have_pytorchs_rows_columns_and_numbers(trims: bool) -> None:
    tables = []
    for lib in (ours, theirs):
        results = [
            _measured(lib, [time * number for _ in range(5)], number, label=label, sub_label=row, description=column,
                      num_threads=threads)
            for label, row, column, threads, time, number in [
                ("add", "4", "eager", 1, 1.234e-6, 100), ("add", "4", "compiled", 1, 3.4e-6, 10),
                ("add", "1024", "eager", 2, 5.5e-5, 10), ("multiply", "8", "eager", 1, 2e-3, 10),
            ]
        ]  # fmt: skip
        table = lib.Compare(results)
        if trims:
            table.trim_significant_figures()
        lines = [re.sub(r"-{2,}", "--", line.strip(" |")) for line in str(table).split("\n")]
        tables.append([re.split(r"[\s|]+", line) for line in lines])
    assert tables[0] == tables[1]


def test_colours_tell_the_fastest_of_a_column_or_row() -> None:
    fast, slow = (_measured(ours, [time], label="l", sub_label="r", description=str(time)) for time in (1.0, 3.0))
    table = ours.Compare([fast, slow])
    table.colorize(rowwise=True)
    (line,) = [line for line in str(table).split("\n") if line.startswith("      r")]
    assert "\033[92m\033[1m" in line.split("|")[1] and "\033[91m" in line.split("|")[2]
    table.colorize()
    assert str(table).count("\033[92m\033[1m") == 2


def test_times_that_vary_are_marked_with_how_much() -> None:
    noisy = _measured(ours, [1.0, 1.2, 1.4, 1.6, 1.8], label="l", sub_label="r", description="d")
    table = ours.Compare([noisy, _measured(ours, [1.0] * 5, label="l", sub_label="s", description="d")])
    table.highlight_warnings()
    assert str(table).count("(! 29%)") == 1 and "(! XX%)" in str(table)


def test_times_have_what_the_server_does_in_them(tg: Any, capsys: pytest.CaptureFixture[str]) -> None:
    x = tg.randn(700, 700)
    task = {"stmt": "for _ in range(5): x @ x", "globals": {"x": x}, "label": "products"}
    timed = ours.Timer(**task).blocked_autorange(min_run_time=0.05)
    assert timed.median > 5 * 2 * 700**3 / 1e13  # ten times what dozens of cores make; to queue the calls takes less
    calls: list[tuple[int, float]] = []
    found = ours.Timer("x + 1", globals={"x": x}).adaptive_autorange(callback=lambda *run: calls.append(run))
    assert len(calls) == len(found.times) and calls[0][0] == found.number_per_run
    once = ours.Timer("y * 2", setup="y = torch.ones(3)", num_threads=2).timeit(5)
    assert once.number_per_run == 5 and once.num_threads == 2
    ours.Compare([timed, found, once]).print()
    assert "[" in capsys.readouterr().out


def test_what_is_no_python_is_refused() -> None:
    with pytest.raises(NotSupportedError, match=r"C\+\+"):
        ours.Timer("x;", language="c++")
    with pytest.raises(ArgumentTypeError, match="must be a text"):
        ours.Timer(lambda: None)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="global_setup"):
        ours.Timer("x", global_setup="#include <vector>")
    with pytest.raises(ValueError, match="expected Measurement"):
        ours.Compare([1])  # type: ignore[list-item]


def test_units_and_digits_are_pytorchs() -> None:
    for value in (3e-9, 5e-7, 1.2e-4, 0.03, 2.0, 400.0):
        assert ours.select_unit(value) == theirs.select_unit(value)
    for value, digits in ((123.456, 2), (0.001234, 3), (9.96, 2), (0.0, 3)):
        assert ours.trim_sigfig(value, digits) == pytest.approx(theirs.trim_sigfig(value, digits) if value else 0.0)
    assert ours.unit_to_english("ms") == theirs.unit_to_english("ms")
    assert ours.ordered_unique([3, 1, 3]) == theirs.ordered_unique([3, 1, 3])


def test_tables_with_noisy_times_are_pytorchs(rng: np.random.Generator) -> None:
    tables = []
    spread = rng.random(5)
    for lib in (ours, theirs):
        quiet = _measured(lib, [2e-3] * 5, 1, label="L", sub_label="quiet", description="d")
        noisy = _measured(lib, (1e-3 * (1 + spread)).tolist(), 1, label="L", sub_label="noisy", description="d")
        table = lib.Compare([noisy, quiet])
        table.highlight_warnings()
        tables.append(str(table))
    assert tables[0] == tables[1]


def test_instructions_of_the_server_are_not_counted() -> None:
    with pytest.raises(NotSupportedError, match="blocked_autorange"):
        ours.Timer("pass").collect_callgrind()


def _fuzzed(lib: Any, package: Any, seed: int) -> list[Any]:
    """Return what a fuzzer of PyTorch's recipe draws: sizes, orders in memory, whether two tensors broadcast."""
    fuzzer = lib.Fuzzer(
        parameters=[
            lib.FuzzedParameter("k0", minval=1, maxval=64, distribution="loguniform"),
            lib.FuzzedParameter("k1", minval=1, maxval=64, distribution="uniform"),
            [lib.FuzzedParameter("dims", minval=1, maxval=2, distribution="uniform", strict=True)],
            lib.FuzzedParameter("scale", minval=0.5, maxval=2.0, distribution="uniform"),
        ],
        tensors=[
            lib.FuzzedTensor("x", size=("k0", "k1"), steps=(1, 2), min_elements=8, max_elements=1000,
                             dim_parameter="dims", probability_contiguous=0.4),
            lib.FuzzedTensor("y", size=("k1", 3), probability_contiguous=0.1, dtype=package.int32),
        ],
        constraints=[lambda params: params["k0"] != 7],
        seed=seed,
    )  # fmt: skip
    drawn = []
    for tensors, told, params in fuzzer.take(8):
        shapes = {name: (tuple(t.shape), tuple(t.stride()), t.is_contiguous()) for name, t in tensors.items()}
        told = {name: {key: str(value) for key, value in of.items()} for name, of in told.items()}
        drawn.append((params, shapes, told))
    return [*drawn, fuzzer.rejection_rate]


def test_fuzzers_draw_what_pytorchs_draw(tg: Any, seed: int) -> None:
    import torch

    mine, other = _fuzzed(ours, tg, seed % 2**32), _fuzzed(theirs, torch, seed % 2**32)
    for own, expected in zip(mine, other, strict=True):
        assert str(own).replace("telegrad.", "torch.") == str(expected)


def test_parameters_of_fuzzers_stand_for_others_and_are_checked(tg: Any) -> None:
    kinds = [
        ours.FuzzedParameter("n", 4, 4, "uniform"),
        ours.FuzzedParameter("m", distribution={1: 0.5, ours.ParameterAlias("n"): 0.5}),
    ]
    drawn = [
        tensors["x"].shape[0] for tensors, _, _ in ours.Fuzzer(kinds, [ours.FuzzedTensor("x", ("m",))], seed=3).take(20)
    ]
    assert set(drawn) == {1, 4}
    loop = [ours.FuzzedParameter(a, distribution={ours.ParameterAlias(b): 1.0}) for a, b in ("pq", "qp")]
    for wrong in (
        lambda: ours.FuzzedParameter("n", 1, 2, "normal"),
        lambda: ours.FuzzedParameter("n", distribution={1: 0.5}),
        lambda: ours.Fuzzer(kinds, [ours.FuzzedTensor("n", (1,))]),
        lambda: next(ours.Fuzzer(loop, []).take(1)),
        lambda: next(ours.Fuzzer(kinds, [], [lambda params: False]).take(1)),
    ):
        with pytest.raises(ArgumentError):
            wrong()
