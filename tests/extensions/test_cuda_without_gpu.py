"""Extensions with CUDA in a session that has no GPU: what is refused, and that no kernel fails in silence."""

from __future__ import annotations

from typing import Any

import pytest

from server.engine.extensions.commands import cuda_toolkit
from telegrad import errors
from telegrad.utils.cpp_extension import load_inline

DECLARATIONS = """
torch::Tensor unchecked(torch::Tensor x);
int64_t is_launched(torch::Tensor x);
torch::Tensor checked(torch::Tensor x);
torch::Tensor cleared(torch::Tensor x);
int64_t device_index();
"""
KERNELS = """
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>

__global__ void fill(float* x) { x[threadIdx.x] = 3; }

torch::Tensor unchecked(torch::Tensor x) {
  auto y = torch::empty_like(x);
  fill<<<1, 4>>>(y.data_ptr<float>());
  return y;
}
int64_t is_launched(torch::Tensor x) {
  fill<<<1, 4>>>(x.data_ptr<float>());
  return cudaGetLastError() == cudaSuccess;
}
torch::Tensor checked(torch::Tensor x) {
  fill<<<1, 4>>>(x.data_ptr<float>());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return x;
}
torch::Tensor cleared(torch::Tensor x) {
  cudaMemset(x.data_ptr<float>(), 0, 4);
  return x;
}
int64_t device_index() { return c10::cuda::current_device(); }
"""
FUNCTIONS = ["unchecked", "is_launched", "checked", "cleared", "device_index"]


def load_kernels() -> Any:
    """Load the kernels into the current session; compiling them takes seconds once."""
    return load_inline("kernels_without_gpu", DECLARATIONS, KERNELS, functions=FUNCTIONS, extra_cflags=["-O0"])


def test_cuda_sources_are_refused_as_in_pytorch(tg: Any, kernel_cache: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch raises an OSError without CUDA, and packages then use what they have for the CPU."""
    monkeypatch.delenv("TORCH_CUDA_ARCH_LIST", raising=False)
    with pytest.raises(errors.ToolkitError, match=r"no GPU to compile CUDA sources for.*ARCH_LIST") as raised:
        load_kernels()
    assert isinstance(raised.value, OSError)


def test_a_launch_that_fails_ends_its_function(tg: Any, kernel_cache: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function that does not ask for the error would return memory that no kernel has written."""
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0")
    if cuda_toolkit() is None:
        with pytest.raises(errors.ToolkitError, match="no nvcc"):
            load_kernels()
        return
    kernels = load_kernels()
    for name in ("unchecked", "checked", "cleared"):
        with pytest.raises(errors.ExtensionError, match="CUDA error: no CUDA-capable device is detected"):
            getattr(kernels, name)(tg.ones(4))
    with pytest.raises(errors.ExtensionError, match="the session has no GPU"):
        kernels.device_index()
    assert kernels.is_launched(tg.ones(4)) == 0, "the function asks for the error, and deals with it"
    assert tg.ones(4).sum().item() == 4.0
