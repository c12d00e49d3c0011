# seeds: PyTorch Internals, 9.2
# runs: telegrad alone, which decomposes otherwise
# As printed:
from torch._decomp import core_aten_decompositions
table = core_aten_decompositions()
for k, v in list(table.items())[:5]:
    print(k)
