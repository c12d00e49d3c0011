// The entry points of an extension's library, defined in one source of it.
#pragma once

#include <new>

#include "binding.h"
#include "cuda.h"

namespace telegrad {
inline Words answer;

// Leaves the words of the answer where the worker looks for them.
inline void publish() {
  const auto count = static_cast<int64_t>(answer.words.size());
  context[RESULT_COUNT] = count;
  context[RESULT_ADDRESS] = count > BUFFER_WORDS ? reinterpret_cast<int64_t>(answer.words.data()) : 0;
  if (count <= BUFFER_WORDS) std::memcpy(context + BUFFER, answer.words.data(), answer.words.size() * sizeof(int64_t));
}
inline void publish_error(const char* type, const char* message) {
  answer.words.clear();
  put(answer, std::string_view(type));
  put(answer, std::string_view(message));
  publish();
}

// Runs work; 1 says that it has thrown, and the answer is then the name of Python's error and the message.
template <class Work>
int64_t guarded(const Work& work) noexcept {
  try {
    answer.words.clear();
    work();
    publish();
    return 0;
  } catch (const c10::IndexError& error) {
    publish_error("IndexError", error.what());
  } catch (const c10::ValueError& error) {
    publish_error("ValueError", error.what());
  } catch (const c10::TypeError& error) {
    publish_error("TypeError", error.what());
  } catch (const c10::NotImplementedError& error) {
    publish_error("NotImplementedError", error.what());
  } catch (const c10::OutOfMemoryError& error) {
    publish_error("OutOfMemoryError", error.what());
  } catch (const std::bad_alloc& error) {
    publish_error("MemoryError", error.what());
  } catch (const std::invalid_argument& error) {
    publish_error("ValueError", error.what());
  } catch (const std::domain_error& error) {
    publish_error("ValueError", error.what());
  } catch (const std::length_error& error) {
    publish_error("ValueError", error.what());
  } catch (const std::out_of_range& error) {
    publish_error("IndexError", error.what());
  } catch (const std::exception& error) {
    publish_error("RuntimeError", error.what());
  } catch (...) {
    publish_error("RuntimeError", "an exception that is no std::exception");
  }
  return 1;
}

// Gives arguments that outlive the call handles of their own.
inline void keep_arguments() {
  bool is_answer_lost = false;
  for (size_t place = 0; place < at::arguments.size(); ++place) {
    if (at::arguments[place] == nullptr) continue;
    Words words;
    words.put(static_cast<int64_t>(place));
    at::arguments[place]->handle = request(KEEP, words)[0];
    is_answer_lost = true;
  }
  at::arguments.clear();
  if (is_answer_lost) publish();
}

// The function that nodes of the backward graph call; the worker finds it by its name.
inline const AtLoad differentiates([] { registry().functions.push_back(function_of("telegrad::differentiate", &differentiate)); });

inline void describe() {
  for (const auto& run : AtLoad::pending()) run();
  AtLoad::pending().clear();
  const auto& known = registry();
  answer.put(LIST, 4);
  answer.put(LIST, static_cast<int64_t>(known.functions.size()));
  for (const auto& function : known.functions) {
    answer.put(LIST, 5);
    put(answer, function.name);
    put(answer, function.doc);
    put(answer, function.result);
    put(answer, function.is_exported);
    answer.put(LIST, static_cast<int64_t>(function.parameters.size()));
    for (const auto& parameter : function.parameters) {
      answer.put(LIST, parameter.has_default ? 3 : 2);
      put(answer, parameter.name);
      put(answer, parameter.type);
      answer.words.insert(answer.words.end(), parameter.value.words.begin(), parameter.value.words.end());
    }
  }
  answer.put(LIST, static_cast<int64_t>(known.operators.size()));
  for (const auto& op : known.operators)
    put(answer, std::make_tuple(op.space, op.name_or_schema, op.key, op.function, op.is_definition));
  answer.put(LIST, static_cast<int64_t>(known.attributes.size()));
  for (const auto& [name, value] : known.attributes) {
    answer.put(LIST, 2);
    put(answer, name);
    answer.words.insert(answer.words.end(), value.words.begin(), value.words.end());
  }
  put(answer, known.doc);
}
}  // namespace telegrad

extern "C" C10_EXPORT int64_t telegrad_load(int64_t* shared) {
  telegrad::context = shared;
  telegrad::calling_thread = pthread_self();
  if (shared[telegrad::ABI] != telegrad::ABI_VERSION) return 2;
  return telegrad::guarded(telegrad::describe);
}

extern "C" C10_EXPORT int64_t telegrad_call(int64_t function, const int64_t* arguments) {
#ifdef TELEGRAD_WITH_CUDA
  const int64_t device = telegrad::context[telegrad::CURRENT_DEVICE];
  if (device >= 0) (void)cudaSetDevice(static_cast<int>(device));
#endif
  const int64_t failed = telegrad::guarded([&] {
    telegrad::Reader reader(arguments);
    telegrad::registry().functions[static_cast<size_t>(function)].run(reader, telegrad::answer);
  });
  telegrad::keep_arguments();
  return failed;
}

// Drops what a node of the backward graph computes its gradients by; it may be called while another function runs.
extern "C" C10_EXPORT void telegrad_release(int64_t number) {
  const auto found = telegrad::differentiated().find(number);
  if (found == telegrad::differentiated().end()) return;
  const auto dropped = std::move(found->second);
  telegrad::differentiated().erase(found);
}

#ifdef TELEGRAD_WITH_CUDA
// A session works on a stream of its own, which CUDA's default stream does not wait for: what an extension gives to the
// default stream goes to the session's. The linker puts these functions in the places of CUDA's.
namespace telegrad {
inline cudaStream_t own_stream(cudaStream_t stream) {
  if (stream != nullptr && stream != cudaStreamLegacy) return stream;
  return reinterpret_cast<cudaStream_t>(context[STREAMS + context[CURRENT_DEVICE]]);
}
inline void note_copy(cudaMemcpyKind kind) {
  if (kind != cudaMemcpyHostToDevice && kind != cudaMemcpyDeviceToDevice) context[READS_DATA] = 1;
}
}  // namespace telegrad

extern "C" {
unsigned __real___cudaPushCallConfiguration(dim3, dim3, size_t, struct CUstream_st*);
unsigned __wrap___cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, struct CUstream_st* stream) {
  return __real___cudaPushCallConfiguration(grid, block, shared, telegrad::own_stream(stream));
}
cudaError_t __real_cudaLaunchKernel(const void*, dim3, dim3, void**, size_t, cudaStream_t);
cudaError_t __wrap_cudaLaunchKernel(const void* f, dim3 grid, dim3 block, void** args, size_t shared, cudaStream_t stream) {
  return __real_cudaLaunchKernel(f, grid, block, args, shared, telegrad::own_stream(stream));
}
cudaError_t __real_cudaMemcpyAsync(void*, const void*, size_t, cudaMemcpyKind, cudaStream_t);
cudaError_t __wrap_cudaMemcpyAsync(void* to, const void* from, size_t count, cudaMemcpyKind kind, cudaStream_t stream) {
  telegrad::note_copy(kind);
  return __real_cudaMemcpyAsync(to, from, count, kind, telegrad::own_stream(stream));
}
cudaError_t __wrap_cudaMemcpy(void* to, const void* from, size_t count, cudaMemcpyKind kind) {
  telegrad::note_copy(kind);
  const cudaStream_t stream = telegrad::own_stream(nullptr);
  const cudaError_t error = __real_cudaMemcpyAsync(to, from, count, kind, stream);
  return error == cudaSuccess ? cudaStreamSynchronize(stream) : error;
}
cudaError_t __real_cudaMemsetAsync(void*, int, size_t, cudaStream_t);
cudaError_t __wrap_cudaMemsetAsync(void* to, int value, size_t count, cudaStream_t stream) {
  return __real_cudaMemsetAsync(to, value, count, telegrad::own_stream(stream));
}
cudaError_t __wrap_cudaMemset(void* to, int value, size_t count) {
  return __real_cudaMemsetAsync(to, value, count, telegrad::own_stream(nullptr));
}
cudaError_t __wrap_cudaMemcpyFromSymbol(void* to, const void* symbol, size_t count, size_t offset, cudaMemcpyKind kind) {
  telegrad::note_copy(kind);
  const cudaStream_t stream = telegrad::own_stream(nullptr);
  const cudaError_t error = cudaMemcpyFromSymbolAsync(to, symbol, count, offset, kind, stream);
  return error == cudaSuccess ? cudaStreamSynchronize(stream) : error;
}
cudaError_t __wrap_cudaMemcpyToSymbol(const void* symbol, const void* from, size_t count, size_t offset, cudaMemcpyKind kind) {
  const cudaStream_t stream = telegrad::own_stream(nullptr);
  const cudaError_t error = cudaMemcpyToSymbolAsync(symbol, from, count, offset, kind, stream);
  return error == cudaSuccess ? cudaStreamSynchronize(stream) : error;
}
}
#endif
