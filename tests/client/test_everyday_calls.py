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
