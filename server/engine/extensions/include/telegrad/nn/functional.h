// torch::nn::functional: functions of networks with their options, as C++ programs write them.
#pragma once

#include <torch/extension.h>

namespace telegrad {
// A word that chooses something, such as torch::kMean.
struct Word {
  const char* text;
  bool operator==(const Word& other) const { return std::string_view(text) == other.text; }
};
template <>
struct Codec<Word> {
  static void put(Words& words, const Word& word) { words.put_bytes(word.text, std::strlen(word.text)); }
};
}  // namespace telegrad

namespace torch {
#define TELEGRAD_WORD(name, text) inline constexpr telegrad::Word name{text};
TELEGRAD_WORD(kNone, "none") TELEGRAD_WORD(kMean, "mean") TELEGRAD_WORD(kSum, "sum") TELEGRAD_WORD(kBatchMean, "batchmean")
TELEGRAD_WORD(kConstant, "constant") TELEGRAD_WORD(kReflect, "reflect") TELEGRAD_WORD(kReplicate, "replicate")
TELEGRAD_WORD(kCircular, "circular") TELEGRAD_WORD(kZeros, "zeros") TELEGRAD_WORD(kFanIn, "fan_in") TELEGRAD_WORD(kFanOut, "fan_out")
TELEGRAD_WORD(kReLU, "relu") TELEGRAD_WORD(kLeakyReLU, "leaky_relu") TELEGRAD_WORD(kTanh, "tanh") TELEGRAD_WORD(kLinear, "linear")
TELEGRAD_WORD(kSigmoid, "sigmoid")
#undef TELEGRAD_WORD

// As many numbers as there are dimensions; one number stands for all of them.
template <size_t dims>
class ExpandingArray {
 public:
  ExpandingArray(int64_t one) { values_.fill(one); }
  ExpandingArray(std::initializer_list<int64_t> list) : ExpandingArray(c10::IntArrayRef(list)) {}
  ExpandingArray(const std::vector<int64_t>& list) : ExpandingArray(c10::IntArrayRef(list)) {}
  ExpandingArray(c10::IntArrayRef list) {
    TORCH_CHECK(list.size() == dims, "Expected ", dims, " values, but instead got ", list.size());
    std::copy(list.begin(), list.end(), values_.begin());
  }
  operator c10::IntArrayRef() const { return values_; }
  c10::IntArrayRef list() const { return values_; }
  int64_t operator[](size_t at) const { return values_[at]; }

 private:
  std::array<int64_t, dims> values_;
};

namespace nn {
// An option: it is set and read under its name.
#define TORCH_ARG(type, name)                                               \
 public:                                                                    \
  auto name(const type& given) -> decltype(*this) { name##_ = given; return *this; } \
  const type& name() const noexcept { return name##_; }                     \
                                                                            \
 private:                                                                   \
  type name##_

template <size_t dims>
struct ConvFuncOptions {
  TORCH_ARG(at::Tensor, bias) = {};
  TORCH_ARG(ExpandingArray<dims>, stride) = 1;
  TORCH_ARG(ExpandingArray<dims>, padding) = 0;
  TORCH_ARG(ExpandingArray<dims>, dilation) = 1;
  TORCH_ARG(int64_t, groups) = 1;
};
template <size_t dims>
struct ConvTransposeFuncOptions {
  TORCH_ARG(at::Tensor, bias) = {};
  TORCH_ARG(ExpandingArray<dims>, stride) = 1;
  TORCH_ARG(ExpandingArray<dims>, padding) = 0;
  TORCH_ARG(ExpandingArray<dims>, output_padding) = 0;
  TORCH_ARG(int64_t, groups) = 1;
  TORCH_ARG(ExpandingArray<dims>, dilation) = 1;
};
template <size_t dims>
struct MaxPoolOptions {
  MaxPoolOptions(ExpandingArray<dims> size) : kernel_size_(size), stride_(size) {}
  TORCH_ARG(ExpandingArray<dims>, kernel_size);
  TORCH_ARG(ExpandingArray<dims>, stride);
  TORCH_ARG(ExpandingArray<dims>, padding) = 0;
  TORCH_ARG(ExpandingArray<dims>, dilation) = 1;
  TORCH_ARG(bool, ceil_mode) = false;
};
template <size_t dims>
struct AvgPoolOptions {
  AvgPoolOptions(ExpandingArray<dims> size) : kernel_size_(size), stride_(size) {}
  TORCH_ARG(ExpandingArray<dims>, kernel_size);
  TORCH_ARG(ExpandingArray<dims>, stride);
  TORCH_ARG(ExpandingArray<dims>, padding) = 0;
  TORCH_ARG(bool, ceil_mode) = false;
  TORCH_ARG(bool, count_include_pad) = true;
};
template <size_t dims>
struct AdaptivePoolOptions {
  AdaptivePoolOptions(ExpandingArray<dims> size) : output_size_(size) {}
  TORCH_ARG(ExpandingArray<dims>, output_size);
};
struct UnfoldOptions {
  UnfoldOptions(ExpandingArray<2> size) : kernel_size_(size) {}
  TORCH_ARG(ExpandingArray<2>, kernel_size);
  TORCH_ARG(ExpandingArray<2>, dilation) = 1;
  TORCH_ARG(ExpandingArray<2>, padding) = 0;
  TORCH_ARG(ExpandingArray<2>, stride) = 1;
};
struct FoldOptions {
  FoldOptions(ExpandingArray<2> output, ExpandingArray<2> size) : output_size_(output), kernel_size_(size) {}
  TORCH_ARG(ExpandingArray<2>, output_size);
  TORCH_ARG(ExpandingArray<2>, kernel_size);
  TORCH_ARG(ExpandingArray<2>, dilation) = 1;
  TORCH_ARG(ExpandingArray<2>, padding) = 0;
  TORCH_ARG(ExpandingArray<2>, stride) = 1;
};
struct PadOptions {
  PadOptions(std::vector<int64_t> pad) : pad_(std::move(pad)) {}
  TORCH_ARG(std::vector<int64_t>, pad);
  TORCH_ARG(telegrad::Word, mode) = kConstant;
  TORCH_ARG(double, value) = 0;
};
struct DimOptions {  // softmax and its kin
  DimOptions(int64_t dim) : dim_(dim) {}
  TORCH_ARG(int64_t, dim);
  TORCH_ARG(std::optional<c10::ScalarType>, dtype) = {};
};
struct GLUOptions { TORCH_ARG(int64_t, dim) = -1; };
struct ELUOptions { TORCH_ARG(double, alpha) = 1; TORCH_ARG(bool, inplace) = false; };
struct LeakyReLUOptions { TORCH_ARG(double, negative_slope) = 1e-2; TORCH_ARG(bool, inplace) = false; };
struct InplaceOptions {
  InplaceOptions(bool inplace = false) : inplace_(inplace) {}
  TORCH_ARG(bool, inplace);
};
struct HardtanhOptions { TORCH_ARG(double, min_val) = -1; TORCH_ARG(double, max_val) = 1; TORCH_ARG(bool, inplace) = false; };
struct SoftplusOptions { TORCH_ARG(double, beta) = 1; TORCH_ARG(double, threshold) = 20; };
struct GELUOptions { TORCH_ARG(std::string, approximate) = "none"; };
struct DropoutFuncOptions { TORCH_ARG(double, p) = 0.5; TORCH_ARG(bool, training) = true; TORCH_ARG(bool, inplace) = false; };
struct LayerNormFuncOptions {
  LayerNormFuncOptions(std::vector<int64_t> shape) : normalized_shape_(std::move(shape)) {}
  TORCH_ARG(std::vector<int64_t>, normalized_shape);
  TORCH_ARG(at::Tensor, weight) = {};
  TORCH_ARG(at::Tensor, bias) = {};
  TORCH_ARG(double, eps) = 1e-5;
};
struct GroupNormFuncOptions {
  GroupNormFuncOptions(int64_t groups) : num_groups_(groups) {}
  TORCH_ARG(int64_t, num_groups);
  TORCH_ARG(at::Tensor, weight) = {};
  TORCH_ARG(at::Tensor, bias) = {};
  TORCH_ARG(double, eps) = 1e-5;
};
struct BatchNormFuncOptions {
  TORCH_ARG(at::Tensor, weight) = {};
  TORCH_ARG(at::Tensor, bias) = {};
  TORCH_ARG(bool, training) = false;
  TORCH_ARG(std::optional<double>, momentum) = 0.1;
  TORCH_ARG(double, eps) = 1e-5;
};
struct NormalizeFuncOptions { TORCH_ARG(double, p) = 2; TORCH_ARG(int64_t, dim) = 1; TORCH_ARG(double, eps) = 1e-12; };
struct CosineSimilarityOptions { TORCH_ARG(int64_t, dim) = 1; TORCH_ARG(double, eps) = 1e-8; };
struct PairwiseDistanceOptions { TORCH_ARG(double, p) = 2; TORCH_ARG(double, eps) = 1e-6; TORCH_ARG(bool, keepdim) = false; };
struct LossOptions {
  LossOptions(telegrad::Word reduction = kMean) : reduction_(reduction) {}
  TORCH_ARG(telegrad::Word, reduction);
};
struct BetaLossOptions {  // losses that are quadratic near zero, up to ``beta`` or ``delta``
  BetaLossOptions(telegrad::Word reduction = kMean) : reduction_(reduction) {}
  TORCH_ARG(telegrad::Word, reduction);
  TORCH_ARG(double, beta) = 1;
  TORCH_ARG(double, delta) = 1;
};
struct WeightedLossOptions {
  TORCH_ARG(at::Tensor, weight) = {};
  TORCH_ARG(telegrad::Word, reduction) = kMean;
  TORCH_ARG(at::Tensor, pos_weight) = {};
};
struct ClassLossOptions {
  TORCH_ARG(at::Tensor, weight) = {};
  TORCH_ARG(int64_t, ignore_index) = -100;
  TORCH_ARG(telegrad::Word, reduction) = kMean;
  TORCH_ARG(double, label_smoothing) = 0;
};
struct KLDivOptions {
  KLDivOptions(telegrad::Word reduction = kMean) : reduction_(reduction) {}
  TORCH_ARG(telegrad::Word, reduction);
  TORCH_ARG(bool, log_target) = false;
};
struct EmbeddingFuncOptions { TORCH_ARG(std::optional<int64_t>, padding_idx) = {}; };

namespace functional {
using at::Tensor;
using telegrad::keyword;
#define TELEGRAD_OPTIONS(name, type) using name = type;
TELEGRAD_OPTIONS(Conv1dFuncOptions, ConvFuncOptions<1>) TELEGRAD_OPTIONS(Conv2dFuncOptions, ConvFuncOptions<2>)
TELEGRAD_OPTIONS(Conv3dFuncOptions, ConvFuncOptions<3>) TELEGRAD_OPTIONS(ConvTranspose1dFuncOptions, ConvTransposeFuncOptions<1>)
TELEGRAD_OPTIONS(ConvTranspose2dFuncOptions, ConvTransposeFuncOptions<2>) TELEGRAD_OPTIONS(ConvTranspose3dFuncOptions, ConvTransposeFuncOptions<3>)
TELEGRAD_OPTIONS(MaxPool1dFuncOptions, MaxPoolOptions<1>) TELEGRAD_OPTIONS(MaxPool2dFuncOptions, MaxPoolOptions<2>)
TELEGRAD_OPTIONS(MaxPool3dFuncOptions, MaxPoolOptions<3>) TELEGRAD_OPTIONS(AvgPool1dFuncOptions, AvgPoolOptions<1>)
TELEGRAD_OPTIONS(AvgPool2dFuncOptions, AvgPoolOptions<2>) TELEGRAD_OPTIONS(AvgPool3dFuncOptions, AvgPoolOptions<3>)
TELEGRAD_OPTIONS(AdaptiveAvgPool1dFuncOptions, AdaptivePoolOptions<1>) TELEGRAD_OPTIONS(AdaptiveAvgPool2dFuncOptions, AdaptivePoolOptions<2>)
TELEGRAD_OPTIONS(AdaptiveMaxPool2dFuncOptions, AdaptivePoolOptions<2>) TELEGRAD_OPTIONS(UnfoldFuncOptions, UnfoldOptions)
TELEGRAD_OPTIONS(FoldFuncOptions, FoldOptions) TELEGRAD_OPTIONS(PadFuncOptions, PadOptions) TELEGRAD_OPTIONS(SoftmaxFuncOptions, DimOptions)
TELEGRAD_OPTIONS(LogSoftmaxFuncOptions, DimOptions) TELEGRAD_OPTIONS(SoftminFuncOptions, DimOptions) TELEGRAD_OPTIONS(GLUFuncOptions, GLUOptions)
TELEGRAD_OPTIONS(ELUFuncOptions, ELUOptions) TELEGRAD_OPTIONS(CELUFuncOptions, ELUOptions) TELEGRAD_OPTIONS(SELUFuncOptions, InplaceOptions)
TELEGRAD_OPTIONS(ReLUFuncOptions, InplaceOptions) TELEGRAD_OPTIONS(ReLU6FuncOptions, InplaceOptions)
TELEGRAD_OPTIONS(LeakyReLUFuncOptions, LeakyReLUOptions) TELEGRAD_OPTIONS(HardtanhFuncOptions, HardtanhOptions)
TELEGRAD_OPTIONS(SoftplusFuncOptions, SoftplusOptions) TELEGRAD_OPTIONS(GELUFuncOptions, GELUOptions)
TELEGRAD_OPTIONS(MSELossFuncOptions, LossOptions) TELEGRAD_OPTIONS(L1LossFuncOptions, LossOptions)
TELEGRAD_OPTIONS(SmoothL1LossFuncOptions, BetaLossOptions) TELEGRAD_OPTIONS(HuberLossFuncOptions, BetaLossOptions)
TELEGRAD_OPTIONS(BinaryCrossEntropyFuncOptions, WeightedLossOptions) TELEGRAD_OPTIONS(BinaryCrossEntropyWithLogitsFuncOptions, WeightedLossOptions)
TELEGRAD_OPTIONS(CrossEntropyFuncOptions, ClassLossOptions) TELEGRAD_OPTIONS(NLLLossFuncOptions, ClassLossOptions)
TELEGRAD_OPTIONS(KLDivFuncOptions, KLDivOptions) TELEGRAD_OPTIONS(CosineSimilarityFuncOptions, CosineSimilarityOptions)
TELEGRAD_OPTIONS(PairwiseDistanceFuncOptions, PairwiseDistanceOptions)
using nn::BatchNormFuncOptions;
using nn::DropoutFuncOptions;
using nn::EmbeddingFuncOptions;
using nn::GroupNormFuncOptions;
using nn::LayerNormFuncOptions;
using nn::NormalizeFuncOptions;
#undef TELEGRAD_OPTIONS

#define TELEGRAD_OF_DIMS(n)                                                                                                 \
  inline Tensor conv##n##d(const Tensor& x, const Tensor& w, const ConvFuncOptions<n>& o = {}) {                            \
    return at::call("conv" #n "d", x, w, o.bias(), o.stride().list(), o.padding().list(), o.dilation().list(), o.groups()); \
  }                                                                                                                         \
  inline Tensor conv_transpose##n##d(const Tensor& x, const Tensor& w, const ConvTransposeFuncOptions<n>& o = {}) {         \
    return at::call("conv_transpose" #n "d", x, w, o.bias(), o.stride().list(), o.padding().list(),                         \
                    o.output_padding().list(), o.groups(), o.dilation().list());                                            \
  }                                                                                                                         \
  inline Tensor max_pool##n##d(const Tensor& x, const MaxPoolOptions<n>& o) {                                               \
    return at::call("max_pool" #n "d", x, o.kernel_size().list(), o.stride().list(), o.padding().list(), o.dilation().list(), o.ceil_mode()); \
  }                                                                                                                         \
  inline Tensor avg_pool##n##d(const Tensor& x, const AvgPoolOptions<n>& o) {                                               \
    return at::call("avg_pool" #n "d", x, o.kernel_size().list(), o.stride().list(), o.padding().list(), o.ceil_mode(), o.count_include_pad()); \
  }                                                                                                                         \
  inline Tensor adaptive_avg_pool##n##d(const Tensor& x, const AdaptivePoolOptions<n>& o) {                                 \
    return at::call("adaptive_avg_pool" #n "d", x, o.output_size().list());                                                 \
  }                                                                                                                         \
  inline Tensor adaptive_max_pool##n##d(const Tensor& x, const AdaptivePoolOptions<n>& o) {                                 \
    return at::call("adaptive_max_pool" #n "d", x, o.output_size().list());                                                 \
  }
TELEGRAD_OF_DIMS(1) TELEGRAD_OF_DIMS(2) TELEGRAD_OF_DIMS(3)
#undef TELEGRAD_OF_DIMS
inline Tensor pad(const Tensor& x, const PadOptions& o) {
  if (o.mode() == kConstant) return at::call("pad", x, o.pad(), o.mode(), o.value());
  return at::call("pad", x, o.pad(), o.mode());
}
inline Tensor unfold(const Tensor& x, const UnfoldOptions& o) {
  return at::call("im2col", x, o.kernel_size().list(), o.dilation().list(), o.padding().list(), o.stride().list());
}
inline Tensor fold(const Tensor& x, const FoldOptions& o) {
  return at::call("fold", x, o.output_size().list(), o.kernel_size().list(), o.dilation().list(), o.padding().list(), o.stride().list());
}
inline Tensor softmax(const Tensor& x, const DimOptions& o) { return at::call("softmax", x, o.dim(), o.dtype()); }
inline Tensor log_softmax(const Tensor& x, const DimOptions& o) { return at::call("log_softmax", x, o.dim(), o.dtype()); }
inline Tensor softmin(const Tensor& x, const DimOptions& o) { return at::call("softmax", -x, o.dim(), o.dtype()); }
inline Tensor into(const Tensor& x, Tensor result, bool inplace) { return inplace ? x.copy_(result) : result; }
inline Tensor relu(const Tensor& x, const InplaceOptions& o = {}) { return into(x, at::call("relu", x), o.inplace()); }
inline Tensor relu6(const Tensor& x, const InplaceOptions& o = {}) { return into(x, at::call("relu6", x), o.inplace()); }
inline Tensor selu(const Tensor& x, const InplaceOptions& o = {}) { return into(x, at::call("selu", x), o.inplace()); }
inline Tensor elu(const Tensor& x, const ELUOptions& o = {}) { return into(x, at::call("elu", x, o.alpha()), o.inplace()); }
inline Tensor celu(const Tensor& x, const ELUOptions& o = {}) { return into(x, at::call("celu", x, o.alpha()), o.inplace()); }
inline Tensor leaky_relu(const Tensor& x, const LeakyReLUOptions& o = {}) {
  return into(x, at::call("leaky_relu", x, o.negative_slope()), o.inplace());
}
inline Tensor hardtanh(const Tensor& x, const HardtanhOptions& o = {}) {
  return into(x, at::call("hardtanh", x, o.min_val(), o.max_val()), o.inplace());
}
inline Tensor softplus(const Tensor& x, const SoftplusOptions& o = {}) { return at::call("softplus", x, o.beta(), o.threshold()); }
inline Tensor gelu(const Tensor& x, const GELUOptions& o = {}) { return at::call("gelu", x, o.approximate()); }
inline Tensor glu(const Tensor& x, const GLUOptions& o = {}) { return at::call("glu", x, o.dim()); }
inline Tensor prelu(const Tensor& x, const Tensor& w) { return at::call("prelu", x, w); }
#define TELEGRAD_PLAIN(name) \
  inline Tensor name(const Tensor& x) { return at::call(#name, x); }
TELEGRAD_PLAIN(silu) TELEGRAD_PLAIN(mish) TELEGRAD_PLAIN(logsigmoid) TELEGRAD_PLAIN(softsign) TELEGRAD_PLAIN(tanhshrink)
TELEGRAD_PLAIN(sigmoid) TELEGRAD_PLAIN(tanh)
#undef TELEGRAD_PLAIN
inline Tensor dropout(const Tensor& x, const DropoutFuncOptions& o = {}) {
  return into(x, at::call("dropout", x, o.p(), o.training()), o.inplace());
}
inline Tensor linear(const Tensor& x, const Tensor& w, const Tensor& b = {}) { return at::call("linear", x, w, b); }
inline Tensor layer_norm(const Tensor& x, const LayerNormFuncOptions& o) {
  return at::call("layer_norm", x, o.normalized_shape(), o.weight(), o.bias(), o.eps());
}
inline Tensor group_norm(const Tensor& x, const GroupNormFuncOptions& o) {
  return at::call("group_norm", x, o.num_groups(), o.weight(), o.bias(), o.eps());
}
inline Tensor batch_norm(const Tensor& x, const Tensor& mean, const Tensor& var, const BatchNormFuncOptions& o = {}) {
  return at::call("batch_norm", x, mean, var, o.weight(), o.bias(), o.training(), o.momentum().value_or(0), o.eps());
}
inline Tensor normalize(const Tensor& x, const NormalizeFuncOptions& o = {}) { return at::call("normalize", x, o.p(), o.dim(), o.eps()); }
inline Tensor one_hot(const Tensor& x, int64_t classes = -1) { return at::call("one_hot", x, classes); }
inline Tensor embedding(const Tensor& x, const Tensor& w, const EmbeddingFuncOptions& o = {}) { return at::call("embedding", x, w, o.padding_idx()); }
inline Tensor cosine_similarity(const Tensor& a, const Tensor& b, const CosineSimilarityOptions& o = {}) {
  return at::call("cosine_similarity", a, b, o.dim(), o.eps());
}
inline Tensor pairwise_distance(const Tensor& a, const Tensor& b, const PairwiseDistanceOptions& o = {}) {
  return at::pairwise_distance(a, b, o.p(), o.eps(), o.keepdim());
}
inline Tensor mse_loss(const Tensor& x, const Tensor& y, const LossOptions& o = {}) {
  return at::call("mse_loss", x, y, keyword("reduction", o.reduction()));
}
inline Tensor l1_loss(const Tensor& x, const Tensor& y, const LossOptions& o = {}) {
  return at::call("l1_loss", x, y, keyword("reduction", o.reduction()));
}
inline Tensor smooth_l1_loss(const Tensor& x, const Tensor& y, const BetaLossOptions& o = {}) {
  return at::call("smooth_l1_loss", x, y, keyword("reduction", o.reduction()), keyword("beta", o.beta()));
}
inline Tensor huber_loss(const Tensor& x, const Tensor& y, const BetaLossOptions& o = {}) {
  return at::call("huber_loss", x, y, keyword("reduction", o.reduction()), keyword("delta", o.delta()));
}
inline Tensor cross_entropy(const Tensor& x, const Tensor& y, const ClassLossOptions& o = {}) {
  return at::call("cross_entropy", x, y, keyword("weight", o.weight()), keyword("ignore_index", o.ignore_index()),
                  keyword("reduction", o.reduction()), keyword("label_smoothing", o.label_smoothing()));
}
inline Tensor nll_loss(const Tensor& x, const Tensor& y, const ClassLossOptions& o = {}) {
  return at::call("nll_loss", x, y, keyword("weight", o.weight()), keyword("ignore_index", o.ignore_index()), keyword("reduction", o.reduction()));
}
inline Tensor binary_cross_entropy(const Tensor& x, const Tensor& y, const WeightedLossOptions& o = {}) {
  return at::call("binary_cross_entropy", x, y, keyword("weight", o.weight()), keyword("reduction", o.reduction()));
}
inline Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& y, const WeightedLossOptions& o = {}) {
  return at::call("binary_cross_entropy_with_logits", x, y, keyword("weight", o.weight()), keyword("reduction", o.reduction()),
                  keyword("pos_weight", o.pos_weight()));
}
inline Tensor kl_div(const Tensor& x, const Tensor& y, const KLDivOptions& o = {}) {
  return at::call("kl_div", x, y, keyword("reduction", o.reduction()), keyword("log_target", o.log_target()));
}
}  // namespace functional
}  // namespace nn
}  // namespace torch
