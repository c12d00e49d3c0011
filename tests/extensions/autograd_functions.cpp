// Differentiable functions in C++ that the tests call.
#include <torch/extension.h>

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::tensor_list;
using torch::autograd::Variable;
using torch::autograd::variable_list;

// The one of PyTorch's tutorial on C++ frontends.
class LinearFunction : public Function<LinearFunction> {
 public:
  static torch::Tensor forward(
      AutogradContext* ctx, torch::Tensor input, torch::Tensor weight, torch::Tensor bias = torch::Tensor()) {
    ctx->save_for_backward({input, weight, bias});
    auto output = input.mm(weight.t());
    if (bias.defined()) output += bias.unsqueeze(0).expand_as(output);
    return output;
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list grad_outputs) {
    auto saved = ctx->get_saved_variables();
    auto input = saved[0], weight = saved[1], bias = saved[2];
    auto grad_output = grad_outputs[0];
    auto grad_bias = torch::Tensor();
    if (bias.defined()) grad_bias = grad_output.sum(0);
    return {grad_output.mm(weight), grad_output.t().mm(input), grad_bias};
  }
};

class MulConstant : public Function<MulConstant> {
 public:
  static torch::Tensor forward(AutogradContext* ctx, torch::Tensor tensor, double constant) {
    ctx->saved_data["constant"] = constant;
    ctx->saved_data["name"] = "constant";
    ctx->saved_data["sizes"] = tensor.sizes();
    return tensor * constant;
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list grad_outputs) {
    TORCH_CHECK(ctx->saved_data["name"].toStringRef() == "constant" && !ctx->saved_data["none"].isInt());
    TORCH_CHECK(ctx->saved_data["sizes"].toIntVector() == grad_outputs[0].sizes().vec());
    return {grad_outputs[0] * ctx->saved_data["constant"].toDouble(), torch::Tensor()};
  }
};

// Saves its own result, so that it can be differentiated twice.
struct Exponential : Function<Exponential> {
  static Variable forward(AutogradContext* ctx, const Variable& x) {
    auto y = x.exp();
    ctx->save_for_backward({y});
    return y;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    return {grads[0] * ctx->get_saved_variables()[0]};
  }
};

struct Increment : Function<Increment> {
  static torch::Tensor forward(AutogradContext* ctx, torch::Tensor x) {
    x.add_(1);
    ctx->mark_dirty({x});
    return x;
  }
  static tensor_list backward(AutogradContext*, tensor_list grads) { return {grads[0] * 3}; }
};

// The largest elements of rows, and where they are; the third result is the operand itself.
struct Largest : Function<Largest> {
  static variable_list forward(AutogradContext* ctx, const Variable& x, int64_t dim, bool materialize) {
    auto [values, places] = x.max(dim, true);
    ctx->save_for_backward({places, torch::zeros_like(x)});
    ctx->saved_data["dim"] = dim;
    ctx->mark_non_differentiable({places});
    ctx->set_materialize_grads(materialize);
    return {values, places, x};
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    auto saved = ctx->get_saved_variables();
    auto gradient = saved[1];
    if (grads[0].defined()) gradient = gradient.scatter(ctx->saved_data["dim"].toInt(), saved[0], grads[0]);
    if (grads[2].defined()) gradient = gradient + grads[2];
    return {ctx->needs_input_grad(0) ? gradient : torch::Tensor(), torch::Tensor(), torch::Tensor()};
  }
};

struct SumOfLists : Function<SumOfLists> {
  static torch::Tensor forward(AutogradContext* ctx, std::vector<torch::Tensor> all, int64_t times,
                               std::optional<torch::Tensor> more) {
    ctx->saved_data["times"] = times;
    ctx->saved_data["needs"] = std::vector<int64_t>{ctx->needs_input_grad(0), ctx->needs_input_grad(1)};
    auto total = torch::zeros_like(all[0]);
    for (const auto& one : all) total += one * times;
    return more.has_value() ? total + *more : total;
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    auto needs = ctx->saved_data["needs"].toIntVector();
    auto one = grads[0] * ctx->saved_data["times"].toInt();
    return {needs[0] ? one : torch::Tensor(), needs[1] ? one : torch::Tensor(), torch::Tensor(), grads[0]};
  }
};

// What goes wrong, by number.
struct Wrong : Function<Wrong> {
  static torch::Tensor forward(AutogradContext* ctx, torch::Tensor x, int64_t how) {
    ctx->saved_data["how"] = how;
    if (how == 4) ctx->mark_dirty({x});
    TORCH_CHECK(how != 5, "five");
    return x * 1;
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const int64_t how = ctx->saved_data["how"].toInt();
    TORCH_CHECK(how != 0, "zero");
    if (how == 1) return {};
    if (how == 2) return {grads[0], grads[0]};
    if (how == 3) return {grads[0].sum({0, 1}).expand({7}), torch::Tensor()};
    return {grads[0], torch::Tensor(), torch::Tensor()};
  }
};

torch::Tensor linear(torch::Tensor x, torch::Tensor w, std::optional<torch::Tensor> b) {
  return b.has_value() ? LinearFunction::apply(x, w, *b) : LinearFunction::apply(x, w, torch::Tensor());
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("linear", &linear, py::arg("x"), py::arg("w"), py::arg("b") = py::none());
  m.def("multiplied", [](torch::Tensor x, double by) { return MulConstant::apply(MulConstant::apply(x, by), 2); });
  m.def("exponential", [](torch::Tensor x) { return Exponential::apply(x); });
  m.def("increment_", [](torch::Tensor x) { return Increment::apply(x); });
  m.def("largest", [](torch::Tensor x, int64_t dim, bool materialize) { return Largest::apply(x, dim, materialize); });
  m.def("summed", [](std::vector<torch::Tensor> all, int64_t times, std::optional<torch::Tensor> more) {
    return SumOfLists::apply(all, times, more);
  });
  m.def("wrong", [](torch::Tensor x, int64_t how) { return Wrong::apply(x, how); });
}

TORCH_LIBRARY_FRAGMENT(cpp_functions, m) { m.def("exponential(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(cpp_functions, Autograd, m) {
  m.impl("exponential", [](torch::Tensor x) { return Exponential::apply(x); });
}
