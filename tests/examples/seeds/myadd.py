# seeds: PyTorch Internals, 10.1
# agree: exact
# As printed:
import torch
# 1. Declare and implement the op for real backends
@torch.library.custom_op("mylib::myadd", mutates_args=())
def myadd(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x + y # or call into a Triton kernel here
# 2. Tell the compiler/dynamo how shapes propagate (the "fake" / meta impl)
@myadd.register_fake
def _(x, y):
    # Must match real op's output shape/dtype/device, with no real compute
    return torch.empty_like(x)
# 3. Register an autograd rule
def myadd_setup_context(ctx, inputs, output):
    # Save what backward needs
    pass # nothing for plain add
def myadd_backward(ctx, grad):
    return grad, grad # dx, dy
myadd.register_autograd(myadd_backward, setup_context=myadd_setup_context)
# Shown:
x, y = torch.ones(3, requires_grad=True), torch.full((3,), 2.0, requires_grad=True)
z = torch.ops.mylib.myadd(x, y)
(z * z).sum().backward()
print(z, x.grad, y.grad)
