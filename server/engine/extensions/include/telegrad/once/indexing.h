// What indexing.h declares, compiled once for all extensions.
#pragma once

#include "../indexing.h"

namespace at::indexing {
Tensor view_of(Tensor self, ArrayRef<TensorIndex> indices, std::vector<Tensor>& tensors) {
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
}  // namespace at::indexing

namespace at {
Tensor Tensor::index(ArrayRef<indexing::TensorIndex> indices) const {
  std::vector<Tensor> tensors;
  Tensor view = indexing::view_of(*this, indices, tensors);
  return tensors.empty() ? view : call("index", view, tensors);
}
Tensor Tensor::index(std::initializer_list<indexing::TensorIndex> indices) const {
  return index(ArrayRef<indexing::TensorIndex>(indices.begin(), indices.size()));
}
const Tensor& Tensor::index_put_(Indices indices, const Tensor& values, bool accumulate) const {
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
const Tensor& Tensor::index_put_(Indices indices, const Scalar& value, bool accumulate) const {
  return index_put_(indices, full({}, value, options()), accumulate);
}
const Tensor& Tensor::index_put_(std::initializer_list<indexing::TensorIndex> indices, const Tensor& values, bool accumulate) const {
  return index_put_(Indices(indices.begin(), indices.size()), values, accumulate);
}
const Tensor& Tensor::index_put_(std::initializer_list<indexing::TensorIndex> indices, const Scalar& value, bool accumulate) const {
  return index_put_(Indices(indices.begin(), indices.size()), value, accumulate);
}
Tensor Tensor::index_put(std::initializer_list<indexing::TensorIndex> indices, const Tensor& values, bool accumulate) const {
  return clone().index_put_(indices, values, accumulate);
}
Tensor index(const Tensor& self, std::initializer_list<indexing::TensorIndex> indices) { return self.index(indices); }
Tensor index_put(const Tensor& self, std::initializer_list<indexing::TensorIndex> indices, const Tensor& values, bool accumulate) {
  return self.index_put(indices, values, accumulate);
}
const Tensor& index_put_(const Tensor& self, std::initializer_list<indexing::TensorIndex> indices, const Tensor& values, bool accumulate) {
  return self.index_put_(indices, values, accumulate);
}
Tensor Tensor::operator[](const Tensor& at) const { return index({at}); }
}  // namespace at
