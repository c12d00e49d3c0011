# seeds: PyTorch Internals, 9.6
# needs: gpu
# warns: nothing is compiled
# As printed:
import torch
import torch.nn as nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1 = nn.Linear(1024, 4096)
        self.l2 = nn.Linear(4096, 1024)
    def forward(self, x):
        return self.l2(torch.relu(self.l1(x)))
model = Net().cuda().to(torch.bfloat16)
model = torch.compile(model, mode="reduce-overhead")
x = torch.randn(32, 1024, device="cuda", dtype=torch.bfloat16)
# Warm-up: compiles + records cuda graph
for _ in range(3):
    y = model(x)
# Steady-state: every call is a single CUDA graph replay
for _ in range(1000):
    y = model(x)
# Shown:
exact = model._orig_mod.float()(x.float())
assert (y.float() - exact).abs().max() < 0.05 * exact.abs().max() + 0.01, (y, exact)
