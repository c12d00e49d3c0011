// Modules of C++ and functions with options, as published extensions have them.
#include <torch/extension.h>

namespace F = torch::nn::functional;

struct NetworkImpl : torch::nn::Module {
  NetworkImpl(int64_t in, int64_t hidden, int64_t out)
      : first(register_module("first", torch::nn::Linear(in, hidden))), last(torch::nn::LinearOptions(hidden, out).bias(false)) {
    register_module("last", last);
    scale = register_parameter("scale", torch::ones({out}));
    register_buffer("steps", torch::zeros({1}));
  }
  torch::Tensor forward(torch::Tensor x) {
    x = torch::dropout(torch::relu(first->forward(x)), 0.5, is_training());
    return torch::log_softmax(last(x) * scale, 1);
  }
  torch::nn::Linear first{nullptr}, last{nullptr};
  torch::Tensor scale;
};
TORCH_MODULE(Network);

torch::Tensor run(torch::Tensor x, const std::map<std::string, torch::Tensor>& state, bool trains) {
  Network network(x.size(1), state.at("first.bias").size(0), state.at("last.weight").size(0));
  network->train(trains);
  torch::NoGradGuard guard;
  for (auto& item : network->named_parameters()) item.value().copy_(state.at(item.key()));
  return network(x);
}
std::vector<std::string> names() {
  Network network(2, 3, 4);
  auto made = network->named_parameters().keys();
  for (const auto& buffer : network->named_buffers()) made.push_back(buffer.key());
  return made;
}
std::vector<torch::Tensor> initial(int64_t in, int64_t out) {
  torch::nn::Linear linear(in, out);
  torch::nn::init::xavier_uniform_(linear->weight);
  torch::nn::Embedding embedding(in, out);
  return {linear->weight.detach(), linear->bias.detach(), embedding->weight.detach()};
}
torch::Tensor sequence(torch::Tensor x) {
  torch::nn::Sequential network(
      torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 4, 3).padding(1).stride({2, 1})), torch::nn::BatchNorm2d(4), torch::nn::ReLU(),
      torch::nn::MaxPool2d(2), torch::nn::Flatten());
  network->push_back(torch::nn::Softmax(torch::nn::SoftmaxOptions(1)));
  network->eval();
  torch::NoGradGuard guard;
  for (auto& parameter : network->parameters()) torch::nn::init::constant_(parameter, 0.25);
  return network->forward(x);
}
std::vector<torch::Tensor> functions(torch::Tensor x, torch::Tensor w, torch::Tensor classes) {
  return {
      F::conv2d(x, w, F::Conv2dFuncOptions().stride(2).padding({1, 0})), F::conv_transpose2d(F::conv2d(x, w), w),
      F::max_pool2d(x, F::MaxPool2dFuncOptions(2).stride(1)), F::avg_pool2d(x, F::AvgPool2dFuncOptions({2, 3})),
      F::pad(x, F::PadFuncOptions({1, 2}).value(3)), F::pad(x, F::PadFuncOptions({1, 1, 1, 1}).mode(torch::kReflect)),
      F::unfold(x, F::UnfoldFuncOptions(2).stride(2)), F::softmax(x, F::SoftmaxFuncOptions(1)),
      F::leaky_relu(x, F::LeakyReLUFuncOptions().negative_slope(0.2)), F::elu(x, F::ELUFuncOptions().alpha(0.7)),
      F::gelu(x, F::GELUFuncOptions().approximate("tanh")), F::softplus(x, F::SoftplusFuncOptions().beta(2)),
      F::layer_norm(x, F::LayerNormFuncOptions({x.size(-1)}).eps(1e-3)), F::group_norm(x, F::GroupNormFuncOptions(3)),
      F::normalize(x, F::NormalizeFuncOptions().dim(2).p(1)), F::mse_loss(x, x * 2, F::MSELossFuncOptions(torch::kSum)),
      F::huber_loss(x, x * 3, F::HuberLossFuncOptions().delta(0.5)), F::l1_loss(x, -x, torch::kNone),
      F::cross_entropy(x.flatten(1), classes, F::CrossEntropyFuncOptions().label_smoothing(0.1)),
      F::cosine_similarity(x, x + 1, F::CosineSimilarityFuncOptions().dim(2)), F::relu(x.clone(), F::ReLUFuncOptions(true))};
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("run", &run);
  m.def("names", &names);
  m.def("initial", &initial);
  m.def("sequence", &sequence);
  m.def("functions", &functions);
}
