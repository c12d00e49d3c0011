// Functions that the tests call: everything of torch/extension.h that needs no GPU.
#include <torch/extension.h>

#include "scale.h"

using torch::indexing::None;
using torch::indexing::Slice;

torch::Tensor scale(torch::Tensor x, double by) {
  TORCH_CHECK(x.is_contiguous(), "x must be contiguous, its strides are ", x.strides());
  auto y = torch::empty_like(x);
  AT_DISPATCH_ALL_TYPES_AND2(torch::kHalf, torch::kBFloat16, x.scalar_type(), "scale", [&] {
    const auto* from = x.data_ptr<scalar_t>();
    auto* to = y.data_ptr<scalar_t>();
    for (int64_t at = 0; at < x.numel(); ++at) to[at] = scaled(from[at], by);
  });
  return y;
}
torch::Tensor floats(torch::Tensor x) {
  return AT_DISPATCH_FLOATING_TYPES(x.type(), "floats", [&] { return x + sizeof(scalar_t); });
}
void increment_(torch::Tensor x) {
  auto elements = x.accessor<float, 2>();
  for (int64_t row = 0; row < elements.size(0); ++row)
    for (int64_t column = 0; column < elements.size(1); ++column) elements[row][column] += 1;
}
void require_matrix(torch::Tensor x) { TORCH_CHECK(x.dim() == 2, "expected a matrix, got ", x.dim(), " dimensions"); }
torch::Tensor repeated(const torch::Tensor& x, double by, int64_t times) {
  return times > 1 ? repeated(x * by, by, times - 1) : x * by;
}
at::Tensor& same(at::Tensor& x) { return x; }
at::Tensor affine(const at::Tensor& x, const at::Tensor& w, const std::optional<at::Tensor>& b) {
  auto y = x.mm(w.t());
  return b.has_value() ? torch::relu(y + *b) : y;
}
std::vector<at::Tensor> pieces(const at::Tensor& x, at::IntArrayRef sizes) {
  std::vector<at::Tensor> made;
  int64_t start = 0;
  for (const int64_t size : sizes) {
    made.push_back(x.narrow(0, start, size));
    start += size;
  }
  return made;
}
std::tuple<at::Tensor, int64_t, double, bool, std::string> facts(at::Tensor x, std::string text) {
  return {x.transpose(0, 1), x.numel(), x.sum().item<double>(), x.is_contiguous(), text + torch::toString(x.scalar_type())};
}
std::map<std::string, at::Tensor> both(at::Tensor x) { return {{"plus", x + 1}, {"minus", 1 - x}}; }
at::Tensor positive(at::Tensor x) { return x.index({x > 0}); }
at::Tensor tour(at::Tensor x) {
  auto y = torch::zeros({x.size(0), 2 * x.size(1)}, x.options());
  y.index_put_({Slice(), Slice(None, x.size(1))}, x);
  y.index_put_({0, -1}, 7);
  auto [values, places] = y.topk(2, 1);
  auto [highest, at] = x.max(0, true);
  y = torch::cat({y, values, places.to(x.scalar_type())}, 1).permute({1, 0}).contiguous();
  y += highest.sum() * torch::full({1}, 0.5, x.options()) + torch::arange(3, x.options()).mean();
  y = torch::where(y > 3, y.sin(), -y.pow(2)) / torch::sum(y, {0, 1}).abs().add(1);
  return y.reshape({-1, 2}).flip({0}).softmax(-1) * torch::ones({2}) + at::linspace(0, 1, 2)[1] + x[0][1].item<float>();
}
at::Tensor blob(std::vector<double> numbers) {
  return torch::from_blob(numbers.data(), {static_cast<int64_t>(numbers.size())}, torch::kDouble) + torch::tensor({1.5, 2.5});
}
at::Tensor halves_to_floats(at::Tensor bits, bool brain) {
  auto out = torch::empty(bits.sizes(), torch::kFloat);
  for (int64_t at = 0; at < bits.numel(); ++at) {
    const auto pattern = static_cast<uint16_t>(bits.data_ptr<int>()[at]);
    out.data_ptr<float>()[at] = brain ? float(at::BFloat16(pattern, at::BFloat16::from_bits()))
                                      : float(at::Half(pattern, at::Half::from_bits()));
  }
  return out;
}
at::Tensor floats_to_halves(at::Tensor numbers, bool brain) {
  auto out = torch::empty_like(numbers, torch::TensorOptions().dtype(torch::kInt));
  for (int64_t at = 0; at < numbers.numel(); ++at) {
    const float number = numbers.data_ptr<float>()[at];
    out.data_ptr<int>()[at] = brain ? at::BFloat16(number).x : at::Half(number).x;
  }
  return out;
}
double fails(int64_t how) {
  TORCH_CHECK_INDEX(how != 0, "index ", how);
  TORCH_CHECK_VALUE(how != 1, "value");
  if (how == 2) throw std::runtime_error("runtime");
  if (how == 3) torch::ones({2, 3}).mm(torch::ones({2, 3}));
  if (how == 4) throw std::out_of_range("range");
  TORCH_CHECK(how != 5);
  if (how == 6) at::call("no_such_operation", torch::ones({2}));
  if (how == 7) torch::zeros({2}).data_ptr<double>();
  try {
    torch::ones({2}).view({3});
  } catch (const c10::Error& error) {
    return -1;
  }
  return 0;
}
int64_t leftover = 0;
int64_t count_up(int64_t by) { return leftover += by; }
at::Tensor kept;
at::Tensor swap_kept(at::Tensor x) {
  auto before = kept.defined() ? kept : torch::zeros_like(x);
  kept = x;
  return before;
}
at::Tensor sometimes(at::Tensor x) {  // what it asks for changes from call to call, its result does not
  auto one = torch::empty({++leftover % 2 ? 3 : 4}), two = torch::empty_like(x);
  return two.fill_(static_cast<double>(one.numel()));
}
void drop_kept() { kept = at::Tensor(); }
at::Tensor grows(at::Tensor x) { return torch::zeros({++leftover, x.size(0)}); }
at::Tensor crash(at::Tensor x) {
  static_cast<volatile char*>(nullptr)[leftover] = 1;
  return x;
}
at::Tensor without_grad(at::Tensor x) {
  torch::NoGradGuard guard;
  return x * 2;
}
at::Tensor typed(at::Tensor x, torch::ScalarType type, torch::Device device, std::optional<torch::Scalar> fill) {
  auto y = x.to(type).to(device);
  return fill ? torch::full_like(y, *fill) : y;
}

// A recurrent cell of three gates, and its gradients: the kind of code that tutorials begin with.
torch::Tensor slope_of_elu(torch::Tensor z, torch::Scalar alpha = 1.0) {
  auto grown = z.exp();
  auto is_inside = (alpha * (grown - 1)) < 0;
  return (z > 0).type_as(z) + is_inside.type_as(z) * (alpha * grown);
}
std::vector<torch::Tensor> cell(torch::Tensor x, torch::Tensor w, torch::Tensor b, torch::Tensor h, torch::Tensor c) {
  auto joined = torch::cat({h, x}, /*dim=*/1);
  auto sums = torch::addmm(b, joined, w.transpose(0, 1));
  auto parts = sums.chunk(3, /*dim=*/1);
  auto in = torch::sigmoid(parts[0]), out = torch::sigmoid(parts[1]), proposed = torch::elu(parts[2], /*alpha=*/1.0);
  auto next = c + proposed * in;
  return {torch::tanh(next) * out, next, in, out, proposed, joined, sums};
}
std::vector<torch::Tensor> cell_gradients(
    torch::Tensor dh, torch::Tensor dc, torch::Tensor next, torch::Tensor in, torch::Tensor out,
    torch::Tensor proposed, torch::Tensor joined, torch::Tensor sums, torch::Tensor w) {
  auto tanh = next.tanh();
  auto dnext = (1 - tanh.pow(2)) * out * dh + dc;
  auto parts = sums.chunk(3, /*dim=*/1);
  auto din = proposed * dnext, dout = tanh * dh, dproposed = in * dnext;
  din *= (1 - in) * in;
  dout *= torch::sigmoid(parts[1]) * (1 - torch::sigmoid(parts[1]));
  dproposed *= slope_of_elu(parts[2]);
  auto dsums = torch::cat({din, dout, dproposed}, /*dim=*/1);
  auto djoined = dsums.mm(w);
  const auto state = dh.size(1);
  return {djoined.slice(/*dim=*/1, state), dsums.t().mm(joined), dsums.sum(/*dim=*/0, /*keepdim=*/true),
          djoined.slice(/*dim=*/1, 0, state), dnext, torch::unsqueeze(dsums, 0).squeeze(0)};
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("cell", &cell, "forward");
  m.def("cell_gradients", &cell_gradients, "backward");
  m.doc() = "what the tests call";
  m.attr("answer") = 42;
  m.def("scale", &scale, "multiplies", py::arg("x"), py::arg("by") = 2.0);
  m.def("floats", &floats);
  m.def("increment_", &increment_);
  m.def("require_matrix", &require_matrix);
  m.def("same", &same);
  m.def("affine", &affine, py::arg("x"), py::arg("w"), py::arg("b") = py::none());
  m.def("pieces", &pieces);
  m.def("facts", &facts);
  m.def("both", &both);
  m.def("positive", &positive);
  m.def("tour", &tour);
  m.def("blob", &blob);
  m.def("halves_to_floats", &halves_to_floats);
  m.def("floats_to_halves", &floats_to_halves);
  m.def("fails", &fails);
  m.def("count_up", &count_up, py::call_guard<py::gil_scoped_release>());
  m.def("grows", &grows);
  m.def("swap_kept", &swap_kept);
  m.def("drop_kept", &drop_kept);
  m.def("sometimes", &sometimes);
  m.def("crash", &crash);
  m.def("without_grad", &without_grad);
  m.def("typed", &typed, py::arg("x"), py::arg("type"), py::arg("device") = "cpu", py::arg("fill") = py::none());
  m.def("overloaded", [](int64_t) { return std::string("int"); });
  m.def("overloaded", [](const std::string&) { return std::string("str"); });
}

TORCH_LIBRARY(telegrad_tests, m) {
  m.def("scale(Tensor x, float by) -> Tensor");
  m.def("repeated(Tensor x, float by=3.0, *, int times=1) -> Tensor");
  m.def("both_added", [](at::Tensor x, at::Tensor y) { return x + y; });
}
TORCH_LIBRARY_IMPL(telegrad_tests, CPU, m) {
  m.impl("scale", &scale);
  m.impl("repeated", &repeated);
}
