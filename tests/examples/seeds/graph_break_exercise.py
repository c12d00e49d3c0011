# seeds: PyTorch Internals, exercise 3, whose code is lost and follows from its answer
# runs: telegrad alone, since PyTorch's compiler needs a C++ compiler
# As printed:
import torch
@torch.compile
def f(x, n):
    if n.item() > 0:
        return x * 2
    return x
@torch.compile
def g(x, n):
    return torch.where(n > 0, x * 2, x)
# Shown:
x = torch.arange(3.0)
for n in (torch.tensor(1), torch.tensor(-1)):
    assert torch.equal(f(x, n), g(x, n))
print(f(x, torch.tensor(1)))
