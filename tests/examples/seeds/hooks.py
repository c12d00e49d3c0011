# seeds: PyTorch Internals, 13.4
# agree: 1e-4
import torch

model = torch.nn.Linear(3, 2)
with torch.no_grad():
    model.weight.copy_(torch.arange(6.0).view(2, 3) / 8)
    model.bias.fill_(0.5)
loss = model(torch.ones(4, 3)).pow(2).mean()
# As printed:
hooks = []
for name, p in model.named_parameters():
    h = p.register_hook(lambda g, n=name: print(n, g.norm()))
    hooks.append(h)
loss.backward()
for h in hooks: h.remove()
# Shown:
model(torch.ones(4, 3)).sum().backward()
