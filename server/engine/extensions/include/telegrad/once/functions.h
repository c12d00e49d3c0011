// What functions.h declares, compiled once for all extensions.
#pragma once

#include "../functions.h"

namespace at {
Tensor polygamma(int64_t n, const Tensor& self) { return call("polygamma", n, self); }
Tensor linalg_multi_dot(TensorList tensors) { return call("linalg_multi_dot", tensors); }
Tensor chain_matmul(TensorList tensors) { return linalg_multi_dot(tensors); }
Tensor cat(TensorList tensors, int64_t dim) { return call("cat", tensors, dim); }
Tensor concat(TensorList tensors, int64_t dim) { return cat(tensors, dim); }
Tensor stack(TensorList tensors, int64_t dim) { return call("stack", tensors, dim); }
Tensor hstack(TensorList tensors) { return call("hstack", tensors); }
Tensor vstack(TensorList tensors) { return call("vstack", tensors); }
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) { return call("where", condition, a, b); }
Tensor where(const Tensor& condition, const Tensor& a, const Scalar& b) { return call("where", condition, a, b); }
Tensor where(const Tensor& condition, const Scalar& a, const Tensor& b) { return call("where", condition, a, b); }
Tensor where(const Tensor& condition, const Scalar& a, const Scalar& b) { return call("where", condition, a, b); }
std::vector<Tensor> where(const Tensor& condition) { return condition.nonzero().unbind(1); }
bool equal(const Tensor& a, const Tensor& b) {
  return a.sizes() == b.sizes() && call("all", call("eq", a, b)).item<bool>();
}
bool allclose(const Tensor& a, const Tensor& b, double rtol, double atol, bool equal_nan) {
  return call("all", call("isclose", a, b, rtol, atol, equal_nan)).item<bool>();
}
int64_t size(const Tensor& self, int64_t dim) { return self.size(dim); }
int64_t numel(const Tensor& self) { return self.numel(); }
}  // namespace at

namespace at::detail {
Tensor finish(Tensor made, const TensorOptions& options) {
  if (options.requires_grad()) made.requires_grad_();
  return made;
}
Tensor new_memory(IntArrayRef sizes, IntArrayRef strides, ScalarType dtype, int64_t device) {
  using namespace telegrad;
  auto* impl = new TensorImpl;
  Tensor made(impl);
  impl->dtype = dtype;
  impl->device = device;
  impl->sizes.assign(sizes.begin(), sizes.end());
  impl->strides.assign(strides.begin(), strides.end());
  for (const int64_t size : sizes) {
    TORCH_CHECK(size >= 0, "Trying to create tensor with negative dimension ", size, ": ", sizes);
    impl->numel *= size;
  }
  if (strides.size() != sizes.size()) {
    impl->strides.resize(sizes.size());
    int64_t step = 1;
    for (size_t dim = sizes.size(); dim-- > 0; step *= sizes[dim] > 1 ? sizes[dim] : 1) impl->strides[dim] = step;
  }
  Words words;
  words.words.reserve(3 + 2 * sizes.size());
  words.put(static_cast<int64_t>(dtype));
  words.put(device);
  words.put(static_cast<int64_t>(sizes.size()));
  words.words.insert(words.words.end(), impl->sizes.begin(), impl->sizes.end());
  words.words.insert(words.words.end(), impl->strides.begin(), impl->strides.end());
  if (context[READY_COUNT] > 0) {  // the worker has made what the last call of this kind asked for
    auto* ready = reinterpret_cast<int64_t*>(context[READY_ADDRESS]);
    const auto count = static_cast<int64_t>(words.words.size());
    if (ready[0] == count && !std::memcmp(ready + 3, words.words.data(), words.words.size() * sizeof(int64_t))) {
      context[READY_COUNT] -= 1;
      context[READY_ADDRESS] += (3 + count) * static_cast<int64_t>(sizeof(int64_t));
      impl->handle = ready[1];
      impl->address = reinterpret_cast<char*>(ready[2]);
      return made;
    }
    context[READY_COUNT] = -context[READY_COUNT];  // it asks for something else this time
  }
  const int64_t* answer = request(EMPTY, words);
  impl->handle = answer[0];
  impl->address = reinterpret_cast<char*>(answer[1]);
  return made;
}
int64_t device_of(const TensorOptions& options) {
  if (!options.device().is_cuda()) return -1;
  return options.device().has_index() ? options.device().index() : telegrad::context[telegrad::CURRENT_DEVICE];
}
TensorOptions given(const TensorOptions& options) {  // operations of the worker are told where and what
  return options.dtype(options.dtype()).device(options.device());
}
}  // namespace at::detail

namespace at {
Tensor empty(IntArrayRef sizes, const TensorOptions& options, std::optional<MemoryFormat> format) {
  format = format ? format : options.memory_format_opt();
  std::vector<int64_t> strides;
  if (format == MemoryFormat::ChannelsLast || format == MemoryFormat::ChannelsLast3d) {
    TORCH_CHECK(sizes.size() == (format == MemoryFormat::ChannelsLast ? 4 : 5), "empty: the memory format does not fit");
    strides.assign(sizes.size(), 1);
    int64_t step = sizes[1];
    for (size_t dim = sizes.size(); dim-- > 2; step *= sizes[dim]) strides[dim] = step;
    strides[0] = step;
  }
  return detail::finish(detail::new_memory(sizes, strides, options.dtype(), detail::device_of(options)), options);
}
Tensor empty(IntArrayRef sizes, std::optional<ScalarType> type, std::optional<Layout>, std::optional<Device> device,
                    std::optional<bool>, std::optional<MemoryFormat> format) {
  return empty(sizes, TensorOptions().dtype(type).device(device), format);
}
Tensor empty_strided(IntArrayRef sizes, IntArrayRef strides, const TensorOptions& options) {
  return detail::finish(detail::new_memory(sizes, strides, options.dtype(), detail::device_of(options)), options);
}
Tensor empty_like(const Tensor& self) {
  if (!self.is_contiguous()) return call("empty_like", self);
  return detail::new_memory(self.sizes(), self.strides(), self.scalar_type(), self.impl().device);
}
Tensor empty_like(const Tensor& self, const TensorOptions& options, std::optional<MemoryFormat> format) {
  const auto merged = self.options().merge_in(options);
  format = format ? format : options.memory_format_opt();
  if (format && *format != MemoryFormat::Preserve) return empty(self.sizes(), merged, format);
  if (self.is_contiguous()) return empty(self.sizes(), merged);
  return detail::finish(call("empty_like", self, options), options);
}
Tensor full(IntArrayRef sizes, const Scalar& value, const TensorOptions& options) {
  const auto typed = options.has_dtype() || value.isFloatingPoint() ? options : options.dtype(value.type());
  return detail::finish(call("full", sizes, value, detail::given(typed)), options);
}
Tensor normal(double mean, double std, IntArrayRef sizes, const std::optional<Generator>&, const TensorOptions& options) {
  return detail::finish(call("normal", mean, std, sizes, detail::given(options)), options);
}
Tensor randint(int64_t low, int64_t high, IntArrayRef sizes, const TensorOptions& options) {
  const auto typed = options.has_dtype() ? options : options.dtype(kLong);
  return detail::finish(call("randint", low, high, sizes, detail::given(typed)), options);
}
Tensor randint(int64_t high, IntArrayRef sizes, const TensorOptions& options) {
  return randint(0, high, sizes, options);
}
Tensor randperm(int64_t n, const TensorOptions& options) {
  return call("randperm", n, detail::given(options.has_dtype() ? options : options.dtype(kLong)));
}
Tensor randperm(int64_t n, const std::optional<Generator>&, const TensorOptions& options) { return randperm(n, options); }
Tensor arange(const Scalar& start, const Scalar& end, const Scalar& step, const TensorOptions& options) {
  const bool real = start.isFloatingPoint() || end.isFloatingPoint() || step.isFloatingPoint();
  return call("arange", start, end, step, detail::given(options.has_dtype() || real ? options : options.dtype(kLong)));
}
Tensor arange(const Scalar& start, const Scalar& end, const TensorOptions& options) {
  return arange(start, end, 1, options);
}
Tensor arange(const Scalar& end, const TensorOptions& options) { return arange(0, end, 1, options); }
Tensor linspace(const Scalar& start, const Scalar& end, int64_t steps, const TensorOptions& options) {
  return call("linspace", start, end, steps, detail::given(options));
}
Tensor range(const Scalar& start, const Scalar& end, const Scalar& step, const TensorOptions& options) {
  const auto count = static_cast<int64_t>((end.toDouble() - start.toDouble()) / step.toDouble()) + 1;
  const auto places = call("arange", 0, count, 1, detail::given(options));
  return call("add", call("mul", places, step), start);
}
Tensor eye(int64_t n, const TensorOptions& options) { return call("eye", n, detail::given(options)); }
Tensor eye(int64_t n, int64_t m, const TensorOptions& options) {
  return call("eye", n, m, detail::given(options));
}
Tensor scalar_tensor(const Scalar& value, const TensorOptions& options) { return full({}, value, options); }
Tensor from_blob(void* data, IntArrayRef sizes, const TensorOptions& options) {
  return from_blob(data, sizes, nullptr, options);
}
Tensor from_blob(void* data, IntArrayRef sizes, IntArrayRef strides, const TensorOptions& options) {
  int64_t span = 1;  // from the first element to behind the last one
  for (size_t dim = 0; dim < sizes.size(); ++dim) span = sizes[dim] ? span + (sizes[dim] - 1) * strides[dim] : span;
  return detail::finish(call("as_strided", from_blob(data, {span}, nullptr, options.requires_grad(false)), sizes, strides), options);
}
void manual_seed(uint64_t seed) {
  telegrad::Words words;
  words.put(static_cast<int64_t>(seed));
  telegrad::request(telegrad::MANUAL_SEED, words);
}
#define TELEGRAD_OF_NUMBER(name) \
  Tensor name(const Scalar& a, const Tensor& b) { return call(#name, a, b); }
TELEGRAD_OF_NUMBER(pow) TELEGRAD_OF_NUMBER(xlogy) TELEGRAD_OF_NUMBER(remainder)
#undef TELEGRAD_OF_NUMBER
#define TELEGRAD_OPERATOR(op, name)                                                                         \
  Tensor operator op(const Tensor& a, const Tensor& b) { return call(#name, a, b); }                 \
  Tensor operator op(const Tensor& a, const Scalar& b) { return call(#name, a, b); }                 \
  Tensor operator op(const Scalar& a, const Tensor& b) { return call(#name, a, b); }
TELEGRAD_OPERATOR(+, add) TELEGRAD_OPERATOR(-, sub) TELEGRAD_OPERATOR(*, mul) TELEGRAD_OPERATOR(/, div)
TELEGRAD_OPERATOR(%, remainder) TELEGRAD_OPERATOR(&, bitwise_and) TELEGRAD_OPERATOR(|, bitwise_or)
TELEGRAD_OPERATOR(^, bitwise_xor)
#undef TELEGRAD_OPERATOR
#define TELEGRAD_COMPARISON(op, name, reversed)                                                             \
  Tensor operator op(const Tensor& a, const Tensor& b) { return call(#name, a, b); }                 \
  Tensor operator op(const Tensor& a, const Scalar& b) { return call(#name, a, b); }                 \
  Tensor operator op(const Scalar& a, const Tensor& b) { return call(#reversed, b, a); }
TELEGRAD_COMPARISON(==, eq, eq) TELEGRAD_COMPARISON(!=, ne, ne) TELEGRAD_COMPARISON(<, lt, gt)
TELEGRAD_COMPARISON(>, gt, lt) TELEGRAD_COMPARISON(<=, le, ge) TELEGRAD_COMPARISON(>=, ge, le)
#undef TELEGRAD_COMPARISON
#define TELEGRAD_FILLED(name)                                                                                    \
  Tensor name(IntArrayRef sizes, const TensorOptions& options) {                                     \
    return detail::finish(call(#name, sizes, detail::given(options)), options);                                  \
  }                                                                                                              \
  Tensor name##_like(const Tensor& self, const TensorOptions& options, std::optional<MemoryFormat> format) { \
    format = format ? format : options.memory_format_opt();                                                      \
    const Tensor made = call(#name "_like", self, options);                                                      \
    const bool is_said = format && *format != MemoryFormat::Preserve;                                            \
    return detail::finish(is_said ? made.contiguous(*format) : made, options);                                   \
  }
TELEGRAD_FILLED(zeros) TELEGRAD_FILLED(ones) TELEGRAD_FILLED(rand) TELEGRAD_FILLED(randn)
#undef TELEGRAD_FILLED
#define TELEGRAD_WINDOW(name)                                                                          \
  Tensor name##_window(int64_t length, const TensorOptions& options) {                     \
    return call(#name "_window", length, detail::given(options));                                      \
  }                                                                                                    \
  Tensor name##_window(int64_t length, bool periodic, const TensorOptions& options) {      \
    return call(#name "_window", length, periodic, detail::given(options));                            \
  }
TELEGRAD_WINDOW(hann) TELEGRAD_WINDOW(hamming) TELEGRAD_WINDOW(bartlett) TELEGRAD_WINDOW(blackman)
#undef TELEGRAD_WINDOW
#define TELEGRAD_RANDOM(name)                                                                                    \
  Tensor name(IntArrayRef sizes, const std::optional<Generator>&, const TensorOptions& options) {    \
    return name(sizes, options);                                                                                 \
  }
TELEGRAD_RANDOM(rand) TELEGRAD_RANDOM(randn)
#undef TELEGRAD_RANDOM
}  // namespace at
