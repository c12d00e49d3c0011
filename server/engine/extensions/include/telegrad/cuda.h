// Streams, devices and checks of CUDA. The current stream is that of the session that called the extension.
#pragma once

#ifdef TELEGRAD_WITH_CUDA
#include <cuda_runtime.h>

#include "binding.h"

#define C10_CUDA_CHECK(call)                                                                                \
  do {                                                                                                      \
    const cudaError_t telegrad_error = (call);                                                              \
    if (telegrad_error != cudaSuccess) {                                                                    \
      (void)cudaGetLastError();                                                                             \
      throw ::c10::Error(::c10::str("CUDA error: ", cudaGetErrorString(telegrad_error), " (", __FILE__, ":", __LINE__, ")")); \
    }                                                                                                       \
  } while (0)
#define AT_CUDA_CHECK C10_CUDA_CHECK
#define TORCH_CUDA_CHECK C10_CUDA_CHECK
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())
#define TORCH_CUDA_KERNEL_LAUNCH_CHECK C10_CUDA_KERNEL_LAUNCH_CHECK
#define CUDA_KERNEL_LOOP(i, n) \
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < (n); i += static_cast<int64_t>(blockDim.x) * gridDim.x)

namespace c10::cuda {
inline DeviceIndex current_device() {
  const int64_t index = telegrad::context[telegrad::CURRENT_DEVICE];
  TORCH_CHECK(index >= 0, "CUDA error: ", cudaGetErrorString(cudaErrorNoDevice), " (the session has no GPU)");
  return static_cast<DeviceIndex>(index);
}
inline DeviceIndex device_count() {
  int count = 0;
  C10_CUDA_CHECK(cudaGetDeviceCount(&count));
  return static_cast<DeviceIndex>(count);
}
inline void set_device(DeviceIndex index) {
  if (index < 0 || index == current_device()) return;
  C10_CUDA_CHECK(cudaSetDevice(index));
  telegrad::context[telegrad::CURRENT_DEVICE] = index;
}

class CUDAStream {
 public:
  explicit CUDAStream(cudaStream_t stream, DeviceIndex index) : stream_(stream), index_(index) {}
  cudaStream_t stream() const { return stream_; }
  operator cudaStream_t() const { return stream_; }
  DeviceIndex device_index() const { return index_; }
  void synchronize() const { C10_CUDA_CHECK(cudaStreamSynchronize(stream_)); }
  bool operator==(const CUDAStream& other) const { return stream_ == other.stream_; }

 private:
  cudaStream_t stream_;
  DeviceIndex index_;
};
inline CUDAStream getCurrentCUDAStream(DeviceIndex index = -1) {
  if (index < 0) index = current_device();
  return CUDAStream(reinterpret_cast<cudaStream_t>(telegrad::context[telegrad::STREAMS + index]), index);
}
inline CUDAStream getDefaultCUDAStream(DeviceIndex index = -1) { return getCurrentCUDAStream(index); }

class CUDAGuard {
 public:
  explicit CUDAGuard(DeviceIndex index) : before_(current_device()) { set_device(index); }
  explicit CUDAGuard(Device device) : CUDAGuard(device.index()) {}
  ~CUDAGuard() { set_device(before_); }
  CUDAGuard(const CUDAGuard&) = delete;
  CUDAGuard& operator=(const CUDAGuard&) = delete;
  void set_index(DeviceIndex index) { set_device(index); }
  void set_device(Device device) { set_device(device.index()); }
  static void set_device(DeviceIndex index) { c10::cuda::set_device(index); }

 private:
  DeviceIndex before_;
};
class OptionalCUDAGuard {
 public:
  OptionalCUDAGuard() = default;
  explicit OptionalCUDAGuard(std::optional<Device> device) {
    if (device && device->is_cuda()) guard_.emplace(*device);
  }

 private:
  std::optional<CUDAGuard> guard_;
};
}  // namespace c10::cuda

namespace at {
class DeviceGuard {
 public:
  explicit DeviceGuard(Device device) : guard_(device) {}

 private:
  c10::cuda::OptionalCUDAGuard guard_;
};
namespace cuda {
using namespace c10::cuda;
inline const cudaDeviceProp* getCurrentDeviceProperties() {
  static cudaDeviceProp properties[32];
  static bool is_known[32] = {};
  const auto index = static_cast<size_t>(current_device());
  if (!is_known[index]) C10_CUDA_CHECK(cudaGetDeviceProperties(&properties[index], static_cast<int>(index)));
  is_known[index] = true;
  return &properties[index];
}
template <class A, class B>
constexpr C10_HOST_DEVICE auto ATenCeilDiv(A a, B b) { return (a + b - 1) / b; }
}  // namespace cuda
}  // namespace at
namespace c10 {
using at::DeviceGuard;
using OptionalDeviceGuard = c10::cuda::OptionalCUDAGuard;
}  // namespace c10
#endif
