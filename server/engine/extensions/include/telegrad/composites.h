// Functions that are made of operations: sums of products by letters, grids, and what has several results in C++ alone.
#pragma once

#include "members.h"

namespace at {
Tensor embedding(const Tensor& weight, const Tensor& indices, int64_t padding_idx = -1);
Tensor concatenate(TensorList tensors, int64_t dim = 0);
Tensor dstack(TensorList tensors);
Tensor column_stack(TensorList tensors);
Tensor logspace(const Scalar& start, const Scalar& end, int64_t steps, double base = 10.0, const TensorOptions& options = {});
Tensor diagflat(const Tensor& self, int64_t offset = 0);
bool is_nonzero(const Tensor& self);
Tensor log_sigmoid(const Tensor& self);

std::vector<Tensor> broadcast_tensors(TensorList tensors);

std::vector<Tensor> meshgrid(TensorList tensors, std::string_view indexing = "ij");

std::tuple<Tensor, Tensor, Tensor> native_layer_norm(
    const Tensor& input, IntArrayRef normalized_shape, const std::optional<Tensor>& weight, const std::optional<Tensor>& bias,
    double eps);

Tensor _softmax(const Tensor& self, int64_t dim, bool half_to_float);
Tensor _log_softmax(const Tensor& self, int64_t dim, bool half_to_float);
Tensor norm(const Tensor& self, const Scalar& p, std::initializer_list<int64_t> dims, bool keepdim = false);

// Values that are others than the ones before them, which of them each element is, and how many elements each is.
std::tuple<Tensor, Tensor, Tensor> unique_consecutive(const Tensor& self, bool inverse = false, bool counts = false);
std::tuple<Tensor, Tensor, Tensor> _unique2(const Tensor& self, bool = true, bool inverse = false, bool counts = false);
std::tuple<Tensor, Tensor> _unique(const Tensor& self, bool sorted = true, bool inverse = false);

// Convolutions whose lists may be given as braces.
Tensor convolution(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias, IntArrayRef stride,
                          IntArrayRef padding, IntArrayRef dilation, bool transposed, IntArrayRef output_padding, int64_t groups);
#define TELEGRAD_CONVOLUTION(name)                                                                             \
  Tensor name(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias, IntArrayRef stride, \
              IntArrayRef padding = 0, IntArrayRef dilation = 1, int64_t groups = 1);
TELEGRAD_CONVOLUTION(conv1d) TELEGRAD_CONVOLUTION(conv2d) TELEGRAD_CONVOLUTION(conv3d)
#undef TELEGRAD_CONVOLUTION

// What is computed into a tensor that there is.
namespace detail {
const Tensor& into(const Tensor& out, const Tensor& result);
}  // namespace detail
#define TELEGRAD_FUNCTION(name)                                       \
  template <class... A>                                               \
  const Tensor& name##_out(const Tensor& out, const A&... arguments) { \
    return detail::into(out, name(arguments...));                     \
  }                                                                   \
  template <class... A>                                               \
  const Tensor& name##_out(const Tensor& out, const Tensor& self, std::initializer_list<int64_t> dims, const A&... arguments) { \
    return detail::into(out, call(#name, self, dims, arguments...));  \
  }
TELEGRAD_WITH_OUTPUT(TELEGRAD_FUNCTION)
#undef TELEGRAD_FUNCTION
#define TELEGRAD_FUNCTION(name)                                        \
  template <class... A>                                                \
  const Tensor& name##_out(const Tensor& out, const A&... arguments) { \
    return detail::into(out, name(arguments...));                      \
  }
TELEGRAD_FUNCTION(where) TELEGRAD_FUNCTION(nonzero) TELEGRAD_FUNCTION(arange) TELEGRAD_FUNCTION(linspace) TELEGRAD_FUNCTION(softmax)
#undef TELEGRAD_FUNCTION
const Tensor& full_out(const Tensor& out, IntArrayRef sizes, const Scalar& value);
const Tensor& zeros_out(const Tensor& out, IntArrayRef sizes);
const Tensor& ones_out(const Tensor& out, IntArrayRef sizes);
const Tensor& cat_out(const Tensor& out, TensorList tensors, int64_t dim = 0);
const Tensor& stack_out(const Tensor& out, TensorList tensors, int64_t dim = 0);

namespace detail {
// A tensor whose dimensions are those of ``letters``, in this order, with size 1 where it lacks one.
Tensor spread(Tensor self, std::string own, const std::string& letters);

// The product of two tensors by letters, summed over those that are not kept.
Tensor contract(const Tensor& a, const std::string& of_a, const Tensor& b, const std::string& of_b, const std::string& kept);

// The equation with a letter of its own for each dimension that an ellipsis stands for, from the last one on.
std::string without_ellipsis(const std::string& text, TensorList operands);
}  // namespace detail

// Sums of products by letters, such as "bij,bjk->bik", from left to right.
Tensor einsum(std::string_view equation, TensorList operands);

Tensor tensordot(const Tensor& a, const Tensor& b, IntArrayRef of_a, IntArrayRef of_b);
}  // namespace at
