// Functions of networks and of sets of points whose names are those of PyTorch's dispatcher, made of operations.
#pragma once

#include "composites.h"
#include "shapes.h"

namespace at {
namespace detail {
std::vector<int64_t> joined(std::vector<int64_t> sizes, IntArrayRef rest);
}  // namespace detail
std::tuple<Tensor, Tensor> max_pool2d_with_indices(const Tensor& self, IntArrayRef kernel, IntArrayRef stride = {},
                                                          IntArrayRef padding = 0, IntArrayRef dilation = 1, bool ceil_mode = false);
Tensor col2im(const Tensor& self, IntArrayRef sizes, IntArrayRef kernel, IntArrayRef dilation, IntArrayRef padding, IntArrayRef stride);
Tensor reflection_pad1d(const Tensor& self, IntArrayRef padding);
Tensor reflection_pad2d(const Tensor& self, IntArrayRef padding);
Tensor replication_pad1d(const Tensor& self, IntArrayRef padding);
Tensor replication_pad2d(const Tensor& self, IntArrayRef padding);

Tensor pixel_shuffle(const Tensor& self, int64_t factor);
Tensor pixel_unshuffle(const Tensor& self, int64_t factor);
Tensor channel_shuffle(const Tensor& self, int64_t groups);

// Distances of the rows of two matrices, by the norm ``p``.
Tensor cdist(const Tensor& a, const Tensor& b, double p = 2.0, std::optional<int64_t> = {});
Tensor pairwise_distance(const Tensor& a, const Tensor& b, double p = 2.0, double eps = 1e-6, bool keepdim = false);
Tensor pdist(const Tensor& self, double p = 2.0);
Tensor isin(const Tensor& elements, const Tensor& tested);

Tensor tril_indices(int64_t rows, int64_t columns, int64_t offset = 0, const TensorOptions& options = TensorOptions(kLong));
Tensor triu_indices(int64_t rows, int64_t columns, int64_t offset = 0, const TensorOptions& options = TensorOptions(kLong));
Tensor block_diag(TensorList tensors);
Tensor cartesian_prod(TensorList tensors);
Tensor trapezoid(const Tensor& y, const Scalar& dx = 1, int64_t dim = -1);
Tensor pad_sequence(TensorList sequences, bool batch_first = false, double padding_value = 0.0);

// Functions of several tensors at once.
#define TELEGRAD_EACH(name)                                                                  \
  template <class... A>                                                                      \
  std::vector<Tensor> _foreach_##name(TensorList self, const A&... given) {                  \
    return call<std::vector<Tensor>>("_foreach_" #name, self, given...);                     \
  }
TELEGRAD_EACH(abs) TELEGRAD_EACH(add) TELEGRAD_EACH(addcdiv) TELEGRAD_EACH(addcmul) TELEGRAD_EACH(div) TELEGRAD_EACH(exp)
TELEGRAD_EACH(lerp) TELEGRAD_EACH(maximum) TELEGRAD_EACH(minimum) TELEGRAD_EACH(mul) TELEGRAD_EACH(neg) TELEGRAD_EACH(norm)
TELEGRAD_EACH(pow) TELEGRAD_EACH(reciprocal) TELEGRAD_EACH(sqrt) TELEGRAD_EACH(sub)
#undef TELEGRAD_EACH
#define TELEGRAD_EACH(name)                                                                   \
  template <class... A>                                                                       \
  void _foreach_##name(TensorList self, const A&... given) { run("_foreach_" #name, self, given...); }
TELEGRAD_EACH(add_) TELEGRAD_EACH(addcdiv_) TELEGRAD_EACH(addcmul_) TELEGRAD_EACH(copy_) TELEGRAD_EACH(div_) TELEGRAD_EACH(lerp_)
TELEGRAD_EACH(mul_) TELEGRAD_EACH(neg_) TELEGRAD_EACH(sqrt_) TELEGRAD_EACH(sub_) TELEGRAD_EACH(zero_)
#undef TELEGRAD_EACH

// Results that are computed into two tensors.
#define TELEGRAD_INTO_TWO(name)                                                                                  \
  template <class... A>                                                                                         \
  std::tuple<Tensor, Tensor> name##_out(const Tensor& values, const Tensor& places, const A&... given) {        \
    const std::tuple<Tensor, Tensor> made = name(given...);                                                     \
    return {detail::into(values, std::get<0>(made)), detail::into(places, std::get<1>(made))};                  \
  }
TELEGRAD_INTO_TWO(kthvalue) TELEGRAD_INTO_TWO(sort) TELEGRAD_INTO_TWO(topk) TELEGRAD_INTO_TWO(max) TELEGRAD_INTO_TWO(min)
#undef TELEGRAD_INTO_TWO
}  // namespace at
