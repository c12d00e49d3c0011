# seeds: How to use CUDA for PyTorch, 1.2
# needs: gpu
# As printed:
import torch
import torch.nn as nn
import torch.nn.functional as F

data = torch.randn(1, 1, 32, 32).cuda()
with torch.autograd.profiler.profile(use_cuda=True) as prof:
  output = torch.nn.Linear(32, 32).cuda()(data)
print(prof.key_averages().table(sort_by="cuda_time_total", row_limit=10))
# Shown:
assert any("linear" in event.key for event in prof.key_averages()), prof.key_averages()
assert output.shape == (1, 1, 32, 32) and output.is_cuda
