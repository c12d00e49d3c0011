"""Operations on nested tensors of the older layout give PyTorch's results and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from .twins import LENGTHS, difference, gradients, operands_of, outcome

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
EXPRESSIONS = [
    "x==x",
    "x.size(0)",
    "x.size(-1)",
    "x.size()",
    "x.dim()",
    "x.numel()",
    "x.is_contiguous()",
    "x.contiguous() is x",
    "x.is_leaf",
    "x.layout is t.strided",
    "x.mT",
    "x.to(t.float64)",
    "x.sum(-1,keepdim=True)",
    "x.sum(-1)",
    "x.sum(0)",
    "x+1",
    "x+y",
    "x*y",
    "x-y",
    "x/2",
    "x*t.ones(4)",
    "x.transpose(1,2)",
    "z.transpose(1,2)",
    "x.unsqueeze(-1)",
    "x.unsqueeze(0)",
    "x.view(x.size(0),-1,2,2)",
    "x.reshape(x.size(0),-1,2,2)",
    "x.chunk(2,-1)",
    "x.select(0,0)",
    "x.select(2,1)",
    "x[0]",
    "x[-1]",
    "x[...,0]",
    "t.cat([x,y],-1)",
    "t.cat([x,y],0)",
    "x.softmax(-1)",
    "x.to_padded_tensor(0.)",
    "x.to_padded_tensor(0.,(x.size(0),7,6))",
    "x.to_padded_tensor(0.,(x.size(0),1,1))",
    "x.detach()",
    "x.clone()",
    "x.half()",
    "x.zero_()",
    "x.fill_(2)",
    "x.copy_(y)",
    "x.add_(1)",
    "t.zeros_like(x)",
    "t.ones_like(x)",
    "x.unbind()",
    "x.unbind(1)",
    "x@m",
    "t.bmm(x,bm)",
    "x.transpose(1,2)@y",
    "x@y.transpose(1,2)",
    "F.linear(x,w,b)",
    "F.layer_norm(x,(4,),row,row)",
    "F.layer_norm(x,(4,))",
    "F.relu(x)",
    "F.gelu(x)",
    "F.silu(x)",
    "t.tanh(x)",
    "F.dropout(x,.5,False)",
    "x.masked_fill(mask,1.)",
    "x.values()",
    "x.is_nested",
    "x.type_as(x)",
    "t.isnan(x)",
    "-x",
    "abs(x)",
    "x.squeeze(-1)",
    "x.unsqueeze(-1).squeeze(-1)",
    "F.embedding(i,table)",
    "repr(x)",
    "repr(t.zeros_like(x).long())",
    "x.shape",
    "x.numpy()",
    "x.tolist()",
    "t.nested.nested_tensor([t.ones(2,3),t.ones(3,2)])",
    "t.nested.nested_tensor([t.ones(2,3),t.ones(3,2)]).to_padded_tensor(0.)",
    "t.nested.nested_tensor([t.ones(2,3),t.ones(3)])",
    "t.nested.nested_tensor([])",
    "t.nested.nested_tensor([t.ones(2)],requires_grad=True)",
    "t.nested.as_nested_tensor(full)",
    "t.nested.as_nested_tensor([t.ones(2),t.ones(1)])",
    "t.nested.narrow(full,0,0,1)",
    "t.nested.narrow(full,1,0,1)",
]
GRADIENTS = [
    ("x*y+x", "x y"), ("F.linear(x,w,b)", "x w b"), ("x.softmax(-1)", "x"), ("F.gelu(x)", "x"),
    ("x.to_padded_tensor(0.)", "x"), ("x.transpose(1,2)@y", "x y"), ("x[0]*2", "x"), ("x.unbind()[-1]*2", "x"),
]  # fmt: skip


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_operations_agree_with_pytorch(tg: Any, rng: np.random.Generator, lengths: list[int]) -> None:
    make = operands_of(rng, lengths, "strided")
    differing = {}
    for text in EXPRESSIONS:
        found = difference(outcome(text, tg, make(tg)), outcome(text, torch, make(torch)))
        if found:
            differing[text] = found
    assert not differing


@pytest.mark.parametrize("lengths", [[2, 3], [1, 4, 2]], ids=str)
def test_gradients_agree_with_pytorch(tg: Any, rng: np.random.Generator, lengths: list[int]) -> None:
    make = operands_of(rng, lengths, "strided")
    for text, names in GRADIENTS:
        ours, theirs = (gradients(text, t, make, names.split()) for t in (tg, torch))
        assert not difference(ours, theirs), text


def test_attention_is_that_of_each_element(tg: Any, rng: np.random.Generator) -> None:
    arrays = [rng.standard_normal((2, length, 4)).astype(np.float32) for length in (3, 1, 5)]
    nested = tg.nested.nested_tensor([tg.tensor(array) for array in arrays])
    ours = tg.nn.functional.scaled_dot_product_attention(nested, nested, nested, is_causal=True)
    for array, part in zip(arrays, ours.unbind(), strict=True):
        one = torch.tensor(array)
        expected = torch.nn.functional.scaled_dot_product_attention(one, one, one, is_causal=True)
        np.testing.assert_allclose(part.numpy(), expected.numpy(), 1e-4, 1e-5)
