"""What programs about passes begin with, and how they are run under both libraries."""

from __future__ import annotations

from typing import Any

from .twins import assert_same, evaluate

PROLOGUE = """
class Square(t.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x
    @staticmethod
    def backward(ctx, grad):
        calls.append("square")
        x, = ctx.saved_tensors
        return 2 * x * grad
class Exp(t.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y
    @staticmethod
    def backward(ctx, grad):
        y, = ctx.saved_tensors
        return y * grad
class Both(t.autograd.Function):
    @staticmethod
    def forward(ctx, a, b, factor):
        ctx.factor = factor
        return a * factor, b + 1, "text"
    @staticmethod
    def backward(ctx, ga, gb, gt):
        calls.append((ga is None, gb is None, gt is None, ctx.needs_input_grad))
        return ga * ctx.factor, gb, None
class Sparse(t.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.set_materialize_grads(False)
        return a * 2, b * 3
    @staticmethod
    def backward(ctx, ga, gb):
        calls.append((ga is None, gb is None))
        return None if ga is None else ga * 2, None if gb is None else gb * 3
class AddOne(t.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x.add_(1)
        ctx.mark_dirty(x)
        return x
    @staticmethod
    def backward(ctx, grad):
        return grad * 5
class Identity(t.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x
    @staticmethod
    def backward(ctx, grad):
        return grad * 7
class Largest(t.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        values, where = x.max(0)
        ctx.mark_non_differentiable(where)
        ctx.size = x.shape
        ctx.save_for_backward(where)
        return values, where
    @staticmethod
    def backward(ctx, grad, _):
        where, = ctx.saved_tensors
        return t.zeros(ctx.size, dtype=grad.dtype).scatter(0, where.unsqueeze(0), grad.unsqueeze(0))
class Cube(t.autograd.Function):
    @staticmethod
    def forward(x):
        return x ** 3, x ** 2
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output[1])
    @staticmethod
    def backward(ctx, grad, _):
        x, squared = ctx.saved_tensors
        return 3 * squared * grad
class Once(t.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x
    @staticmethod
    @t.autograd.function.once_differentiable
    def backward(ctx, grad):
        x, = ctx.saved_tensors
        return 2 * x * grad
calls = []
x = t.tensor([0.5, -1.0, 2.0], dtype=t.float64, requires_grad=True)
w = t.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.5]], dtype=t.float64, requires_grad=True)
def doubled(g):
    calls.append("doubled")
    return g * 2
"""


def compare(tg: Any, program: str, before: str = "") -> None:
    """Run the lines of a program, which may be indented, behind others; compare what the last says with PyTorch's."""
    lines = "\n".join(line[4:] if line.startswith("    ") else line for line in program.strip("\n").splitlines())
    assert_same(*evaluate(PROLOGUE + before + lines, tg))
