// Functions of tensors, their operators, and what makes them.
#pragma once

#include "tensor.h"

namespace at {

#define TELEGRAD_FUNCTIONS(Result, name)                                                               \
  template <class... A>                                                                                \
  Result name(const Tensor& self, const A&... arguments) { return call<Result>(#name, self, arguments...); } \
  template <class... A>                                                                                \
  Result name(const Tensor& self, std::initializer_list<int64_t> list, const A&... arguments) {        \
    return call<Result>(#name, self, list, arguments...);                                              \
  }                                                                                                    \
  template <class... A>                                                                                \
  Result name(const Tensor& self, std::initializer_list<int64_t> list, std::initializer_list<int64_t> other, const A&... arguments) { \
    return call<Result>(#name, self, list, other, arguments...);                                       \
  }
#define TELEGRAD_FUNCTION(name) TELEGRAD_FUNCTIONS(Tensor, name)
TELEGRAD_ONE_RESULT(TELEGRAD_FUNCTION)
TELEGRAD_ONLY_FUNCTIONS(TELEGRAD_FUNCTION)
#undef TELEGRAD_FUNCTION
#define TELEGRAD_FUNCTION(name) TELEGRAD_FUNCTIONS(std::tuple<Tensor COMMA Tensor>, name)
TELEGRAD_TWO_RESULTS(TELEGRAD_FUNCTION)
TELEGRAD_TWO_RESULTS_FUNCTIONS(TELEGRAD_FUNCTION)
#undef TELEGRAD_FUNCTION
#define TELEGRAD_FUNCTION(name) TELEGRAD_FUNCTIONS(std::tuple<Tensor COMMA Tensor COMMA Tensor>, name)
TELEGRAD_THREE_RESULTS(TELEGRAD_FUNCTION)
TELEGRAD_THREE_RESULTS_FUNCTIONS(TELEGRAD_FUNCTION)
#undef TELEGRAD_FUNCTION
#define TELEGRAD_FUNCTION(name) TELEGRAD_FUNCTIONS(std::vector<Tensor>, name)
TELEGRAD_MANY_RESULTS(TELEGRAD_FUNCTION)
#undef TELEGRAD_FUNCTION
#define TELEGRAD_FUNCTION(name)                                    \
  template <class... A>                                            \
  const Tensor& name(const Tensor& self, const A&... arguments) {  \
    run(#name, self, arguments...);                                \
    return self;                                                   \
  }
TELEGRAD_IN_PLACE(TELEGRAD_FUNCTION)
#undef TELEGRAD_FUNCTION
Tensor polygamma(int64_t n, const Tensor& self);
Tensor linalg_multi_dot(TensorList tensors);
Tensor chain_matmul(TensorList tensors);
#define TELEGRAD_FUNCTION(name)                                                                \
  template <class... A>                                                                        \
  auto name(const Tensor& self, const A&... arguments) { return self.name(arguments...); }
TELEGRAD_FUNCTION(max) TELEGRAD_FUNCTION(min) TELEGRAD_FUNCTION(median)
#undef TELEGRAD_FUNCTION
#define TELEGRAD_FUNCTION(name, other) \
  template <class... A>                \
  Tensor name(const Tensor& self, const A&... arguments) { return call(#other, self, arguments...); }
TELEGRAD_ALIASES(TELEGRAD_FUNCTION)
#undef TELEGRAD_FUNCTION
#undef COMMA

Tensor cat(TensorList tensors, int64_t dim = 0);
Tensor concat(TensorList tensors, int64_t dim = 0);
Tensor stack(TensorList tensors, int64_t dim = 0);
Tensor hstack(TensorList tensors);
Tensor vstack(TensorList tensors);
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
Tensor where(const Tensor& condition, const Tensor& a, const Scalar& b);
Tensor where(const Tensor& condition, const Scalar& a, const Tensor& b);
#define TELEGRAD_OF_NUMBER(name) Tensor name(const Scalar& a, const Tensor& b);
TELEGRAD_OF_NUMBER(pow) TELEGRAD_OF_NUMBER(xlogy) TELEGRAD_OF_NUMBER(remainder)
#undef TELEGRAD_OF_NUMBER
Tensor where(const Tensor& condition, const Scalar& a, const Scalar& b);
std::vector<Tensor> where(const Tensor& condition);
bool equal(const Tensor& a, const Tensor& b);
bool allclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8, bool equal_nan = false);
int64_t size(const Tensor& self, int64_t dim);
int64_t numel(const Tensor& self);

#define TELEGRAD_OPERATOR(op)                       \
  Tensor operator op(const Tensor& a, const Tensor& b); \
  Tensor operator op(const Tensor& a, const Scalar& b); \
  Tensor operator op(const Scalar& a, const Tensor& b);
TELEGRAD_OPERATOR(+) TELEGRAD_OPERATOR(-) TELEGRAD_OPERATOR(*) TELEGRAD_OPERATOR(/) TELEGRAD_OPERATOR(%)
TELEGRAD_OPERATOR(&) TELEGRAD_OPERATOR(|) TELEGRAD_OPERATOR(^) TELEGRAD_OPERATOR(==) TELEGRAD_OPERATOR(!=)
TELEGRAD_OPERATOR(<) TELEGRAD_OPERATOR(>) TELEGRAD_OPERATOR(<=) TELEGRAD_OPERATOR(>=)
#undef TELEGRAD_OPERATOR

namespace detail {
Tensor finish(Tensor made, const TensorOptions& options);
// New memory takes one short request: the answer is its handle and its address.
Tensor new_memory(IntArrayRef sizes, IntArrayRef strides, ScalarType dtype, int64_t device);
int64_t device_of(const TensorOptions& options);
TensorOptions given(const TensorOptions& options);
}  // namespace detail

Tensor empty(IntArrayRef sizes, const TensorOptions& options = {}, std::optional<MemoryFormat> format = {});
Tensor empty(IntArrayRef sizes, std::optional<ScalarType> type, std::optional<Layout>, std::optional<Device> device,
                    std::optional<bool>, std::optional<MemoryFormat> format = {});
Tensor empty_strided(IntArrayRef sizes, IntArrayRef strides, const TensorOptions& options = {});
Tensor empty_like(const Tensor& self);
Tensor empty_like(const Tensor& self, const TensorOptions& options, std::optional<MemoryFormat> format = {});
#define LEGACY_CONTIGUOUS_MEMORY_FORMAT (::c10::MemoryFormat::Contiguous)
#define TELEGRAD_FILLED(name)                                             \
  Tensor name(IntArrayRef sizes, const TensorOptions& options = {});      \
  Tensor name##_like(const Tensor& self, const TensorOptions& options, std::optional<MemoryFormat> format = {});
TELEGRAD_FILLED(zeros) TELEGRAD_FILLED(ones) TELEGRAD_FILLED(rand) TELEGRAD_FILLED(randn)
#undef TELEGRAD_FILLED
Tensor full(IntArrayRef sizes, const Scalar& value, const TensorOptions& options = {});
Tensor rand(IntArrayRef sizes, const std::optional<Generator>&, const TensorOptions& options = {});
Tensor randn(IntArrayRef sizes, const std::optional<Generator>&, const TensorOptions& options = {});
Tensor normal(double mean, double std, IntArrayRef sizes, const std::optional<Generator>& = {}, const TensorOptions& options = {});
Tensor randint(int64_t low, int64_t high, IntArrayRef sizes, const TensorOptions& options = {});
Tensor randint(int64_t high, IntArrayRef sizes, const TensorOptions& options = {});
Tensor randperm(int64_t n, const TensorOptions& options = {});
Tensor randperm(int64_t n, const std::optional<Generator>&, const TensorOptions& options = {});
Tensor arange(const Scalar& start, const Scalar& end, const Scalar& step, const TensorOptions& options = {});
Tensor arange(const Scalar& start, const Scalar& end, const TensorOptions& options = {});
Tensor arange(const Scalar& end, const TensorOptions& options = {});
Tensor linspace(const Scalar& start, const Scalar& end, int64_t steps, const TensorOptions& options = {});
// From ``start`` to ``end``, which is the last one where the steps come to it.
Tensor range(const Scalar& start, const Scalar& end, const Scalar& step = 1, const TensorOptions& options = {});
#define TELEGRAD_WINDOW(name)                                              \
  Tensor name##_window(int64_t length, const TensorOptions& options = {});  \
  Tensor name##_window(int64_t length, bool periodic, const TensorOptions& options = {});
TELEGRAD_WINDOW(hann) TELEGRAD_WINDOW(hamming) TELEGRAD_WINDOW(bartlett) TELEGRAD_WINDOW(blackman)
#undef TELEGRAD_WINDOW
Tensor eye(int64_t n, const TensorOptions& options = {});
Tensor eye(int64_t n, int64_t m, const TensorOptions& options = {});
Tensor scalar_tensor(const Scalar& value, const TensorOptions& options = {});

// Copies: the memory of a tensor is the worker's. What ``deleter`` says to call is called at once.
template <class Deleter = std::nullptr_t>
Tensor from_blob(void* data, IntArrayRef sizes, const Deleter& deleter, const TensorOptions& options) {
  TORCH_CHECK(!options.device().is_cuda(), "from_blob: takes memory of the host; copy_ into a tensor of the GPU");
  Tensor made = detail::new_memory(sizes, {}, options.dtype(), -1);
  std::memcpy(made.data_ptr(), data, made.nbytes());
  if constexpr (!std::is_same_v<Deleter, std::nullptr_t>) deleter(data);
  return detail::finish(std::move(made), options);
}
Tensor from_blob(void* data, IntArrayRef sizes, const TensorOptions& options = {});
Tensor from_blob(void* data, IntArrayRef sizes, IntArrayRef strides, const TensorOptions& options = {});
template <class Deleter>
Tensor from_blob(void* data, IntArrayRef sizes, IntArrayRef strides, const Deleter& deleter, const TensorOptions& options) {
  Tensor made = from_blob(data, sizes, strides, options);
  deleter(data);
  return made;
}
template <class T>
Tensor tensor(ArrayRef<T> list, const TensorOptions& options = {}) {
  constexpr ScalarType own = CppTypeToScalarType<T>::value;
  const auto type = options.has_dtype() || isFloatingType(own) ? options.dtype().toScalarType() : own == kInt ? kLong : own;
  Tensor made = detail::new_memory({static_cast<int64_t>(list.size())}, {}, own, -1);
  std::copy(list.begin(), list.end(), made.data_ptr<T>());
  return detail::finish(made.to(TensorOptions(type).device(options.device())), options);
}
template <class T>
Tensor tensor(std::initializer_list<T> list, const TensorOptions& options = {}) {
  return tensor(ArrayRef<T>(list.begin(), list.size()), options);
}
template <class T>
Tensor tensor(std::initializer_list<std::initializer_list<T>> rows, const TensorOptions& options = {});
namespace detail {
template <class Rows>
Tensor stacked(const Rows& rows, const TensorOptions& options) {
  std::vector<Tensor> made;
  for (const auto& row : rows) made.push_back(tensor(row, options.requires_grad(false)));
  return finish(call("stack", made, 0), options);
}
}  // namespace detail
template <class T>
Tensor tensor(std::initializer_list<std::initializer_list<T>> rows, const TensorOptions& options) {
  return detail::stacked(rows, options);
}
template <class T>
Tensor tensor(std::initializer_list<std::initializer_list<std::initializer_list<T>>> rows, const TensorOptions& options = {}) {
  return detail::stacked(rows, options);
}
template <class T>
Tensor tensor(const std::vector<T>& list, const TensorOptions& options = {}) { return tensor(ArrayRef<T>(list), options); }
template <class T>
auto tensor(const T& value, const TensorOptions& options = {}) -> std::enable_if_t<std::is_convertible_v<T, Scalar>, Tensor> {
  return full({}, value, options);
}
void manual_seed(uint64_t seed);

}  // namespace at
