# seeds: PyTorch Internals, 9.5
# runs: telegrad alone, since PyTorch's compiler needs a C++ compiler
import torch

model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
# As printed:
torch.compile(model, mode="default")
torch.compile(model, mode="reduce-overhead")
torch.compile(model, mode="max-autotune")
# Shown:
compiled = torch.compile(model, mode="reduce-overhead", dynamic=False)
x = torch.randn(2, 4)
assert torch.equal(compiled(x), model(x))
compiled(x).sum().backward()
assert model[0].weight.grad is not None
