# seeds: PyTorch Internals, 6.3
# agree: exact
# As printed:
import torch
a = torch.tensor(2.0, requires_grad=True)
b = torch.tensor(3.0, requires_grad=True)
c = a * b
d = c + a
d.backward()
print(a.grad, b.grad) # tensor(4.) tensor(2.)
# Shown:
print(type(d.grad_fn).__name__, [type(edge).__name__ for edge, _ in d.grad_fn.next_functions])
