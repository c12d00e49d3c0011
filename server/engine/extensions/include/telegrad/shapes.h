// What sizes become: dimensions counted from the end, tensors that are expanded to each other, threads over ranges.
#pragma once

#include <utility>

#include "members.h"

namespace c10 {
int64_t maybe_wrap_dim(int64_t dim, int64_t count, bool wrap_scalar = true);
template <class List>
std::string Join(const std::string& between, const List& list) {
  std::ostringstream text;
  const char* before = "";
  for (const auto& element : list) {
    text << before << element;
    before = between.c_str();
  }
  return text.str();
}
}  // namespace c10

namespace at {
using c10::maybe_wrap_dim;
int64_t maybe_wrap_dim(int64_t dim, TensorList tensors);

bool are_expandable(IntArrayRef a, IntArrayRef b);
bool is_expandable_to(IntArrayRef shape, IntArrayRef desired);
std::vector<int64_t> infer_size(IntArrayRef a, IntArrayRef b);
// Sizes of which one is -1, for so many elements.
std::vector<int64_t> infer_size(IntArrayRef shape, int64_t numel);
Tensor expand_size(const Tensor& self, IntArrayRef sizes);
std::tuple<Tensor> expand_inplace(const Tensor& self, const Tensor& other, const char* = "");
std::tuple<Tensor, Tensor> expand_outplace(const Tensor& a, const Tensor& b, const char* = "");
// The sum over what a tensor of these sizes was expanded by.
Tensor sum_to(Tensor self, IntArrayRef sizes, bool = false);

// The type that both are converted to where they meet in an operation.
ScalarType promoteTypes(ScalarType a, ScalarType b);
ScalarType promote_types(ScalarType a, ScalarType b);
ScalarType result_type(const Tensor& a, const Tensor& b);
bool can_cast(ScalarType from, ScalarType to);

Tensor atleast_1d(const Tensor& self);
Tensor atleast_2d(const Tensor& self);
Tensor atleast_3d(const Tensor& self);
template <class Pieces>
std::vector<Tensor> hsplit(const Tensor& self, const Pieces& pieces) { return self.tensor_split(pieces, self.dim() > 1 ? 1 : 0); }
template <class Pieces>
std::vector<Tensor> vsplit(const Tensor& self, const Pieces& pieces) { return self.tensor_split(pieces, 0); }
template <class Pieces>
std::vector<Tensor> dsplit(const Tensor& self, const Pieces& pieces) { return self.tensor_split(pieces, 2); }
}  // namespace at
