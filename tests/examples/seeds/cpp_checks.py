# seeds: Notes on Writing PyTorch CUDA Extensions, the cheatsheet and the allocation of buffers
# runs: telegrad alone, since it takes long to compile against PyTorch's headers
# needs: host code
source = r"""
void CheckInputTensors(const std::vector<torch::Tensor> &tensors) {
    TORCH_CHECK(!tensors.empty(), "No tensors provided for device check");
    auto first_device = tensors[0].device();
    TORCH_CHECK(first_device.is_cuda(), "First tensor is not on CUDA");
    int idx = 0;
    for (const auto &tensor: tensors) {
        TORCH_CHECK(tensor.device() == first_device,
            "All tensors must be on the same CUDA device, "
            "but found tensor at index [", idx,
            "] on device ", tensor.device(),
            " while expecting ", first_device);
        TORCH_CHECK(tensor.is_contiguous(),
            "All tensors must be contiguous, but found tensor at index [",
            idx, "] not contiguous");
        idx += 1;
    }
}
int64_t buffer_bytes(int64_t buffer_size, torch::Tensor like) {
auto your_device = like.device();
auto buffer_options = torch::TensorOptions().device(your_device).dtype(torch::kInt8);
auto buffer_tensor = torch::empty({buffer_size}, buffer_options);
void *buffer_ptr = buffer_tensor.data_ptr<int8_t>();
    return buffer_ptr == nullptr ? -1 : buffer_tensor.nbytes();
}
"""
# As printed:
import torch
from torch.utils.cpp_extension import load_inline
# Shown:
checks = load_inline("checks", source, functions=["CheckInputTensors", "buffer_bytes"])
x = torch.ones(2, 3)
for tensors, text in (([], "No tensors provided"), ([x], "First tensor is not on CUDA")):
    try:
        checks.CheckInputTensors(tensors)
        x.sum().item()  # what the server has found is told here at the latest
        raise AssertionError("not refused")
    except RuntimeError as error:
        assert text in str(error), error
assert checks.buffer_bytes(1000, x) == 1000
