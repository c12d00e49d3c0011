"""Nested tensors on a GPU give what they give on the CPU, gradients included, and move between the two."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from .twins import LENGTHS, arrays, gradients, operands_of

pytestmark = pytest.mark.gpu
EXPRESSIONS = [
    ("x*y+x", "x y"), ("x.sum(1)", "x"), ("x.max(1)", "x"), ("x.softmax(1)", "x"), ("x@bm", "x bm"),
    ("F.linear(x,w,b)", "x w b"), ("F.layer_norm(x,(4,),row,row)", "x row"), ("F.embedding(i,table)", "table"),
    ("x.to_padded_tensor(0.)", "x"), ("x*each", "x each"),
    ("F.scaled_dot_product_attention(z.transpose(1,2),z.transpose(1,2),z.transpose(1,2),is_causal=True)", "z"),
    ("F.scaled_dot_product_attention(z.transpose(1,2),z.transpose(1,2),z.transpose(1,2))", "z"),
]  # fmt: skip


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_operations_and_gradients_are_those_of_the_cpu(
    cuda_tg: Any, rng: np.random.Generator, lengths: list[int]
) -> None:
    make = operands_of(rng, lengths)
    for text, names in EXPRESSIONS:
        on_cpu = gradients(text, cuda_tg, make, names.split())
        on_gpu = gradients(
            text, cuda_tg, lambda t: {name: value.cuda() for name, value in make(t).items()}, names.split()
        )
        for ours, expected in zip(on_gpu, on_cpu, strict=True):
            assert ours.is_cuda and ours.is_nested == expected.is_nested
            for one, other in zip(arrays(ours.cpu()), arrays(expected), strict=True):
                np.testing.assert_allclose(one, other, 1e-3, 1e-4, err_msg=text)


def test_moved_tensors_keep_their_ragged_size(cuda_tg: Any) -> None:
    parts = [cuda_tg.ones(2, 3, device="cpu"), cuda_tg.ones(1, 3, device="cpu")]
    nested = cuda_tg.nested.nested_tensor(parts, layout=cuda_tg.jagged)
    moved = nested.cuda()
    assert moved.shape == nested.shape and moved.offsets().is_cuda and (moved.cpu() + nested).sum().item() == 18
