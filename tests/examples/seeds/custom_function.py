# seeds: PyTorch Internals, 6.5
# agree: texts
# As printed:
import torch
class FusedScaleClamp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, lo, hi):
        ctx.save_for_backward(x)
        ctx.scale = scale
        ctx.lo, ctx.hi = lo, hi
        y = torch.clamp(x * scale, min=lo, max=hi)
        return y
    @staticmethod
    def backward(ctx, grad_y):
        (x,) = ctx.saved_tensors
        s, lo, hi = ctx.scale, ctx.lo, ctx.hi
        # grad flows only where the clamp didn't saturate
        scaled = x * s
        mask = (scaled > lo) & (scaled < hi)
        grad_x = grad_y * s * mask.to(grad_y.dtype)
        # No grads w.r.t. python scalars
        return grad_x, None, None, None
# Use it
x = torch.randn(8, requires_grad=True)
y = FusedScaleClamp.apply(x, 2.0, -1.0, 1.0)
y.sum().backward()
print(x.grad)
# Shown:
inside = (x.detach() * 2).abs() < 1
assert torch.equal(x.grad, 2 * inside.float()), (x, x.grad)
assert torch.equal(y, (x * 2).clamp(-1, 1))
