# seeds: PyTorch Internals, 3.2
# agree: exact
# As printed:
import torch
a = torch.arange(24, dtype=torch.float32).view(2, 3, 4) # contiguous
print(a.stride()) # (12, 4, 1)
b = a.transpose(0, 2) # swap dim 0 and dim 2
print(b.shape, b.stride()) # torch.Size([4, 3, 2]), (1, 4, 12)
print(b.is_contiguous()) # False
print(b.data_ptr() == a.data_ptr()) # True -- same storage
c = a.narrow(1, 1, 2) # along dim 1, start=1, length=2
print(c.shape, c.stride(), c.storage_offset())
# torch.Size([2, 2, 4]), (12, 4, 1), 4
d = a.unsqueeze(0) # add a leading dim of size 1, stride 0 (or any)
print(d.shape, d.stride()) # torch.Size([1, 2, 3, 4]), (24, 12, 4, 1) or similar
