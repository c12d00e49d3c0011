// Functions that the tests call: values whose types C++ does not say, families of element types, what is composed.
#include <torch/extension.h>

py::list doubled(py::list given) {
  py::list made;
  for (auto item : given) {
    if (py::isinstance<torch::Tensor>(item)) made.append(item.cast<torch::Tensor>() * 2);
    else if (py::isinstance<py::float_>(item)) made.append(item.cast<double>() * 2);
    else made.append(item);
  }
  return made;
}
py::dict described(py::object one, py::dict options) {
  py::dict made;
  made["is_none"] = one.is_none();
  made["count"] = py::len(options);
  made["has_size"] = options.contains("size");
  if (options.contains("size")) made["sizes"] = options["size"].cast<std::vector<int64_t>>();
  for (auto item : options) made[item.first] = item.second;
  made["pair"] = py::make_tuple(1, "two", 2.5, py::none());
  return made;
}
py::tuple split_in_two(py::tuple given) {
  py::tuple made(2);
  made[0] = given[0];
  made[1] = std::vector<torch::Tensor>{given[1].cast<torch::Tensor>(), given[1].cast<torch::Tensor>() + 1};
  return made;
}
int64_t total(std::optional<py::list> numbers) {
  int64_t sum = 0;
  if (numbers) for (size_t at = 0; at < numbers->size(); ++at) sum += (*numbers)[at].cast<int64_t>();
  return sum;
}
double refuses(int64_t how) {
  if (how == 0) throw py::value_error("value");
  if (how == 1) throw py::index_error("index");
  if (how == 2) throw py::type_error("type");
  return py::make_tuple("text")[0].cast<double>();
}
torch::Tensor squared(torch::Tensor x) {
  auto y = torch::empty_like(x);
  AT_DISPATCH_ALL_TYPES_AND_COMPLEX_AND3(at::kHalf, at::kBFloat16, at::kBool, x.scalar_type(), "squared", [&] {
    const auto* from = x.data_ptr<scalar_t>();
    for (int64_t at = 0; at < x.numel(); ++at) y.data_ptr<scalar_t>()[at] = static_cast<scalar_t>(from[at] * from[at]);
  });
  return y;
}
int64_t family(torch::Tensor x) {
  return AT_DISPATCH_SWITCH(
      x.scalar_type(), "family",
      AT_DISPATCH_CASE_REDUCED_FLOATING_TYPES([&] { return int64_t(1); })
      AT_DISPATCH_CASE_FLOATING_AND_COMPLEX_TYPES([&] { return int64_t(2); })
      AT_DISPATCH_CASE_INTEGRAL_TYPES_AND(at::kBool, [&] { return int64_t(3); }));
}
std::vector<torch::Tensor> composed(torch::Tensor x, torch::Tensor w) {
  auto [normal, mean, rstd] = at::native_layer_norm(x, {x.size(1)}, w, {}, 1e-5);
  auto grids = torch::meshgrid({x[0], w}, "xy");
  return {
      normal, mean, rstd, grids[0], grids[1], torch::tensordot(x, x, {0}, {0}), torch::column_stack({w, x.t()}),
      torch::broadcast_tensors({w, x})[0].contiguous(), torch::diagflat(w), torch::log_sigmoid(x),
      torch::embedding(x, torch::tensor({2, 0})), x.absolute().multiply(3).clip(0, 1), torch::quantile(x, 0.5, 1),
  };
}
std::vector<torch::Tensor> written(torch::Tensor x) {
  auto a = x.clone(), b = torch::empty_like(x), c = x.clone();
  a[0] = x[1] * 2;
  a[1][0] = 5;
  a.slice(1, 1, 2) = x.slice(1, 0, 1);
  at::mul_out(b, x, x);
  c.index({torch::indexing::Slice(), 1}) = 4;
  const auto [values, places, counts] = torch::_unique2(x.round(), true, true, true);
  const auto [runs, of_run, lengths] = torch::unique_consecutive(x.round(), true, true);
  const auto bare = torch::unique_consecutive(x.round());
  float numbers[] = {1, 2, 3, 4, 5, 6};
  return {
      a, b, c, values, places, counts, runs, of_run, lengths, std::get<0>(bare), torch::pow(2, x), x.norm(2, {1}, true), x.sum(at::kDouble),
      torch::tensor({{1.0, 2.0}, {3.0, 4.0}}), torch::from_blob(numbers, {2, 3}, {1, 2}),
      torch::conv2d(x.view({1, 1, 3, 4}), torch::ones({1, 1, 2, 2}), {}, {1, 1}, {1, 1}), torch::_softmax(x, 1, false),
  };
}
std::string described_type(torch::Tensor x) {
  return c10::str(x.dtype(), " ", x.scalar_type(), " ", x.layout(), " ", x.toString(), " ", x.dtype() == torch::kFloat32, " ", at::ceil_div(7, 2));
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("written", &written);
  m.def("described_type", &described_type);
  m.doc() = "Objects of Python.";
  m.def("doubled", &doubled);
  m.def("described", &described, py::arg("one"), py::arg("options") = py::dict());
  m.def("split_in_two", &split_in_two);
  m.def("total", &total, py::arg("numbers") = py::none());
  m.def("refuses", &refuses);
  m.def("squared", torch::wrap_pybind_function(squared));
  m.def("family", &family);
  m.def("composed", &composed);
  m.def("einsum", [](const std::string& equation, std::vector<torch::Tensor> operands) {
    return torch::einsum(equation, operands);
  });
}
