// What an extension asks CUDA to do. The linker puts these functions in the places of CUDA's own.
#pragma once

#ifdef TELEGRAD_WITH_CUDA
#include <atomic>

#include "cuda.h"

namespace telegrad {
// A session works on a stream of its own, which CUDA's default stream does not wait for: what an extension gives to the
// default stream goes to the session's.
inline cudaStream_t own_stream(cudaStream_t stream) {
  if (stream != nullptr && stream != cudaStreamLegacy) return stream;
  return reinterpret_cast<cudaStream_t>(context[STREAMS + context[CURRENT_DEVICE]]);
}
inline void note_copy(cudaMemcpyKind kind) {
  if (kind != cudaMemcpyHostToDevice && kind != cudaMemcpyDeviceToDevice) context[READS_DATA] = 1;
}

// Why the last launch or copy has failed, until the function asks for it: a function that never asks would return
// memory that nothing has written.
inline std::atomic<cudaError_t> unread_failure = cudaSuccess;

// Runs work where the session has a GPU, and notes what fails.
template <class Work>
cudaError_t noted(const Work& work) {
  const cudaError_t error = context[CURRENT_DEVICE] < 0 ? cudaErrorNoDevice : work();
  if (error != cudaSuccess) unread_failure = error;
  return error;
}
}  // namespace telegrad

extern "C" {
cudaError_t __real_cudaGetLastError();
cudaError_t __wrap_cudaGetLastError() {
  const cudaError_t failure = telegrad::unread_failure.exchange(cudaSuccess), error = __real_cudaGetLastError();
  return failure == cudaSuccess ? error : failure;
}
cudaError_t __real_cudaPeekAtLastError();
cudaError_t __wrap_cudaPeekAtLastError() {
  const cudaError_t failure = telegrad::unread_failure;
  return failure == cudaSuccess ? __real_cudaPeekAtLastError() : failure;
}
unsigned __real___cudaPushCallConfiguration(dim3, dim3, size_t, struct CUstream_st*);
unsigned __wrap___cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, struct CUstream_st* stream) {
  const auto push = [&] { return __real___cudaPushCallConfiguration(grid, block, shared, telegrad::own_stream(stream)); };
  return telegrad::noted([&] { return static_cast<cudaError_t>(push()); });
}
cudaError_t __real_cudaLaunchKernel(const void*, dim3, dim3, void**, size_t, cudaStream_t);
cudaError_t __wrap_cudaLaunchKernel(
    const void* f, dim3 grid, dim3 block, void** args, size_t shared, cudaStream_t stream) {
  return telegrad::noted(
      [&] { return __real_cudaLaunchKernel(f, grid, block, args, shared, telegrad::own_stream(stream)); });
}
cudaError_t __real_cudaLaunchCooperativeKernel(const void*, dim3, dim3, void**, size_t, cudaStream_t);
cudaError_t __wrap_cudaLaunchCooperativeKernel(
    const void* f, dim3 grid, dim3 block, void** args, size_t shared, cudaStream_t stream) {
  return telegrad::noted(
      [&] { return __real_cudaLaunchCooperativeKernel(f, grid, block, args, shared, telegrad::own_stream(stream)); });
}
cudaError_t __real_cudaLaunchKernelExC(const cudaLaunchConfig_t*, const void*, void**);
cudaError_t __wrap_cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* f, void** args) {
  return telegrad::noted([&] {
    cudaLaunchConfig_t own = *config;
    own.stream = telegrad::own_stream(config->stream);
    return __real_cudaLaunchKernelExC(&own, f, args);
  });
}
cudaError_t __real_cudaMemcpyAsync(void*, const void*, size_t, cudaMemcpyKind, cudaStream_t);
cudaError_t __wrap_cudaMemcpyAsync(void* to, const void* from, size_t count, cudaMemcpyKind kind, cudaStream_t stream) {
  telegrad::note_copy(kind);
  return telegrad::noted([&] { return __real_cudaMemcpyAsync(to, from, count, kind, telegrad::own_stream(stream)); });
}
cudaError_t __real_cudaMemsetAsync(void*, int, size_t, cudaStream_t);
cudaError_t __wrap_cudaMemsetAsync(void* to, int value, size_t count, cudaStream_t stream) {
  return telegrad::noted([&] { return __real_cudaMemsetAsync(to, value, count, telegrad::own_stream(stream)); });
}
cudaError_t __wrap_cudaMemset(void* to, int value, size_t count) {
  return __wrap_cudaMemsetAsync(to, value, count, nullptr);
}
}

namespace telegrad {
// Gives work to the session's stream, and waits for it.
template <class Work>
cudaError_t waited(const Work& work) {
  return noted([&] {
    const cudaStream_t stream = own_stream(nullptr);
    const cudaError_t error = work(stream);
    return error == cudaSuccess ? cudaStreamSynchronize(stream) : error;
  });
}

// Ends a function that has not asked whether its launches and copies failed.
inline void raise_unread_failure() {
  const cudaError_t failure = unread_failure.exchange(cudaSuccess);
  if (failure == cudaSuccess) return;
  (void)__real_cudaGetLastError();
  throw c10::Error(c10::str("CUDA error: ", cudaGetErrorString(failure), " (a launch or copy has failed)"));
}
}  // namespace telegrad

extern "C" {
cudaError_t __wrap_cudaMemcpy(void* to, const void* from, size_t count, cudaMemcpyKind kind) {
  telegrad::note_copy(kind);
  return telegrad::waited([&](cudaStream_t stream) { return __real_cudaMemcpyAsync(to, from, count, kind, stream); });
}
cudaError_t __wrap_cudaMemcpyFromSymbol(
    void* to, const void* symbol, size_t count, size_t offset, cudaMemcpyKind kind) {
  telegrad::note_copy(kind);
  return telegrad::waited(
      [&](cudaStream_t stream) { return cudaMemcpyFromSymbolAsync(to, symbol, count, offset, kind, stream); });
}
cudaError_t __wrap_cudaMemcpyToSymbol(
    const void* symbol, const void* from, size_t count, size_t offset, cudaMemcpyKind kind) {
  return telegrad::waited(
      [&](cudaStream_t stream) { return cudaMemcpyToSymbolAsync(symbol, from, count, offset, kind, stream); });
}
}
#endif
