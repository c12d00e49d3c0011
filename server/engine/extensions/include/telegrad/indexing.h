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
inline Tensor view_of(Tensor self, ArrayRef<TensorIndex> indices, std::vector<Tensor>& tensors) {
  int64_t used = 0, dim = 0;
  for (const auto& index : indices) {
    if (index.kind == TensorIndex::TENSOR && index.tensor.scalar_type() == kBool) used += index.tensor.dim();
    else used += index.kind == TensorIndex::INTEGER || index.kind == TensorIndex::SLICE || index.kind == TensorIndex::TENSOR;
  }
  TORCH_CHECK_INDEX(used <= self.dim(), "too many indices for tensor of dimension ", self.dim());
  const int64_t left = self.dim() - used;
  for (const auto& index : indices) {
    switch (index.kind) {
      case TensorIndex::NEW_AXIS: self = self.unsqueeze(dim++); break;
      case TensorIndex::ELLIPSIS: dim += left; break;
      case TensorIndex::INTEGER: self = self.select(dim, index.integer); break;
      case TensorIndex::SLICE:
        self = call("slice", self, dim++, index.slice.start, index.slice.stop, index.slice.step);
        break;
      case TensorIndex::TENSOR:
        tensors.resize(static_cast<size_t>(dim) + 1);
        tensors.back() = index.tensor;
        dim += index.tensor.scalar_type() == kBool ? index.tensor.dim() : 1;
        if (index.tensor.scalar_type() == kBool) {  // a mask of several dimensions stands for as many indices
          tensors.pop_back();
          for (const auto& each : index.tensor.nonzero().unbind(1)) tensors.push_back(each);
        }
        break;
    }
  }
  return self;
}
}  // namespace indexing

inline Tensor Tensor::index(ArrayRef<indexing::TensorIndex> indices) const {
  std::vector<Tensor> tensors;
  Tensor view = indexing::view_of(*this, indices, tensors);
  return tensors.empty() ? view : call("index", view, tensors);
}
inline Tensor Tensor::index(std::initializer_list<indexing::TensorIndex> indices) const {
  return index(ArrayRef<indexing::TensorIndex>(indices.begin(), indices.size()));
}
inline const Tensor& Tensor::index_put_(Indices indices, const Tensor& values, bool accumulate) const {
  std::vector<Tensor> tensors;
  Tensor view = indexing::view_of(*this, indices, tensors);
  if (!tensors.empty())
    run("index_put_", view, tensors, values, accumulate);
  else if (accumulate)
    view.add_(values);
  else
    view.copy_(values);
  return *this;
}
inline const Tensor& Tensor::index_put_(Indices indices, const Scalar& value, bool accumulate) const {
  return index_put_(indices, full({}, value, options()), accumulate);
}
inline const Tensor& Tensor::index_put_(IndexList indices, const Tensor& values, bool accumulate) const {
  return index_put_(Indices(indices.begin(), indices.size()), values, accumulate);
}
inline const Tensor& Tensor::index_put_(IndexList indices, const Scalar& value, bool accumulate) const {
  return index_put_(Indices(indices.begin(), indices.size()), value, accumulate);
}
inline Tensor Tensor::index_put(IndexList indices, const Tensor& values, bool accumulate) const {
  return clone().index_put_(indices, values, accumulate);
}
#define TELEGRAD_LIST std::initializer_list<indexing::TensorIndex>
inline Tensor index(const Tensor& self, TELEGRAD_LIST indices) { return self.index(indices); }
inline Tensor index_put(const Tensor& self, TELEGRAD_LIST indices, const Tensor& values, bool accumulate = false) {
  return self.index_put(indices, values, accumulate);
}
inline const Tensor& index_put_(const Tensor& self, TELEGRAD_LIST indices, const Tensor& values, bool accumulate = false) {
  return self.index_put_(indices, values, accumulate);
}
#undef TELEGRAD_LIST
inline Tensor Tensor::operator[](const Tensor& at) const { return index({at}); }
}  // namespace at
