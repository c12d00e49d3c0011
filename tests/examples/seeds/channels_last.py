# seeds: PyTorch Internals, 3.4, whose line of code is lost
# agree: exact
import torch

x = torch.arange(120.0).view(2, 3, 4, 5)
# As printed:
x = x.to(memory_format=torch.channels_last)
# Shown:
print(x.shape, x.stride(), x.is_contiguous(), x.is_contiguous(memory_format=torch.channels_last))
