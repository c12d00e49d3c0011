"""Calls as PyTorch programs write them, each line of a file against PyTorch: ``;;`` stands for a line's end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from telegrad.errors import InplaceError

from .twins import assert_same, evaluate

PROGRAMS = (Path(__file__).parent / "everyday_calls.txt").read_text().splitlines()


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_programs_do_what_they_do_in_pytorch(number: int, tg: Any) -> None:
    values = np.random.default_rng(20261123).standard_normal((3, 4)).astype(np.float32)
    text = PROGRAMS[number].replace(" ;; ", "\n")
    assert_same(*evaluate(text, tg, v=values.tolist(), arr=np.arange(12.0).reshape(3, 4)))


def test_what_was_made_in_inference_mode_is_modified_there_alone(tg: Any) -> None:
    with tg.inference_mode():
        made, uploaded = tg.ones(2) * 2, tg.tensor([1.0, 2.0])
        made.add_(1)
    for tensor in (made, uploaded, made[0], made.detach()):
        assert tensor.is_inference()
        with pytest.raises(InplaceError, match="made in inference mode"):
            tensor.add_(1)
    copy = made.clone()
    assert not copy.is_inference() and copy.add_(1).tolist() == [4, 4]
    normal = tg.ones(2)
    with tg.inference_mode():
        assert not normal[0].is_inference() and not normal.add_(1).is_inference()


def test_einsum_multiplies_what_is_small_first(tg: Any, rng: np.random.Generator) -> None:
    from telegrad._functions.contraction_order import contraction_order

    sizes = (("i", 100), ("j", 90), ("k", 80), ("l", 1))
    assert contraction_order(("ij", "jk", "kl"), "il", sizes) == ((1, 2), (0, 1))
    assert contraction_order(("ij", "jk"), "ik", sizes) == ((0, 1),)
    for equation in ("ij,jk,kl->il", "a,ab,b,bc,c->", "abc,cd,bd,ae,e->a", "...i,ij,j...->...", "ab,cd,ef,a,c,e->bdf"):
        letters = dict(zip("abcdefijkl", (2, 3, 4, 5, 2, 3, 4, 3, 2, 5), strict=True))
        shapes = [[letters.get(c, 2) for c in term if c != "."] for term in equation.partition("->")[0].split(",")]
        arrays = [rng.standard_normal(shape) for shape in shapes]
        result = tg.einsum(equation, *map(tg.from_numpy, arrays))
        np.testing.assert_allclose(result, np.einsum(equation, *arrays), rtol=1e-9, atol=1e-12)
