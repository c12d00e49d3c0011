// What shapes.h declares, compiled once for all extensions.
#pragma once

#include "../shapes.h"

namespace c10 {
int64_t maybe_wrap_dim(int64_t dim, int64_t count, bool wrap_scalar) {
  const int64_t dims = count == 0 && wrap_scalar ? 1 : count;
  TORCH_CHECK_INDEX(dim >= -dims && dim < dims, "Dimension out of range (expected to be in range of [", -dims, ", ", dims - 1,
                    "], but got ", dim, ")");
  return dim < 0 ? dim + dims : dim;
}
}  // namespace c10

namespace at {
int64_t maybe_wrap_dim(int64_t dim, TensorList tensors) { return maybe_wrap_dim(dim, tensors.empty() ? 0 : tensors[0].dim()); }
bool are_expandable(IntArrayRef a, IntArrayRef b) {
  for (size_t at = 1; at <= std::min(a.size(), b.size()); ++at) {
    const int64_t one = a[a.size() - at], other = b[b.size() - at];
    if (one != other && one != 1 && other != 1) return false;
  }
  return true;
}
bool is_expandable_to(IntArrayRef shape, IntArrayRef desired) {
  if (shape.size() > desired.size()) return false;
  for (size_t at = 1; at <= shape.size(); ++at) {
    const int64_t size = shape[shape.size() - at];
    if (size != 1 && size != desired[desired.size() - at]) return false;
  }
  return true;
}
std::vector<int64_t> infer_size(IntArrayRef a, IntArrayRef b) {
  const IntArrayRef longer = a.size() >= b.size() ? a : b, shorter = a.size() >= b.size() ? b : a;
  auto sizes = longer.vec();
  for (size_t at = 1; at <= shorter.size(); ++at) {
    auto& size = sizes[sizes.size() - at];
    const int64_t other = shorter[shorter.size() - at];
    TORCH_CHECK(size == other || size == 1 || other == 1, "The size of tensor a (", a[a.size() - at],
                ") must match the size of tensor b (", b[b.size() - at], ") at non-singleton dimension ", longer.size() - at);
    size = size == 1 ? other : size;
  }
  return sizes;
}
std::vector<int64_t> infer_size(IntArrayRef shape, int64_t numel) {
  int64_t known = 1;
  std::optional<size_t> inferred;
  for (size_t at = 0; at < shape.size(); ++at) {
    TORCH_CHECK(shape[at] >= -1, "invalid shape dimension ", shape[at]);
    if (shape[at] != -1) { known *= shape[at]; continue; }
    TORCH_CHECK(!inferred, "only one dimension can be inferred");
    inferred = at;
  }
  auto sizes = shape.vec();
  TORCH_CHECK(inferred ? known > 0 && numel % known == 0 : known == numel, "shape '", shape, "' is invalid for input of size ", numel);
  if (inferred) sizes[*inferred] = numel / known;
  return sizes;
}
Tensor expand_size(const Tensor& self, IntArrayRef sizes) { return self.sizes() == sizes ? self : self.expand(sizes); }
std::tuple<Tensor> expand_inplace(const Tensor& self, const Tensor& other, const char*) {
  return {expand_size(other, self.sizes())};
}
std::tuple<Tensor, Tensor> expand_outplace(const Tensor& a, const Tensor& b, const char*) {
  const auto sizes = infer_size(a.sizes(), b.sizes());
  return {expand_size(a, sizes), expand_size(b, sizes)};
}
Tensor sum_to(Tensor self, IntArrayRef sizes, bool) {
  std::vector<int64_t> dims;
  const int64_t extra = self.dim() - static_cast<int64_t>(sizes.size());
  for (int64_t dim = 0; dim < self.dim(); ++dim)
    if (dim < extra || (sizes[static_cast<size_t>(dim - extra)] == 1 && self.size(dim) != 1)) dims.push_back(dim);
  if (!dims.empty()) self = self.sum(dims, true);
  return extra > 0 ? self.reshape(sizes) : self;
}
ScalarType promoteTypes(ScalarType a, ScalarType b) {
  return a == b ? a : call("add", empty({0}, TensorOptions(a)), empty({0}, TensorOptions(b))).scalar_type();
}
ScalarType promote_types(ScalarType a, ScalarType b) { return promoteTypes(a, b); }
ScalarType result_type(const Tensor& a, const Tensor& b) { return call("add", a.detach(), b.detach()).scalar_type(); }
bool can_cast(ScalarType from, ScalarType to) { return canCast(from, to); }
Tensor atleast_1d(const Tensor& self) { return self.dim() > 0 ? self : self.reshape({1}); }
Tensor atleast_2d(const Tensor& self) { return self.dim() > 1 ? self : atleast_1d(self).unsqueeze(0); }
Tensor atleast_3d(const Tensor& self) { return self.dim() > 2 ? self : atleast_2d(self).unsqueeze(-1); }
}  // namespace at
