// Arrays of NumPy, loops over operands by TensorIterator, and exceptions of Python's, as published extensions have them.
#include <torch/extension.h>
#include <ATen/native/TensorIterator.h>
#include <ATen/native/cpu/Loops.h>
#include <pybind11/numpy.h>

py::array_t<double> scaled(py::array_t<double, py::array::c_style | py::array::forcecast> a, double by) {
  const auto info = a.request();
  py::array_t<double> out(info.shape);
  const auto* from = static_cast<const double*>(info.ptr);
  std::transform(from, from + info.size, out.mutable_data(), [&](double x) { return x * by; });
  return out;
}
float trace(py::array_t<float> a) {
  const auto elements = a.unchecked<2>();
  float sum = 0;
  for (py::ssize_t at = 0; at < std::min(a.shape(0), a.shape(1)); ++at) sum += elements(at, at);
  return sum;
}
void increment(py::array_t<int> a, std::optional<py::array_t<float>> unused) {
  auto elements = a.mutable_unchecked<1>();
  for (py::ssize_t at = 0; at < elements.shape(0); ++at) elements(at) += 1;
}
std::tuple<torch::Tensor, std::vector<py::array_t<bool>>> several(torch::Tensor x, std::vector<py::array_t<float>> list) {
  py::array_t<bool> flags({2, 2});
  for (int at = 0; at < 4; ++at) flags.mutable_at(at / 2, at % 2) = at == 2;
  return {x + list.at(1).at(0), {flags}};
}

torch::Tensor halved(const torch::Tensor& self) {
  auto iter = at::TensorIteratorConfig().add_output(torch::Tensor()).add_const_input(self).build();
  AT_DISPATCH_FLOATING_TYPES(iter.dtype(), "halved", [&] {
    at::native::cpu_kernel(iter, [](scalar_t x) -> scalar_t { return x / 2; });
  });
  return iter.output();
}
torch::Tensor distance(const torch::Tensor& a, const torch::Tensor& b, std::optional<torch::Tensor> given) {
  torch::Tensor out = given.value_or(torch::Tensor());
  auto iter = at::TensorIterator::binary_op(out, a, b);
  AT_DISPATCH_ALL_TYPES(iter.common_dtype(), "distance", [&] {
    at::native::cpu_kernel(iter, [](scalar_t x, scalar_t y) -> scalar_t { return x > y ? x - y : y - x; });
  });
  return iter.output();
}
torch::Tensor differ(const torch::Tensor& a, const torch::Tensor& b) {
  auto out = torch::empty({0}, torch::kBool);
  auto iter = at::TensorIteratorConfig().add_output(out).add_input(a).add_input(b).check_all_same_dtype(false).build();
  iter.for_each([&](char** data, const int64_t* strides, int64_t count) {
    for (int64_t at = 0; at < count; ++at)
      *reinterpret_cast<bool*>(data[0] + at * strides[0]) = *reinterpret_cast<float*>(data[1] + at * strides[1]) != *reinterpret_cast<float*>(data[2] + at * strides[2]);
  });
  return out;
}
std::vector<torch::Tensor> divided(const torch::Tensor& a, const torch::Tensor& b) {
  auto quotient = torch::empty_like(a), rest = torch::empty_like(a);
  auto iter = at::TensorIteratorConfig().add_output(quotient).add_output(rest).add_input(a).add_input(b).build();
  at::native::cpu_kernel_multiple_outputs(iter, [](int64_t x, int64_t y) { return std::tuple<int64_t, int64_t>(x / y, x % y); });
  return {quotient, rest};
}

void raised(int which) {
  switch (which) {
    case 0: throw py::key_error("key");
    case 1: throw py::attribute_error("attribute");
    case 2: throw py::import_error("module");
    case 3: throw py::buffer_error("buffer");
    case 4: throw py::stop_iteration("end");
    case 5: throw std::overflow_error("large");
    case 6: throw std::bad_alloc();
    default: throw py::cast_error("cast");
  }
}
int count(const py::dict& given) { return py::cast<int>(given["count"]) + given["more"].cast<int>(); }

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("scaled", &scaled, py::arg("a"), py::arg("by") = 2.0);
  m.def("trace", &trace);
  m.def("increment", &increment, py::arg("a"), py::arg("unused") = py::none());
  m.def("several", &several);
  m.def("halved", &halved);
  m.def("distance", &distance, py::arg("a"), py::arg("b"), py::arg("out") = py::none());
  m.def("differ", &differ);
  m.def("divided", &divided);
  m.def("raised", &raised);
  m.def("count", &count);
}
