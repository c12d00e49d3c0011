"""Random training steps compute compiled what they compute eagerly, and leave what those leave."""

from __future__ import annotations

import linecache
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.draws import drawn

from .guarded import calls_of
from .random_steps import Step, random_step, state_of
from .test_changing_programs import require_same

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def _no_module_is_left() -> Iterator[None]:
    yield
    sys.modules.pop("random_step", None)


@pytest.mark.parametrize("number", drawn([pytest.param(n, id=f"step_{n}") for n in range(300)], 16))
def test_compiled_equals_eager(tg: Any, number: int, seed: int, tmp_path: Path) -> None:
    step = random_step(np.random.default_rng(seed))
    print(step.text, *step.calls, sep="\n")
    compiled, eager = [
        list(_outcomes(tg, step, tmp_path / f"step_{is_compiled}.py", is_compiled)) for is_compiled in (True, False)
    ]
    for call, (ours, other) in enumerate(zip(compiled, eager, strict=True)):
        require_same(ours, other, 0.0, f"call {call}, compiled and eager")


def _outcomes(t: Any, step: Step, file: Path, is_compiled: bool) -> Iterator[Any]:
    """Yield what each call returns or raises, and all that there is after it."""
    file.write_text(step.text)
    linecache.checkcache(str(file))
    module = sys.modules["random_step"] = types.ModuleType("random_step")
    names = vars(module)
    names["t"] = t
    exec(compile(step.text, str(file), "exec"), names)  # noqa: S102  the tests' own programs
    function = t.compile(names["f"]) if is_compiled else names["f"]
    for call in step.calls:
        rng = np.random.default_rng(call.seed)
        x, y = (t.tensor(rng.standard_normal((call.rows, columns)).astype("f")) for columns in (4, 2))
        try:
            for change in call.changes:
                exec(change, names)  # noqa: S102
            result = _told(t, function(x, y))
        except (ValueError, RuntimeError, AttributeError, TypeError) as error:
            result = ["raised", isinstance(error, AttributeError)]
        yield [result, _told(t, state_of(names))]
    if is_compiled:
        print("left out:", calls_of(function).replayed, calls_of(function).reason)


def _told(t: Any, value: Any) -> Any:
    """Return values as lists that are compared, with arrays for tensors."""
    if isinstance(value, t.Tensor):
        return [value.requires_grad, value.is_leaf, str(value.dtype).partition(".")[2], value.detach().clone().numpy()]
    if isinstance(value, dict):
        return [[key, _told(t, one)] for key, one in value.items()]
    return [_told(t, one) for one in value] if isinstance(value, (list, tuple)) else value
