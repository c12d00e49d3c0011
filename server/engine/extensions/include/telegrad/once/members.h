// What members.h declares, compiled once for all extensions.
#pragma once

#include "../members.h"

namespace at {
bool Tensor::is_contiguous(MemoryFormat format) const {
  const auto& sizes = impl().sizes;
  const auto& strides = impl().strides;
  const size_t dims = sizes.size();
  std::vector<size_t> order(dims);  // from the outermost dimension in memory to the innermost
  for (size_t dim = 0; dim < dims; ++dim) order[dim] = dim;
  if (format == MemoryFormat::ChannelsLast || format == MemoryFormat::ChannelsLast3d) {
    if (dims != (format == MemoryFormat::ChannelsLast ? 4 : 5)) return false;
    order.erase(order.begin() + 1);
    order.push_back(1);
  }
  int64_t step = 1;
  for (size_t place = dims; place-- > 0;) {
    const size_t dim = order[place];
    if (sizes[dim] == 0) return true;
    if (sizes[dim] != 1 && strides[dim] != step) return false;
    step *= sizes[dim];
  }
  return true;
}
bool Tensor::t_contiguous() const { return dim() == 2 && t().is_contiguous(); }
Tensor Tensor::contiguous(MemoryFormat format) const {
  if (is_contiguous(format)) return *this;
  if (format == MemoryFormat::Contiguous) return call("contiguous", *this);
  TORCH_CHECK(dim() == (format == MemoryFormat::ChannelsLast ? 4 : 5), "contiguous: the memory format does not fit");
  return dim() == 4 ? permute({0, 2, 3, 1}).contiguous().permute({0, 3, 1, 2})
                    : permute({0, 2, 3, 4, 1}).contiguous().permute({0, 4, 1, 2, 3});
}
MemoryFormat Tensor::suggest_memory_format() const {
  if (is_contiguous()) return MemoryFormat::Contiguous;
  if (is_contiguous(MemoryFormat::ChannelsLast)) return MemoryFormat::ChannelsLast;
  return is_contiguous(MemoryFormat::ChannelsLast3d) ? MemoryFormat::ChannelsLast3d : MemoryFormat::Contiguous;
}
c10::MaybeOwned<Tensor> Tensor::expect_contiguous(MemoryFormat format) const {
  return c10::MaybeOwned<Tensor>::owned(contiguous(format));
}
Tensor Tensor::to(const TensorOptions& options, bool, bool copy, Format format) const {
  const auto wanted = this->options().merge_in(options);
  const bool same = wanted.dtype() == scalar_type() && detail::device_of(wanted) == impl().device;
  const Tensor made = !same ? call("_to_copy", *this, options) : copy ? clone() : *this;
  if (!format) format = options.memory_format_opt();
  return format && *format != MemoryFormat::Preserve ? made.contiguous(*format) : made;
}
const Tensor& Tensor::become(Tensor other) const {
  TensorImpl& own = impl();
  TensorImpl& given = other.impl();
  std::swap(own.references, given.references);  // the two exchange all but who holds them
  std::swap(own, given);
  for (TensorImpl* one : {&own, &given})
    if (one->handle < 0) arguments[static_cast<size_t>(-one->handle - 1)] = one;
  return *this;
}
const Tensor& Tensor::resize_(IntArrayRef sizes, Format format) const {
  if (sizes == this->sizes()) return *this;
  TORCH_CHECK(impl().handle > 0, "resize_: an argument of the function cannot get other sizes than ", this->sizes(),
              "; return a new tensor of the sizes ", sizes);
  Tensor made = empty(sizes, options().memory_format(format.value_or(MemoryFormat::Contiguous)));
  const int64_t kept = std::min(numel(), made.numel());
  if (kept > 0) made.view({-1}).narrow(0, 0, kept).copy_(as_strided({kept}, {1}));
  return become(made);
}
const Tensor& Tensor::fill_diagonal_(const Scalar& value, bool wrap) const {
  TORCH_CHECK(dim() == 2 && !(wrap && size(0) > size(1)), "fill_diagonal_: matrices are filled here, and are not wrapped");
  diagonal().fill_(value);
  return *this;
}
Tensor Tensor::numpy_T() const {
  std::vector<int64_t> order;
  for (int64_t at = dim(); at-- > 0;) order.push_back(at);
  return permute(order);
}
Tensor Tensor::isin(const Tensor& elements) const { return unsqueeze(-1).eq(elements.reshape({-1})).any(-1); }
bool Tensor::equal(const Tensor& other) const { return at::equal(*this, other); }
bool Tensor::allclose(const Tensor& other, double rtol, double atol, bool equal_nan) const {
  return at::allclose(*this, other, rtol, atol, equal_nan);
}
Tensor Tensor::detach() const { return call("detach", *this); }
const Tensor& Tensor::requires_grad_(bool value) const {
  run("requires_grad_", *this, value);
  impl().requires_grad = value;
  return *this;
}
Scalar Tensor::item() const {
  telegrad::Words words;
  telegrad::put(words, *this);
  telegrad::Reader reader(telegrad::request(telegrad::ITEM, words));
  return telegrad::Codec<Scalar>::take(reader);
}
std::ostream& operator<<(std::ostream& out, const Tensor& tensor) {
  if (!tensor.defined()) return out << "[ Tensor (undefined) ]";
  return out << "[ " << (tensor.is_cuda() ? "CUDA" : "CPU") << tensor.scalar_type() << "Type" << tensor.sizes() << " ]";
}
}  // namespace at
