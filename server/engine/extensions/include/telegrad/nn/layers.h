// The usual layers of torch::nn, and modules that hold others.
#pragma once

#include "modules.h"

namespace torch {
namespace nn {
struct LinearOptions {
  LinearOptions(int64_t in, int64_t out) : in_features_(in), out_features_(out) {}
  TORCH_ARG(int64_t, in_features);
  TORCH_ARG(int64_t, out_features);
  TORCH_ARG(bool, bias) = true;
};
struct LinearImpl : Module {
  LinearImpl(int64_t in, int64_t out) : LinearImpl(LinearOptions(in, out)) {}
  explicit LinearImpl(const LinearOptions& given) : Module("torch::nn::LinearImpl"), options(given) {
    weight = register_parameter("weight", at::empty({options.out_features(), options.in_features()}));
    if (options.bias()) bias = register_parameter("bias", at::empty({options.out_features()}));
    reset_parameters();
  }
  void reset_parameters() {
    const double bound = 1 / std::sqrt(static_cast<double>(options.in_features()));
    init::uniform_(weight, -bound, bound);
    if (bias.defined()) init::uniform_(bias, -bound, bound);
  }
  at::Tensor forward(const at::Tensor& x) { return functional::linear(x, weight, bias); }
  LinearOptions options;
  at::Tensor weight, bias;
};
TORCH_MODULE(Linear);

template <size_t dims>
struct ConvOptions {
  ConvOptions(int64_t in, int64_t out, ExpandingArray<dims> size) : in_channels_(in), out_channels_(out), kernel_size_(size) {}
  TORCH_ARG(int64_t, in_channels);
  TORCH_ARG(int64_t, out_channels);
  TORCH_ARG(ExpandingArray<dims>, kernel_size);
  TORCH_ARG(ExpandingArray<dims>, stride) = 1;
  TORCH_ARG(ExpandingArray<dims>, padding) = 0;
  TORCH_ARG(ExpandingArray<dims>, dilation) = 1;
  TORCH_ARG(int64_t, groups) = 1;
  TORCH_ARG(bool, bias) = true;
};
template <size_t dims>
struct ConvImpl : Module {
  ConvImpl(int64_t in, int64_t out, ExpandingArray<dims> size) : ConvImpl(ConvOptions<dims>(in, out, size)) {}
  explicit ConvImpl(const ConvOptions<dims>& given) : options(given) {
    std::vector<int64_t> sizes{options.out_channels(), options.in_channels() / options.groups()};
    for (size_t at = 0; at < dims; ++at) sizes.push_back(options.kernel_size()[at]);
    weight = register_parameter("weight", at::empty(sizes));
    if (options.bias()) bias = register_parameter("bias", at::empty({options.out_channels()}));
    const double bound = 1 / std::sqrt(static_cast<double>(weight.numel() / weight.size(0)));
    init::uniform_(weight, -bound, bound);
    if (bias.defined()) init::uniform_(bias, -bound, bound);
  }
  at::Tensor forward(const at::Tensor& x) {
    static constexpr const char* names[] = {"", "conv1d", "conv2d", "conv3d"};
    return at::call(names[dims], x, weight, bias, options.stride().list(), options.padding().list(), options.dilation().list(), options.groups());
  }
  ConvOptions<dims> options;
  at::Tensor weight, bias;
};
using Conv1dOptions = ConvOptions<1>;
using Conv2dOptions = ConvOptions<2>;
using Conv3dOptions = ConvOptions<3>;
TORCH_MODULE_IMPL(Conv1d, ConvImpl<1>);
TORCH_MODULE_IMPL(Conv2d, ConvImpl<2>);
TORCH_MODULE_IMPL(Conv3d, ConvImpl<3>);

struct BatchNormOptions {
  BatchNormOptions(int64_t features) : num_features_(features) {}
  TORCH_ARG(int64_t, num_features);
  TORCH_ARG(double, eps) = 1e-5;
  TORCH_ARG(std::optional<double>, momentum) = 0.1;
  TORCH_ARG(bool, affine) = true;
};
struct BatchNormImpl : Module {
  BatchNormImpl(const BatchNormOptions& given) : options(given) {
    const int64_t n = options.num_features();
    if (options.affine()) {
      weight = register_parameter("weight", at::ones({n}));
      bias = register_parameter("bias", at::zeros({n}));
    }
    running_mean = register_buffer("running_mean", at::zeros({n}));
    running_var = register_buffer("running_var", at::ones({n}));
    num_batches_tracked = register_buffer("num_batches_tracked", at::zeros({}, at::kLong));
  }
  at::Tensor forward(const at::Tensor& x) {
    const auto chosen = functional::BatchNormFuncOptions().weight(weight).bias(bias).training(is_training()).momentum(options.momentum()).eps(options.eps());
    return functional::batch_norm(x, running_mean, running_var, chosen);
  }
  BatchNormOptions options;
  at::Tensor weight, bias, running_mean, running_var, num_batches_tracked;
};
using BatchNorm1dOptions = BatchNormOptions;
using BatchNorm2dOptions = BatchNormOptions;
TORCH_MODULE_IMPL(BatchNorm1d, BatchNormImpl);
TORCH_MODULE_IMPL(BatchNorm2d, BatchNormImpl);
TORCH_MODULE_IMPL(BatchNorm3d, BatchNormImpl);

struct LayerNormOptions {
  LayerNormOptions(std::vector<int64_t> shape) : normalized_shape_(std::move(shape)) {}
  TORCH_ARG(std::vector<int64_t>, normalized_shape);
  TORCH_ARG(double, eps) = 1e-5;
  TORCH_ARG(bool, elementwise_affine) = true;
};
struct LayerNormImpl : Module {
  LayerNormImpl(const LayerNormOptions& given) : options(given) {
    if (!options.elementwise_affine()) return;
    weight = register_parameter("weight", at::ones(options.normalized_shape()));
    bias = register_parameter("bias", at::zeros(options.normalized_shape()));
  }
  at::Tensor forward(const at::Tensor& x) { return at::call("layer_norm", x, options.normalized_shape(), weight, bias, options.eps()); }
  LayerNormOptions options;
  at::Tensor weight, bias;
};
TORCH_MODULE(LayerNorm);

struct EmbeddingImpl : Module {
  EmbeddingImpl(int64_t count, int64_t size) { weight = init::normal_(register_parameter("weight", at::empty({count, size}))); }
  at::Tensor forward(const at::Tensor& x) { return at::call("embedding", x, weight); }
  at::Tensor weight;
};
TORCH_MODULE(Embedding);
struct DropoutImpl : Module {
  DropoutImpl(double p = 0.5) : p(p) {}
  at::Tensor forward(const at::Tensor& x) { return at::call("dropout", x, p, is_training()); }
  double p;
};
TORCH_MODULE(Dropout);
struct IdentityImpl : Module {
  at::Tensor forward(const at::Tensor& x) { return x; }
};
TORCH_MODULE(Identity);
struct FlattenImpl : Module {
  at::Tensor forward(const at::Tensor& x) { return at::call("flatten", x, 1, -1); }
};
TORCH_MODULE(Flatten);

// Layers that have options, and call a function with them.
#define TELEGRAD_LAYER(Name, Options, function)                                           \
  struct Name##Impl : Module {                                                            \
    Name##Impl(const Options& given) : options(given) {}                                  \
    template <class... A, class = std::enable_if_t<std::is_constructible_v<Options, A...>>> \
    explicit Name##Impl(A... given) : options(given...) {}                                \
    at::Tensor forward(const at::Tensor& x) { return functional::function(x, options); }  \
    Options options;                                                                      \
  };                                                                                      \
  TORCH_MODULE(Name)
TELEGRAD_LAYER(ReLU, InplaceOptions, relu);
TELEGRAD_LAYER(ReLU6, InplaceOptions, relu6);
TELEGRAD_LAYER(SELU, InplaceOptions, selu);
TELEGRAD_LAYER(ELU, ELUOptions, elu);
TELEGRAD_LAYER(LeakyReLU, LeakyReLUOptions, leaky_relu);
TELEGRAD_LAYER(Hardtanh, HardtanhOptions, hardtanh);
TELEGRAD_LAYER(Softplus, SoftplusOptions, softplus);
TELEGRAD_LAYER(GELU, GELUOptions, gelu);
TELEGRAD_LAYER(GLU, GLUOptions, glu);
TELEGRAD_LAYER(Softmax, DimOptions, softmax);
TELEGRAD_LAYER(LogSoftmax, DimOptions, log_softmax);
TELEGRAD_LAYER(MaxPool1d, MaxPoolOptions<1>, max_pool1d);
TELEGRAD_LAYER(MaxPool2d, MaxPoolOptions<2>, max_pool2d);
TELEGRAD_LAYER(AvgPool1d, AvgPoolOptions<1>, avg_pool1d);
TELEGRAD_LAYER(AvgPool2d, AvgPoolOptions<2>, avg_pool2d);
TELEGRAD_LAYER(AdaptiveAvgPool2d, AdaptivePoolOptions<2>, adaptive_avg_pool2d);
#undef TELEGRAD_LAYER
using ReLUOptions = InplaceOptions;
using SoftmaxOptions = DimOptions;
using LogSoftmaxOptions = DimOptions;
using MaxPool2dOptions = MaxPoolOptions<2>;
using AvgPool2dOptions = AvgPoolOptions<2>;
#define TELEGRAD_LAYER(Name, function)                                        \
  struct Name##Impl : Module {                                                \
    at::Tensor forward(const at::Tensor& x) { return functional::function(x); } \
  };                                                                          \
  TORCH_MODULE(Name)
TELEGRAD_LAYER(Sigmoid, sigmoid);
TELEGRAD_LAYER(Tanh, tanh);
TELEGRAD_LAYER(SiLU, silu);
TELEGRAD_LAYER(Mish, mish);
#undef TELEGRAD_LAYER

struct SequentialImpl : Module {
  SequentialImpl() = default;
  template <class... M>
  explicit SequentialImpl(M&&... modules) { (push_back(std::forward<M>(modules)), ...); }
  template <class M>
  void push_back(std::string name, std::shared_ptr<M> module) {
    register_module(std::move(name), module);
    steps_.push_back([module](const at::Tensor& x) { return module->forward(x); });
  }
  template <class Impl>
  void push_back(std::string name, const ModuleHolder<Impl>& module) { push_back(std::move(name), module.ptr()); }
  template <class Impl>
  void push_back(const ModuleHolder<Impl>& module) { push_back(std::to_string(steps_.size()), module.ptr()); }
  template <class M>
  void push_back(std::shared_ptr<M> module) { push_back(std::to_string(steps_.size()), std::move(module)); }
  template <class M, class = std::enable_if_t<std::is_base_of_v<Module, std::decay_t<M>>>>
  void push_back(M&& module) { push_back(std::make_shared<std::decay_t<M>>(std::forward<M>(module))); }
  size_t size() const { return steps_.size(); }
  at::Tensor forward(at::Tensor x) const {
    TORCH_CHECK(!steps_.empty(), "Cannot call forward() on an empty Sequential");
    for (const auto& step : steps_) x = step(x);
    return x;
  }

 private:
  std::vector<std::function<at::Tensor(const at::Tensor&)>> steps_;
};
TORCH_MODULE(Sequential);
struct ModuleListImpl : Module {
  template <class Impl>
  void push_back(const ModuleHolder<Impl>& module) { push_back(module.ptr()); }
  void push_back(std::shared_ptr<Module> module) { register_module(std::to_string(size()), std::move(module)); }
  size_t size() const { return named_children().size(); }
  std::shared_ptr<Module> operator[](size_t at) const { return children()[at]; }
  template <class M>
  M& at(size_t place) const { return dynamic_cast<M&>(*children()[place]); }
};
TORCH_MODULE(ModuleList);
}  // namespace nn
}  // namespace torch
