// Indices as Python has them: x.index({Slice(0, 2), None, 3, "...", mask}).
#pragma once

#include "members.h"

namespace at {
namespace indexing {
struct EllipsisIndexType {};
inline constexpr EllipsisIndexType Ellipsis{};
inline constexpr std::nullopt_t None = std::nullopt;

struct Slice {
  std::optional<int64_t> start, stop;
  int64_t step;
  Slice(std::optional<int64_t> start = std::nullopt, std::optional<int64_t> stop = std::nullopt,
        std::optional<int64_t> step = std::nullopt)
      : start(start), stop(stop), step(step.value_or(1)) {}
};

struct TensorIndex {
  enum { NEW_AXIS, ELLIPSIS, INTEGER, SLICE, TENSOR } kind;
  int64_t integer = 0;
  Slice slice;
  Tensor tensor;
  TensorIndex(std::nullopt_t) : kind(NEW_AXIS) {}
  TensorIndex(EllipsisIndexType) : kind(ELLIPSIS) {}
  TensorIndex(const char*) : kind(ELLIPSIS) {}
  template <class T, std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool>, int> = 0>
  TensorIndex(T at) : kind(INTEGER), integer(static_cast<int64_t>(at)) {}
  TensorIndex(Slice range) : kind(SLICE), slice(range) {}
  TensorIndex(Tensor indices) : kind(TENSOR), tensor(std::move(indices)) {}
  TensorIndex(bool chosen) : TensorIndex(full({}, chosen, kBool)) {}
  bool is_none() const { return kind == NEW_AXIS; }
  bool is_tensor() const { return kind == TENSOR; }
};
// Tensors that index a dimension each; where there is none, the whole dimension is meant.
template <class List>
std::vector<TensorIndex> list_of(const List& indices) {
  std::vector<TensorIndex> made;
  for (const std::optional<Tensor>& index : indices) {
    if (index && index->defined()) made.emplace_back(*index);
    else made.emplace_back(Slice());
  }
  return made;
}

// Does what can be done by views, and collects the tensors among the indices by the dimension that they index then.
Tensor view_of(Tensor self, ArrayRef<TensorIndex> indices, std::vector<Tensor>& tensors);
}  // namespace indexing

Tensor index(const Tensor& self, std::initializer_list<indexing::TensorIndex> indices);
Tensor index_put(const Tensor& self, std::initializer_list<indexing::TensorIndex> indices, const Tensor& values, bool accumulate = false);
const Tensor& index_put_(const Tensor& self, std::initializer_list<indexing::TensorIndex> indices, const Tensor& values, bool accumulate = false);
}  // namespace at
