"""Gradients through jagged tensors: to nested leaves, to their values and parts, and to weights beside them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from .twins import LENGTHS, difference, gradients, operands_of, outcome, total

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
GRADIENTS = [
    ("x*2", "x"),
    ("x*y+x", "x y"),
    ("x+each", "x each"),
    ("x*row", "x row"),
    ("x/y", "x y"),
    ("x.exp()", "x"),
    ("F.gelu(x)", "x"),
    ("F.silu(x)", "x"),
    ("F.softplus(x)", "x"),
    ("F.elu(x)", "x"),
    ("t.where(x>0,x,y)", "x y"),
    ("x.masked_fill(x>0,1.)", "x"),
    ("x.clamp(-.5,.5)", "x"),
    ("x.sum()", "x"),
    ("x.mean()", "x"),
    ("x.mean(-1)", "x"),
    ("x.max(-1)", "x"),
    ("x.max()", "x"),
    ("x.amax(1)", "x"),
    ("x.amin(-1)", "x"),
    ("z.transpose(1,2)*2", "z"),
    ("z.permute(0,2,1,3).permute(0,2,1,3)*2", "z"),
    ("x.unsqueeze(-1)*2", "x"),
    ("x.view(x.size(0),-1,2,2)*2", "x"),
    ("z.flatten(-2)*2", "z"),
    ("x.unflatten(-1,(2,2)).transpose(1,2).transpose(1,2).flatten(-2)*2", "x"),
    ("t.cat(x.chunk(2,-1)[::-1],-1)", "x"),
    ("t.cat(x.split(2,-1)[::-1],-1)*2", "x"),
    ("x[0]*2", "x"),
    ("x.unbind()[-1]*2", "x"),
    ("t.cat([x,y],-1)", "x y"),
    ("t.stack([x,y],-1)", "x y"),
    ("x.softmax(-1)", "x"),
    ("x@m", "x m"),
    ("x@bm", "x bm"),
    ("m.t()@x.transpose(1,2)", "x m"),
    ("x.transpose(1,2)@y", "x y"),
    ("z@m", "z m"),
    ("F.linear(x,w,b)", "x w b"),
    ("F.linear(z,w,b)", "z w b"),
    ("F.embedding(i,table)", "table"),
    ("F.layer_norm(x,(4,),row,None)", "x row"),
    ("F.layer_norm(x,(4,),row,row)", "x row"),
    ("F.rms_norm(x,(4,),row)", "x row"),
    ("F.dropout(x,.5,False)*2", "x"),
    ("x.to_padded_tensor(0.)", "x"),
    ("x.to_padded_tensor(3.,(x.size(0),7,4))", "x"),
    ("x.clone()", "x"),
    ("x.double()", "x"),
    ("x.values()*2", "x"),
    ("F.scaled_dot_product_attention(z.transpose(1,2),z.transpose(1,2),z.transpose(1,2)).transpose(1,2)", "z"),
    ("t.nested.as_nested_tensor(list(full.unbind()),layout=t.jagged)*2", "full"),
    ("t.nested.as_nested_tensor(full,layout=t.jagged)*2", "full"),
    ("t.nested.nested_tensor_from_jagged(m,t.tensor([0,1,4]))*2", "m"),
    ("t.nested.masked_select(m,m>0)*2", "m"),
    ("t.nested.narrow(full,1,0,1,layout=t.jagged).unbind()[0]*2", "full"),
]
BY_ELEMENT = [
    ("x.sum(1)", "t.stack([p.sum(0) for p in x])"), ("x.sum(-1)", "t.cat([p.sum(-1) for p in x])"),
    ("x.sum((0,1))", "t.cat(x).sum(0)"), ("x.prod(-1)", "t.cat(x).prod(-1)"),
    ("x.softmax(1)", "t.cat([p.softmax(0) for p in x])"), ("x.log_softmax(-1)", "t.cat(x).log_softmax(-1)"),
    ("x.select(2,1)*2", "t.cat(x)[:,1]*2"), ("x.narrow(2,0,2)*2", "t.cat(x)[:,:2]*2"),
    ("t.cat(x.split([1,3],-1)[::-1],-1)", "t.cat(t.cat(x).split([1,3],-1)[::-1],-1)"),
    ("x[...,:1].expand(-1,-1,4)*row", "t.cat(x)[:,:1].expand(-1,4)*row"),
    ("x*full", "t.cat([p*f[:len(p)] for p,f in zip(x,full)])"),
    ("F.layer_norm(x,(x.size(1),4))", "t.cat([F.layer_norm(p,p.shape) if len(p) else p for p in x])"),
    ("F.scaled_dot_product_attention(x,x,x,is_causal=True)",
     "t.cat([F.scaled_dot_product_attention(p,p,p,is_causal=True) if len(p) else p for p in x])"),
    ("F.scaled_dot_product_attention(x*2,x,x*3,scale=.7)",
     "t.cat([F.scaled_dot_product_attention(p*2,p,p*3,scale=.7) if len(p) else p for p in x])"),
]  # fmt: skip
"""Derivatives that PyTorch lacks for jagged tensors, or has wrong ones for, and the same of a list of elements."""


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_gradients_agree_with_pytorch(tg: Any, rng: np.random.Generator, lengths: list[int]) -> None:
    make = operands_of(rng, lengths)
    differing = {}
    for text, names in GRADIENTS:
        try:
            theirs: Any = gradients(text, torch, make, names.split())
        except RuntimeError as error:
            theirs = error
        assert not isinstance(theirs, Exception), (text, theirs)
        found = difference(gradients(text, tg, make, names.split()), theirs)
        if found:
            differing[text] = found
    assert not differing


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_gradients_are_those_of_each_element(tg: Any, rng: np.random.Generator, lengths: list[int]) -> None:
    make = operands_of(rng, lengths)
    for text, of_list in BY_ELEMENT:
        (ours,) = gradients(text, tg, make, ["x"])
        plain = make(torch)
        parts = [part.clone().requires_grad_() for part in plain["x"].unbind()]
        result = outcome(of_list, torch, {**plain, "x": parts})
        assert not isinstance(result, Exception), (of_list, result)
        total(result).backward()
        expected = [torch.zeros_like(part) if part.grad is None else part.grad for part in parts]
        assert not difference(list(ours.unbind()), expected, 1e-4), text


def test_maxima_and_means_pass_gradients_on(tg: Any, rng: np.random.Generator) -> None:
    make = operands_of(rng, [2, 1, 4])
    for text, of_list in (
        ("x.max(1).values", "t.stack([p.max(0).values for p in x])"), ("x.mean(1)", "t.stack([p.mean(0) for p in x])")
    ):  # fmt: skip
        (ours,) = gradients(text, tg, make, ["x"])
        parts = [part.clone().requires_grad_() for part in make(torch)["x"].unbind()]
        total(outcome(of_list, torch, {"x": parts})).backward()
        assert not difference(list(ours.unbind()), [part.grad for part in parts]), text


def test_constituents_get_their_gradients(tg: Any, rng: np.random.Generator) -> None:
    arrays = [rng.standard_normal((length, 3)).astype(np.float32) for length in (2, 0, 1)]
    for layout in ("jagged", "strided"):
        found = []
        for t in (tg, torch):
            parts = [t.tensor(array, requires_grad=True) for array in arrays]
            nested = t.nested.as_nested_tensor(parts, layout=getattr(t, layout))
            assert not nested.is_leaf and nested.requires_grad
            (nested * 3).backward(nested.detach())
            found.append([part.grad for part in parts])
        assert not difference(*found)


def test_values_get_gradients_of_the_nested_tensor(tg: Any) -> None:
    values = tg.ones(5, 2, requires_grad=True)
    nested = tg.nested.nested_tensor_from_jagged(values, tg.tensor([0, 2, 5]))
    assert not nested.is_leaf and type(nested.grad_fn).__name__ == "NestedViewFromJaggedBackward0"
    (gradient,) = tg.autograd.grad((nested * 2).sum(), values)
    assert (gradient == 2).all()
    leaf = nested.detach().requires_grad_()
    (of_leaf,) = tg.autograd.grad((leaf * 3).sum(), leaf)
    assert of_leaf.is_nested and of_leaf.shape == leaf.shape and (of_leaf.values() == 3).all()


def test_hooks_see_nested_gradients(tg: Any) -> None:
    leaf = tg.nested.nested_tensor([tg.ones(2), tg.ones(1)], layout=tg.jagged, requires_grad=True)
    seen = []
    leaf.register_hook(seen.append)
    (leaf * 4).sum().backward()
    assert seen[0].is_nested and seen[0].shape == leaf.shape and leaf.grad.shape == leaf.shape
