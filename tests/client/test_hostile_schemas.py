"""Schemas that no operator has: each is refused in words at once, however it ends and however deep it goes."""

from __future__ import annotations

from typing import Any

import pytest

from telegrad import errors

SCHEMAS = (
    "f(", "f(Tensor x", "f(int[] x=[", "f(int[] x=[1, 2", "f(int[] x=[1, 2) -> ()", "f(int[] x=[1 2]) -> ()",
    "f(str x='", "f(Tensor x) ->", "f(Tensor x) -> (Tensor", "f(Tensor(", "f(Dict(str",
    "f(Tensor" + "[]" * 5000 + " x) -> ()",
    "f(" + "(" * 5000 + ") -> ()", "f" * 5000, "\x00", "",
)  # fmt: skip


@pytest.mark.parametrize("schema", SCHEMAS, ids=[f"{number}" for number in range(len(SCHEMAS))])
def test_schemas_that_end_too_soon_or_nest_too_deep_are_refused(tg: Any, schema: str) -> None:
    library = tg.library.Library("hostile_schemas", "FRAGMENT")
    try:
        with pytest.raises(errors.OperatorError):
            library.define(schema)
        assert library.define("sound(int[2] x=[1, 2]) -> ()")
    finally:
        library._destroy()
