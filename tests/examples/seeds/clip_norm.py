# seeds: PyTorch Internals, exercise 4
# agree: 1e-5
# As printed:
import torch
@torch.library.custom_op("mylib::clip_norm", mutates_args=())
def clip_norm(x: torch.Tensor, max_norm: float) -> torch.Tensor:
    n = x.norm()
    scale = (max_norm / (n + 1e-12)).clamp(max=1.0)
    return x * scale
@clip_norm.register_fake
def _(x, max_norm):
    return torch.empty_like(x)
# autograd: easiest is to leave it to the implementation
# since it uses only autograd-aware ops; but custom_op disables
# autograd-through-implementation by default. So:
def _bwd(ctx, g):
    x, scale = ctx.saved
    # d(x*scale)/dx = scale (treating scale as constant for simplicity)
    return g * scale, None
def _setup(ctx, inputs, output):
    x, max_norm = inputs
    n = x.norm()
    scale = (max_norm / (n + 1e-12)).clamp(max=1.0)
    ctx.saved = (x, scale)
clip_norm.register_autograd(_bwd, setup_context=_setup)
# Shown:
x = torch.arange(1.0, 5.0, requires_grad=True)
y = torch.ops.mylib.clip_norm(x, 2.0)
y.sum().backward()
print(y, y.norm(), x.grad, clip_norm(x, 100.0))
