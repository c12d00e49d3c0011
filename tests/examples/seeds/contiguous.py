# seeds: PyTorch Internals, 3.3
# agree: exact
import torch

x = torch.arange(24.0).view(2, 3, 4)
some_fused_kernel = torch.nn.functional.relu
# As printed:
y = x.transpose(1, 2).contiguous() # make a real copy with canonical strides
z = some_fused_kernel(y)
# Shown:
print(y.stride(), y.is_contiguous(), y.data_ptr() == x.data_ptr(), z)
