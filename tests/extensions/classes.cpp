// Classes that the tests make instances of, lists of element types, and warnings.
#include <torch/extension.h>
#include <ATen/Dispatch_v2.h>

struct Named {
  virtual ~Named() = default;
  virtual std::string kind() const { return "named"; }
  int64_t twice() { return number * 2; }
  int64_t number = 7;
};
struct Mixin {
  int64_t mixed = 5;
};
struct Average : Mixin, Named {
  Average(torch::Tensor start, double weight) : total(start), weight(weight) { ++live; }
  Average(const Average& other) : Mixin(other), Named(other), total(other.total), weight(other.weight) { ++live; }
  ~Average() override { --live; }
  torch::Tensor add(const torch::Tensor& x) {
    TORCH_CHECK_VALUE(x.dim() == total.dim(), "expected ", total.dim(), " dimensions");
    total = total + x * weight;
    return total;
  }
  void reset() { total = torch::zeros_like(total); }
  int64_t scaled(int64_t by) const { return by * 10; }
  double scaled(double by) const { return by * 0.5; }
  Average& self() { return *this; }
  std::string kind() const override { return "average"; }
  torch::Tensor total;
  double weight;
  static inline int64_t live = 0;
};
struct Holder {
  Average inner;
};
struct Fixed {
  Fixed() = default;
  Fixed(const Fixed&) = delete;
  int64_t n = 1;
};
struct Pair {
  int64_t first;
  double second;
};

torch::Tensor half_of(torch::Tensor x) {
  auto y = torch::empty_like(x);
  AT_DISPATCH_V2(
      x.scalar_type(), "half_of", AT_WRAP([&] {
        const scalar_t two = 2, *from = x.data_ptr<scalar_t>();
        scalar_t* to = y.data_ptr<scalar_t>();
        for (int64_t at = 0, end = x.numel(); at < end; ++at) to[at] = from[at] / two;
      }),
      AT_EXPAND(AT_FLOATING_TYPES), at::kHalf, AT_EXPAND(AT_INTEGRAL_TYPES_V2), AT_EXPAND(AT_COMPLEX_TYPES));
  return y;
}
torch::Tensor warned(torch::Tensor x) {
  TORCH_WARN("careful with ", x.numel(), " elements");
  TORCH_WARN_ONCE("only once");
  return x + 1;
}
void warned_of_nothing(torch::Tensor x) { TORCH_WARN("nothing came of ", x.dim()); }

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("weight_of", [](const Average& given) { return given.weight; });  // named before the class is
  py::class_<Named, std::shared_ptr<Named>>(m, "Named").def(py::init<>()).def("kind", &Named::kind).def("twice", &Named::twice)
      .def_readwrite("number", &Named::number);
  py::class_<Mixin, std::shared_ptr<Mixin>>(m, "Mixin").def_readonly("mixed", &Mixin::mixed);
  auto average = py::class_<Average, Mixin, Named, std::shared_ptr<Average>>(m, "Average", "A weighted sum.")
      .def(py::init<torch::Tensor, double>(), py::arg("start"), py::arg("weight") = 1.0)
      .def(py::init([](int64_t n) { return new Average(torch::ones({n}), 2); }))
      .def("add", &Average::add, py::arg("x"), "Add to it.")
      .def("reset", &Average::reset)
      .def("itself", &Average::self)
      .def("scaled", py::overload_cast<int64_t>(&Average::scaled, py::const_))
      .def("scaled", py::overload_cast<double>(&Average::scaled, py::const_))
      .def("__repr__", [](const Average& one) { return "<average of " + std::to_string(one.total.numel()) + ">"; })
      .def("__len__", [](const Average& one) { return one.total.numel(); })
      .def("__call__", [](Average& one, torch::Tensor x, int64_t n) { return x * n + one.total; }, py::arg("x"), py::arg("n") = 2)
      .def_readwrite("weight", &Average::weight)
      .def_readonly("total", &Average::total)
      .def_property("doubled", [](const Average& one) { return one.weight * 2; },
                    [](Average& one, double given) { one.weight = given / 2; })
      .def_static("live", [] { return Average::live; });
  average.attr("UNIT") = "m";
  py::class_<Holder>(m, "Holder").def(py::init<Average>())
      .def("copied", [](Holder& one) -> Average& { return one.inner; })
      .def("referred", [](Holder& one) -> Average* { return &one.inner; }, py::return_value_policy::reference_internal)
      .def_readwrite("inner", &Holder::inner);
  py::class_<Fixed>(m, "Fixed").def_readonly("n", &Fixed::n);
  py::class_<Pair>(m, "Pair").def(py::init<int64_t, double>()).def_readwrite("first", &Pair::first);
  m.def("kind_of", [](Named* one) { return one ? one->kind() : "none"; });
  m.def("mixed_of", [](const Mixin& one) { return one.mixed; });
  m.def("fixed", [] { return std::make_unique<Fixed>(); });
  m.def("shared", [](std::shared_ptr<Average> one) { return std::vector<std::shared_ptr<Average>>{one, one}; });
  m.def("first_of", [](const std::vector<std::shared_ptr<Average>>& all) { return all.at(0) ? all.at(0)->weight : 0.0; });
  m.def("half_of", &half_of);
  m.def("warned", &warned);
  m.def("warned_of_nothing", &warned_of_nothing);
}
