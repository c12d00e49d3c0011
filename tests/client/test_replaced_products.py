"""Products that PyTorch computes by operators for which a program has registered kernels."""

from __future__ import annotations

from typing import Any

from .twins import assert_same, evaluate

PRODUCTS = """
lib = t.library.Library("aten", "IMPL")
calls = []
def noted(name, compute):
    def kernel(*operands):
        calls.append((name, [list(operand.shape) for operand in operands]))
        return compute(*operands)
    lib.impl(name, kernel, "CPU")
noted("mm", lambda a, b: (a.unsqueeze(2) * b.unsqueeze(0)).sum(1))
noted("mv", lambda a, b: (a * b).sum(1))
noted("bmm", lambda a, b: (a.unsqueeze(3) * b.unsqueeze(1)).sum(2))
def of(*shape):
    return t.arange(float(math.prod(shape))).reshape(shape)
w = of(3, 4).requires_grad_()
F = t.nn.functional
results = [of(2, 3) @ w, t.matmul(of(2, 5, 3), w), of(2, 3) @ of(3), of(3) @ w, of(2, 1, 2, 3) @ of(5, 3, 2),
           F.linear(of(2, 3), w.t()), F.linear(of(2, 3), of(4, 3), of(4)), of(2, 3).matmul(other=w)]
results[0].sum().backward()
lib._destroy()
after = len(calls), of(2, 3) @ w
(results, calls, w.grad, after, len(calls))
"""


def test_what_pytorch_computes_by_a_replaced_operator_asks_its_kernel(tg: Any) -> None:
    ours, theirs = evaluate(PRODUCTS, tg)
    assert_same(ours[0], theirs[0])
    in_forward = [call for call in theirs[1] if call in ours[1]]
    assert ours[1] == in_forward and len(ours[1]) >= 7, "the backward pass is the server's"
    assert_same(ours[2:], (theirs[2], (len(ours[1]), theirs[3][1]), len(ours[1])))
