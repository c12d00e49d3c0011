# seeds: PyTorch Internals, 4.5
# runs: telegrad alone, since it takes long to compile against PyTorch's headers
# needs: host code
source = r"""
// As printed:
#include <torch/library.h>
// Declare the op. Namespace "myops". Schema is C++-typed Python.
TORCH_LIBRARY(myops, m) {
m.def("triple(Tensor x) -> Tensor");
}
// Implement for CPU.
Tensor triple_cpu(const Tensor& x) {
return x * 3;
}
TORCH_LIBRARY_IMPL(myops, CPU, m) {
m.impl("triple", triple_cpu);
}
// Implement for CUDA.
Tensor triple_cuda(const Tensor& x) {
return x * 3;
}
TORCH_LIBRARY_IMPL(myops, CUDA, m) {
m.impl("triple", triple_cuda);
}
"""
# As printed:
import torch
from torch.utils.cpp_extension import load_inline
# Shown:
preamble = "#include <torch/extension.h>\nusing at::Tensor;\n"
load_inline("triples", preamble + source, is_python_module=False)
assert torch.equal(torch.ops.myops.triple(torch.arange(4.0)), torch.arange(4.0) * 3)
