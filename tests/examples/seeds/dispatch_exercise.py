# seeds: PyTorch Internals, exercise 2, whose code is lost and follows from its answer
# needs: gpu
import torch

a = torch.randn(8, 8, device="cuda", requires_grad=True)
b = torch.randn(8, 8, device="cuda", requires_grad=True)
# As printed:
with torch.no_grad(), torch.autocast("cuda", dtype=torch.bfloat16):
    y = a @ b
# Shown:
assert y.dtype is torch.bfloat16 and not y.requires_grad
