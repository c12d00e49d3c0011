// What networks.h declares, compiled once for all extensions.
#pragma once

#include "../networks.h"

namespace at::detail {
std::vector<int64_t> joined(std::vector<int64_t> sizes, IntArrayRef rest) {
  sizes.insert(sizes.end(), rest.begin(), rest.end());
  return sizes;
}
}  // namespace at::detail

namespace at {
std::tuple<Tensor, Tensor> max_pool2d_with_indices(const Tensor& self, IntArrayRef kernel, IntArrayRef stride,
                                                          IntArrayRef padding, IntArrayRef dilation, bool ceil_mode) {
  const std::optional<IntArrayRef> steps = stride.empty() ? std::nullopt : std::optional<IntArrayRef>(stride);
  return call<std::tuple<Tensor, Tensor>>("max_pool2d", self, kernel, steps, padding, dilation, ceil_mode, true);
}
Tensor col2im(const Tensor& self, IntArrayRef sizes, IntArrayRef kernel, IntArrayRef dilation, IntArrayRef padding, IntArrayRef stride) {
  return call("fold", self, sizes, kernel, dilation, padding, stride);
}
Tensor reflection_pad1d(const Tensor& self, IntArrayRef padding) { return call("pad", self, padding, "reflect"); }
Tensor reflection_pad2d(const Tensor& self, IntArrayRef padding) { return call("pad", self, padding, "reflect"); }
Tensor replication_pad1d(const Tensor& self, IntArrayRef padding) { return call("pad", self, padding, "replicate"); }
Tensor replication_pad2d(const Tensor& self, IntArrayRef padding) { return call("pad", self, padding, "replicate"); }
Tensor pixel_shuffle(const Tensor& self, int64_t factor) {
  const auto sizes = self.sizes();
  TORCH_CHECK(self.dim() >= 3 && self.size(-3) % (factor * factor) == 0, "pixel_shuffle: ", sizes[sizes.size() - 3],
              " channels are no multiple of ", factor * factor);
  const auto batch = sizes.slice(0, sizes.size() - 3).vec();
  const int64_t channels = self.size(-3) / (factor * factor), height = self.size(-2), width = self.size(-1);
  return self.reshape({-1, channels, factor, factor, height, width}).permute({0, 1, 4, 2, 5, 3})
      .reshape(detail::joined(batch, {channels, height * factor, width * factor}));
}
Tensor pixel_unshuffle(const Tensor& self, int64_t factor) {
  const auto sizes = self.sizes();
  TORCH_CHECK(self.dim() >= 3 && self.size(-2) % factor == 0 && self.size(-1) % factor == 0,
              "pixel_unshuffle: height and width must be multiples of ", factor);
  const auto batch = sizes.slice(0, sizes.size() - 3).vec();
  const int64_t channels = self.size(-3), height = self.size(-2) / factor, width = self.size(-1) / factor;
  return self.reshape({-1, channels, height, factor, width, factor}).permute({0, 1, 3, 5, 2, 4})
      .reshape(detail::joined(batch, {channels * factor * factor, height, width}));
}
Tensor channel_shuffle(const Tensor& self, int64_t groups) {
  const auto grouped = self.reshape(detail::joined({self.size(0), groups, self.size(1) / groups}, self.sizes().slice(2)));
  return grouped.transpose(1, 2).reshape(self.sizes());
}
Tensor cdist(const Tensor& a, const Tensor& b, double p, std::optional<int64_t>) {
  return (a.unsqueeze(-2) - b.unsqueeze(-3)).norm(p, -1);
}
Tensor pairwise_distance(const Tensor& a, const Tensor& b, double p, double eps, bool keepdim) {
  return (a - b + eps).norm(p, -1, keepdim);
}
Tensor pdist(const Tensor& self, double p) {
  const auto places = ones({self.size(0), self.size(0)}, self.options().dtype(kBool)).triu(1);
  return cdist(self, self, p).masked_select(places);
}
Tensor isin(const Tensor& elements, const Tensor& tested) { return elements.isin(tested); }
Tensor tril_indices(int64_t rows, int64_t columns, int64_t offset, const TensorOptions& options) {
  return ones({rows, columns}, options.dtype(kBool)).tril(offset).nonzero().t().contiguous().to(options);
}
Tensor triu_indices(int64_t rows, int64_t columns, int64_t offset, const TensorOptions& options) {
  return ones({rows, columns}, options.dtype(kBool)).triu(offset).nonzero().t().contiguous().to(options);
}
Tensor block_diag(TensorList tensors) {
  int64_t columns = 0, before = 0;
  std::vector<Tensor> rows;
  for (const auto& one : tensors) columns += atleast_2d(one).size(1);
  for (const auto& one : tensors) {
    const auto block = atleast_2d(one);
    rows.push_back(constant_pad_nd(block, IntArrayRef({before, columns - before - block.size(1)}), 0));
    before += block.size(1);
  }
  return cat(rows);
}
Tensor cartesian_prod(TensorList tensors) {
  if (tensors.size() == 1) return tensors[0];
  std::vector<Tensor> columns;
  for (const auto& one : meshgrid(tensors)) columns.push_back(one.reshape({-1}));
  return stack(columns, 1);
}
Tensor trapezoid(const Tensor& y, const Scalar& dx, int64_t dim) {
  const int64_t steps = y.size(dim) - 1;
  return (y.narrow(dim, 0, steps) + y.narrow(dim, 1, steps)).sum(dim) * (dx.toDouble() / 2);
}
Tensor pad_sequence(TensorList sequences, bool batch_first, double padding_value) {
  int64_t longest = 0;
  for (const auto& one : sequences) longest = std::max(longest, one.size(0));
  std::vector<Tensor> rows;
  for (const auto& one : sequences) {
    std::vector<int64_t> padding(2 * static_cast<size_t>(one.dim()), 0);
    padding.back() = longest - one.size(0);
    rows.push_back(constant_pad_nd(one, IntArrayRef(padding), padding_value));
  }
  return stack(rows, batch_first ? 0 : 1);
}
}  // namespace at
