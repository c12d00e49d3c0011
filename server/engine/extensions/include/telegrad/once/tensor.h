// What tensor.h declares, compiled once for all extensions.
#pragma once

#include "../members.h"

namespace at {
TensorImpl::~TensorImpl() {
  using namespace telegrad;
  if (context == nullptr || !handle) return;
  if (handle < 0) {
    arguments[static_cast<size_t>(-handle - 1)] = nullptr;
    return;
  }
  if (context[DEAD_COUNT] == MOST_DEAD) request(DRAIN, Words());
  context[DEAD + context[DEAD_COUNT]++] = handle;
}
void Tensor::drop(TensorImpl* impl) { delete impl; }
size_t Tensor::dimension(int64_t at) const {
  const int64_t count = dim();
  TORCH_CHECK_INDEX(at >= -count && at < count, "Dimension out of range (expected to be in range of [", -count, ", ",
                    count - 1, "], but got ", at, ")");
  return static_cast<size_t>(at < 0 ? at + count : at);
}
const Tensor& Tensor::operator=(const Tensor& other) && { return copy_(other); }
const Tensor& Tensor::operator=(Tensor&& other) && { return copy_(other); }
const Tensor& Tensor::operator=(const Scalar& value) && { return fill_(value); }
const Tensor& Tensor::t_() const { return become(t()); }
const Tensor& Tensor::transpose_(int64_t a, int64_t b) const { return become(transpose(a, b)); }
const Tensor& Tensor::squeeze_() const { return become(squeeze()); }
const Tensor& Tensor::squeeze_(int64_t at) const { return become(squeeze(at)); }
const Tensor& Tensor::unsqueeze_(int64_t at) const { return become(unsqueeze(at)); }
Tensor Tensor::mT() const { return transpose(-2, -1); }
Tensor Tensor::mH() const { return mT().conj(); }
Tensor Tensor::narrow_copy(int64_t at, int64_t start, int64_t length) const { return narrow(at, start, length).clone(); }
Tensor Tensor::where(const Tensor& condition, const Tensor& other) const { return at::call("where", condition, *this, other); }
Tensor Tensor::polygamma(int64_t n) const { return at::call("polygamma", n, *this); }
bool Tensor::is_nonzero() const { return item<double>() != 0; }
#define TELEGRAD_EXTREME(name)                                                                       \
  Tensor Tensor::name() const { return at::call(#name, *this); }                                     \
  Tensor Tensor::name(const Tensor& other) const { return at::call(#name, *this, other); }           \
  std::tuple<Tensor, Tensor> Tensor::name(int64_t dim, bool keepdim) const {                         \
    return at::call<std::tuple<Tensor, Tensor>>(#name, *this, dim, keepdim);                         \
  }
TELEGRAD_EXTREME(max) TELEGRAD_EXTREME(min) TELEGRAD_EXTREME(median)
#undef TELEGRAD_EXTREME
Tensor Tensor::norm(const Scalar& p, std::initializer_list<int64_t> dims, bool keepdim) const {
  return at::call("norm", *this, p, dims, keepdim);
}
Tensor Tensor::operator[](int64_t at) const { return select(0, at); }
Tensor Tensor::operator[](const Scalar& at) const { return select(0, at.toLong()); }
Tensor Tensor::operator-() const { return neg(); }
Tensor Tensor::operator~() const { return bitwise_not(); }

namespace detail {
const int64_t* ask(telegrad::Verb verb, const char* name, Arguments arguments) {
  telegrad::Words words;
  words.words.reserve(32);
  words.put_bytes(name, std::strlen(name));
  const size_t place = words.words.size();
  words.put(0);
  size_t count = 0;
  for (const auto& argument : arguments) count += argument.put(words);
  words.words[place] = static_cast<int64_t>(count);
  return telegrad::request(verb, words);
}
Tensor call(const char* name, Arguments arguments) {
  telegrad::Reader reader(ask(telegrad::CALL, name, arguments));
  return telegrad::Codec<Tensor>::take(reader);
}
}  // namespace detail
}  // namespace at

namespace telegrad {
void Codec<at::Tensor>::put(Words& words, const at::Tensor& tensor) {
  if (tensor.defined())
    words.put(TENSOR, tensor.impl().handle);
  else
    words.put(NONE);
}
at::Tensor Codec<at::Tensor>::take(Reader& reader) {
  const int64_t kind = reader.next();
  if (kind == NONE) return at::Tensor();
  if (kind != TENSOR) refuse("torch.Tensor");
  auto* impl = new at::TensorImpl;
  impl->handle = reader.next();
  if (impl->handle < 0) {
    const auto place = static_cast<size_t>(-impl->handle - 1);
    if (at::arguments.size() <= place) at::arguments.resize(place + 1);
    at::arguments[place] = impl;
  }
  impl->address = reinterpret_cast<char*>(reader.next());
  impl->dtype = static_cast<c10::ScalarType>(reader.next());
  impl->device = reader.next();
  impl->requires_grad = reader.next() != 0;
  impl->offset = reader.next();
  impl->numel = reader.next();
  const auto dims = static_cast<size_t>(reader.next());
  impl->sizes.assign(reader.at, reader.at + dims);
  impl->strides.assign(reader.at + dims, reader.at + 2 * dims);
  reader.at += 2 * dims;
  return at::Tensor(impl);
}
}  // namespace telegrad
