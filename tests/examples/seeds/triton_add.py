# seeds: PyTorch Internals, 10.3
# needs: gpu, kernels
# packages: triton
# warns: nothing is compiled
# As printed:
import torch
import triton
import triton.language as tl
@triton.jit
def _add_kernel(x_ptr, y_ptr, out_ptr, N, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offs < N
    a = tl.load(x_ptr + offs, mask=mask)
    b = tl.load(y_ptr + offs, mask=mask)
    tl.store(out_ptr + offs, a + b, mask=mask)
def _add_launch(x, y):
    out = torch.empty_like(x)
    N = x.numel()
    BLOCK = 1024
    grid = ((N + BLOCK - 1) // BLOCK,)
    _add_kernel[grid](x, y, out, N, BLOCK=BLOCK)
    return out
@torch.library.custom_op("mylib::triton_add", mutates_args=())
def triton_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    assert x.is_cuda and y.is_cuda and x.shape == y.shape
    return _add_launch(x.contiguous(), y.contiguous())
@triton_add.register_fake
def _(x, y):
    return torch.empty_like(x)
def _bwd(ctx, g):
    return g, g
triton_add.register_autograd(_bwd)
# Use it
x = torch.randn(4096, device="cuda", requires_grad=True)
y = torch.randn(4096, device="cuda", requires_grad=True)
z = torch.ops.mylib.triton_add(x, y)
z.sum().backward()
print(x.grad.shape, y.grad.shape)
# It also works under torch.compile thanks to register_fake
def f(a, b):
    return torch.ops.mylib.triton_add(a, b).relu()
g = torch.compile(f)
g(x, y)
# Shown:
assert torch.equal(z, x + y) and torch.equal(g(x, y), (x + y).relu())
assert torch.equal(x.grad, torch.ones_like(x))
