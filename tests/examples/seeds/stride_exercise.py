# seeds: PyTorch Internals, exercise 1, whose code is lost and follows from its answer
# agree: exact
# As printed:
import torch
a = torch.randn(3, 4, 5)
b = a.permute(2, 0, 1)
# Shown:
print(b.shape, b.stride(), b.storage_offset(), b.is_contiguous())
