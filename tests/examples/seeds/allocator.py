# seeds: Understanding Pytorch CUDA, memory.py; PyTorch Internals, 12.3 and 12.4
# needs: gpu
import torch

# As printed:
address = torch.cuda.caching_allocator_alloc(1 << 20)
torch.cuda.caching_allocator_delete(address)
x = torch.randn(1024, 1024, device="cuda")
print(torch.cuda.memory_summary())
del x
torch.cuda.empty_cache()
# Shown:
assert address and torch.cuda.memory_allocated() == 0
