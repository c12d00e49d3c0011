// What composites.h declares, compiled once for all extensions.
#pragma once

#include "../composites.h"

namespace at {
Tensor embedding(const Tensor& weight, const Tensor& indices, int64_t padding_idx) {
  if (padding_idx < 0) return call("embedding", indices, weight);
  return call("embedding", indices, weight, telegrad::keyword("padding_idx", padding_idx));
}
Tensor concatenate(TensorList tensors, int64_t dim) { return cat(tensors, dim); }
Tensor dstack(TensorList tensors) { return call("dstack", tensors); }
Tensor column_stack(TensorList tensors) {
  std::vector<Tensor> columns;
  for (const auto& one : tensors) columns.push_back(one.dim() > 1 ? one : one.reshape({one.numel(), 1}));
  return hstack(columns);
}
Tensor logspace(const Scalar& start, const Scalar& end, int64_t steps, double base, const TensorOptions& options) {
  return call("logspace", start, end, steps, base, detail::given(options));
}
Tensor diagflat(const Tensor& self, int64_t offset) { return self.reshape({-1}).diag(offset); }
bool is_nonzero(const Tensor& self) { return self.item<double>() != 0; }
Tensor log_sigmoid(const Tensor& self) { return -call("softplus", -self); }
std::vector<Tensor> broadcast_tensors(TensorList tensors) {
  std::vector<int64_t> sizes;
  for (const auto& one : tensors) {
    const auto own = one.sizes();
    if (own.size() > sizes.size()) sizes.insert(sizes.begin(), own.size() - sizes.size(), 1);
    for (size_t at = 0; at < own.size(); ++at) {
      auto& size = sizes[sizes.size() - own.size() + at];
      TORCH_CHECK(own[at] == size || own[at] == 1 || size == 1, "broadcast_tensors: the sizes do not fit each other");
      if (own[at] != 1) size = own[at];
    }
  }
  std::vector<Tensor> made;
  for (const auto& one : tensors) made.push_back(one.expand(sizes));
  return made;
}
std::vector<Tensor> meshgrid(TensorList tensors, std::string_view indexing) {
  TORCH_CHECK(indexing == "ij" || indexing == "xy", "meshgrid: indexing must be ij or xy");
  const bool swaps = indexing == "xy" && tensors.size() > 1;
  std::vector<Tensor> shaped;
  for (size_t at = 0; at < tensors.size(); ++at) {
    std::vector<int64_t> sizes(tensors.size(), 1);
    sizes[swaps && at < 2 ? 1 - at : at] = tensors[at].numel();
    shaped.push_back(tensors[at].reshape(sizes));
  }
  return broadcast_tensors(shaped);
}
std::tuple<Tensor, Tensor, Tensor> native_layer_norm(
    const Tensor& input, IntArrayRef normalized_shape, const std::optional<Tensor>& weight, const std::optional<Tensor>& bias,
    double eps) {
  std::vector<int64_t> dims;
  for (size_t at = 0; at < normalized_shape.size(); ++at) dims.push_back(-1 - static_cast<int64_t>(at));
  const auto mean = input.mean(dims, true);
  const auto rstd = ((input - mean).square().mean(dims, true) + eps).rsqrt();
  const auto given = [](const std::optional<Tensor>& one) { return one && one->defined() ? one : std::nullopt; };
  return {call("layer_norm", input, normalized_shape, given(weight), given(bias), eps), mean, rstd};
}
Tensor _softmax(const Tensor& self, int64_t dim, bool half_to_float) {
  return half_to_float ? call("softmax", self, dim, kFloat) : call("softmax", self, dim);
}
Tensor _log_softmax(const Tensor& self, int64_t dim, bool half_to_float) {
  return half_to_float ? call("log_softmax", self, dim, kFloat) : call("log_softmax", self, dim);
}
Tensor norm(const Tensor& self, const Scalar& p, std::initializer_list<int64_t> dims, bool keepdim) {
  return self.norm(p, dims, keepdim);
}
std::tuple<Tensor, Tensor, Tensor> unique_consecutive(const Tensor& self, bool inverse, bool counts) {
  const auto flat = self.reshape({-1});
  const auto begins = cat({ones({std::min<int64_t>(flat.numel(), 1)}, flat.options().dtype(kBool)), flat.slice(0, 1).ne(flat.slice(0, 0, -1))});
  const auto places = begins.cumsum(0) - 1;
  const auto values = flat.masked_select(begins), nothing = empty({0}, places.options());
  return {values, inverse ? places.view_as(self) : nothing,
          counts ? zeros(values.sizes(), places.options()).scatter_add_(0, places, ones_like(places)) : nothing};
}
std::tuple<Tensor, Tensor, Tensor> _unique2(const Tensor& self, bool, bool inverse, bool counts) {
  const auto [ordered, order] = self.reshape({-1}).sort();
  auto [values, places, each] = unique_consecutive(ordered, inverse, counts);
  if (inverse) places = empty_like(places).scatter_(0, order, places).view_as(self);
  return {values, places, each};
}
std::tuple<Tensor, Tensor> _unique(const Tensor& self, bool sorted, bool inverse) {
  const auto [values, places, each] = _unique2(self, sorted, inverse);
  return {values, places};
}
Tensor convolution(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias, IntArrayRef stride,
                          IntArrayRef padding, IntArrayRef dilation, bool transposed, IntArrayRef output_padding, int64_t groups) {
  return call("convolution", input, weight, bias, stride, padding, dilation, transposed, output_padding, groups);
}
}  // namespace at

namespace at::detail {
const Tensor& into(const Tensor& out, const Tensor& result) {
  TORCH_CHECK(out.sizes() == result.sizes(), "an output of the sizes ", result.sizes(), " is needed, and has ", out.sizes(),
              "; outputs are not resized here");
  return out.copy_(result);
}
}  // namespace at::detail

namespace at {
const Tensor& full_out(const Tensor& out, IntArrayRef sizes, const Scalar& value) {
  return detail::into(out, full(sizes, value, out.options()));
}
const Tensor& zeros_out(const Tensor& out, IntArrayRef sizes) { return full_out(out, sizes, 0); }
const Tensor& ones_out(const Tensor& out, IntArrayRef sizes) { return full_out(out, sizes, 1); }
const Tensor& cat_out(const Tensor& out, TensorList tensors, int64_t dim) { return detail::into(out, cat(tensors, dim)); }
const Tensor& stack_out(const Tensor& out, TensorList tensors, int64_t dim) { return detail::into(out, stack(tensors, dim)); }
}  // namespace at

namespace at::detail {
Tensor spread(Tensor self, std::string own, const std::string& letters) {
  for (size_t at = 0; at < own.size(); ++at) {  // a letter that comes twice is a diagonal, which comes last
    const size_t again = own.find(own[at], at + 1);
    if (again == std::string::npos) continue;
    self = self.diagonal(0, static_cast<int64_t>(at), static_cast<int64_t>(again));
    const char letter = own[at];
    own.erase(again, 1);
    own.erase(at, 1);
    own.push_back(letter);
    at = static_cast<size_t>(-1);
  }
  std::vector<int64_t> order;
  for (const char letter : letters)
    if (own.find(letter) != std::string::npos) order.push_back(static_cast<int64_t>(own.find(letter)));
  self = self.permute(order);
  for (size_t at = 0; at < letters.size(); ++at)
    if (own.find(letters[at]) == std::string::npos) self = self.unsqueeze(static_cast<int64_t>(at));
  return self;
}
Tensor contract(const Tensor& a, const std::string& of_a, const Tensor& b, const std::string& of_b, const std::string& kept) {
  const auto has = [](const std::string& text, char letter) { return text.find(letter) != std::string::npos; };
  std::string batch, left, right, summed;
  for (const char letter : of_a) {
    if (has(batch + left + summed, letter)) continue;
    (has(of_b, letter) ? (has(kept, letter) ? batch : summed) : left) += letter;
  }
  for (const char letter : of_b)
    if (!has(of_a, letter) && !has(right, letter)) right += letter;
  const auto one = spread(a, of_a, batch + left + summed), other = spread(b, of_b, batch + summed + right);
  const auto count = [](const Tensor& tensor, size_t from, size_t letters) {
    int64_t product = 1;
    for (size_t at = from; at < from + letters; ++at) product *= tensor.size(static_cast<int64_t>(at));
    return product;
  };
  const int64_t batches = count(one, 0, batch.size()), inner = count(one, batch.size() + left.size(), summed.size());
  auto sizes = one.sizes().slice(0, batch.size() + left.size()).vec();
  const auto last = other.sizes().slice(batch.size() + summed.size()).vec();
  const auto product = one.reshape({batches, count(one, batch.size(), left.size()), inner})
                           .bmm(other.reshape({batches, inner, count(other, batch.size() + summed.size(), right.size())}));
  sizes.insert(sizes.end(), last.begin(), last.end());
  const std::string made = batch + left + right;
  auto result = product.reshape(sizes);
  std::vector<int64_t> dropped;
  for (size_t at = 0; at < made.size(); ++at)
    if (!has(kept, made[at])) dropped.push_back(static_cast<int64_t>(at));
  if (!dropped.empty()) result = result.sum(dropped, true);
  std::string order;
  for (const char letter : kept)
    if (has(made, letter)) order += letter;
  std::string rest;
  for (const char letter : made)
    if (!has(kept, letter)) rest += letter;
  result = spread(result, made, order + rest);
  return rest.empty() ? result : result.reshape(result.sizes().slice(0, order.size()));
}
std::string without_ellipsis(const std::string& text, TensorList operands) {
  const std::string dots = "...";
  size_t operand = 0, most = 0;
  const auto letters = [](size_t count) {
    std::string made;
    for (; count > 0; --count) made += static_cast<char>(count);
    return made;
  };
  std::string made, own;
  const auto put = [&](bool is_result) {
    const size_t at = own.find(dots);
    if (at != std::string::npos) {
      size_t count = most;
      if (!is_result) {
        TORCH_CHECK(operand < operands.size() && operands[operand].dim() + 3 >= static_cast<int64_t>(own.size()),
                    "einsum: the letters do not fit operand ", operand);
        count = static_cast<size_t>(operands[operand].dim()) + 3 - own.size();
      }
      own.replace(at, 3, letters(count));
      most = std::max(most, count);
    }
    made += own;
    own.clear();
    ++operand;
  };
  const size_t arrow = text.find("->");
  for (size_t at = 0; at < std::min(arrow, text.size()); ++at) {
    if (text[at] != ',') {
      own += text[at];
      continue;
    }
    put(false);
    made += ',';
  }
  put(false);
  if (arrow == std::string::npos) return made;
  own = text.substr(arrow + 2);
  made += "->";
  put(true);
  return made;
}
}  // namespace at::detail

namespace at {
Tensor einsum(std::string_view equation, TensorList operands) {
  std::string text;
  for (const char letter : equation)
    if (letter != ' ') text += letter;
  text = detail::without_ellipsis(text, operands);
  const size_t arrow = text.find("->");
  std::vector<std::string> letters(1);
  for (const char letter : text.substr(0, arrow)) {
    if (letter == ',') letters.emplace_back();
    else letters.back() += letter;
  }
  TORCH_CHECK(letters.size() == operands.size(), "einsum: ", letters.size(), " lists of letters for ", operands.size(), " operands");
  for (size_t at = 0; at < letters.size(); ++at)
    TORCH_CHECK(static_cast<int64_t>(letters[at].size()) == operands[at].dim(), "einsum: the letters do not fit operand ", at);
  std::string out;
  if (arrow != std::string::npos) {
    out = text.substr(arrow + 2);
  } else {  // letters that come once, in alphabetical order
    std::string all;
    for (const auto& own : letters) all += own;
    for (char letter = ' '; letter > 0; --letter)  // first the dimensions of an ellipsis
      if (all.find(letter) != std::string::npos) out += letter;
    for (int letter = 'A'; letter <= 'z'; ++letter)
      if (std::count(all.begin(), all.end(), static_cast<char>(letter)) == 1) out += static_cast<char>(letter);
  }
  Tensor result = operands[0];
  std::string own = letters[0];
  for (size_t at = 1; at <= letters.size(); ++at) {
    std::string wanted = out;
    for (size_t later = at + 1; later < letters.size(); ++later) wanted += letters[later];
    std::string kept;
    const std::string both = at < letters.size() ? own + letters[at] : own;
    for (const char letter : at < letters.size() ? both : out) {
      const bool is_wanted = wanted.find(letter) != std::string::npos;
      if (is_wanted && kept.find(letter) == std::string::npos) kept += letter;
    }
    if (at == letters.size()) return detail::contract(result, own, ones({}, result.options()), "", kept);
    result = detail::contract(result, own, operands[at], letters[at], kept);
    own = kept;
  }
  return result;
}
Tensor tensordot(const Tensor& a, const Tensor& b, IntArrayRef of_a, IntArrayRef of_b) {
  TORCH_CHECK(of_a.size() == of_b.size(), "tensordot: as many dimensions of one as of the other are summed");
  std::string left, right, kept;
  char next = 'A';
  for (int64_t dim = 0; dim < a.dim(); ++dim) left += next++;
  for (int64_t dim = 0; dim < b.dim(); ++dim) right += next++;
  for (size_t at = 0; at < of_a.size(); ++at) {
    const auto dim = [](int64_t given, const Tensor& self) { return static_cast<size_t>(given < 0 ? given + self.dim() : given); };
    right[dim(of_b[at], b)] = left[dim(of_a[at], a)];
  }
  for (const char letter : left)
    if (right.find(letter) == std::string::npos) kept += letter;
  for (const char letter : right)
    if (left.find(letter) == std::string::npos) kept += letter;
  return detail::contract(a, left, b, right, kept);
}
}  // namespace at

namespace at {
#define TELEGRAD_CONVOLUTION(name)                                                                                      \
  Tensor name(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias, IntArrayRef stride,  \
                     IntArrayRef padding, IntArrayRef dilation, int64_t groups) {                           \
    return call(#name, input, weight, bias, stride, padding, dilation, groups);                                        \
  }
TELEGRAD_CONVOLUTION(conv1d) TELEGRAD_CONVOLUTION(conv2d) TELEGRAD_CONVOLUTION(conv3d)
#undef TELEGRAD_CONVOLUTION
}  // namespace at
