// Enumerations, operators, unions, sets and other things of pybind11 that the tests look at from Python.
#include <torch/extension.h>
#include <pybind11/operators.h>

enum class Mode : int { NEAREST = 0, LINEAR = 1, CUBIC = 4 };
enum Level { LOW, HIGH = 7 };
struct Vec {
  double x, y;
  Vec operator+(const Vec& o) const { return {x + o.x, y + o.y}; }
  Vec operator*(double f) const { return {x * f, y * f}; }
  Vec operator-() const { return {-x, -y}; }
  Vec& operator+=(const Vec& o) { x += o.x; y += o.y; return *this; }
  bool operator==(const Vec& o) const { return x == o.x && y == o.y; }
  friend Vec operator*(double f, const Vec& v) { return v * f; }
  enum Axis { X, Y };
  static inline int64_t made = 3;
};
struct Shape {
  virtual ~Shape() = default;
  virtual int64_t sides() = 0;
  virtual std::string name(int64_t times) { return "shape" + std::to_string(times); }
};
struct Square : Shape {
  int64_t sides() override { return 4; }
};
struct PyShape : Shape {
  int64_t sides() override { PYBIND11_OVERRIDE_PURE(int64_t, Shape, sides, ); }
  std::string name(int64_t times) override { PYBIND11_OVERRIDE(std::string, Shape, name, times); }
};
using Either = std::variant<torch::Tensor, int64_t, double, std::string, std::vector<int64_t>>;

Either doubled(Either given) {
  if (auto* x = std::get_if<torch::Tensor>(&given)) return *x * 2;
  if (auto* n = std::get_if<int64_t>(&given)) return *n * 2;
  if (auto* n = std::get_if<double>(&given)) return *n * 2;
  if (auto* list = std::get_if<std::vector<int64_t>>(&given)) return static_cast<int64_t>(list->size());
  return std::get<std::string>(given) + "!";
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  py::enum_<Mode>(m, "Mode", "How to sample.").value("NEAREST", Mode::NEAREST).value("LINEAR", Mode::LINEAR, "weighted").value("CUBIC", Mode::CUBIC);
  py::enum_<Level>(m, "Level", py::arithmetic()).value("LOW", LOW).value("HIGH", HIGH).export_values();
  m.def("scaled", [](torch::Tensor x, Mode mode) { return x * static_cast<int64_t>(mode); }, py::arg("x"), py::arg("mode") = Mode::LINEAR);
  m.def("next", [](Mode mode) { return mode == Mode::NEAREST ? Mode::LINEAR : Mode::CUBIC; });
  m.def("modes", [](std::vector<Mode> given) { return std::map<std::string, Mode>{{"first", given.at(0)}}; });
  m.def("level", [](Level level) { return static_cast<int64_t>(level); });

  py::class_<Vec> vec(m, "Vec");
  vec.def(py::init<double, double>()).def(py::self + py::self).def(py::self * double()).def(double() * py::self).def(-py::self)
      .def(py::self += py::self).def(py::self == py::self).def_readwrite("x", &Vec::x)
      .def(py::pickle([](const Vec& v) { return py::make_tuple(v.x, v.y); },
                      [](py::tuple t) {
                        TORCH_CHECK(t.size() == 2, "Invalid state!");
                        return Vec{t[0].cast<double>(), t[1].cast<double>()};
                      }))
      .def("__repr__", [](const Vec& v) { return c10::str("Vec(", v.x, ", ", v.y, ")"); })
      .def_readwrite_static("made", &Vec::made)
      .def_property_readonly_static("twice", [](py::object) { return Vec::made * 2; });
  py::enum_<Vec::Axis>(vec, "Axis").value("X", Vec::X).value("Y", Vec::Y);
  m.def("sum_of", [](const std::vector<Vec>& all, std::optional<Vec> more) {
    Vec sum = more.value_or(Vec{0, 0});
    for (const auto& one : all) sum += one;
    return std::make_pair(sum, all.size());
  }, py::arg("all"), py::arg("more") = std::nullopt);

  py::class_<Shape, PyShape>(m, "Shape").def(py::init<>()).def("sides", &Shape::sides).def("name", &Shape::name);
  py::class_<Square, Shape>(m, "Square").def(py::init<>());
  m.def("sides_of", [](Shape& shape) { return shape.sides(); });
  m.def("name_of", [](Shape* shape) { return shape ? shape->name(2) : "none"; });

  m.def("doubled", &doubled);
  m.def("shifted", [](std::set<int64_t> given, int64_t by) {
    std::unordered_set<int64_t> made;
    for (const int64_t n : given) made.insert(n + by);
    return made;
  });
  m.def("named", [](torch::Tensor x, int64_t n, double f) { return x * n + f; }, py::arg("x"), py::kw_only(), py::arg("n") = 2, py::arg("f") = 0.0);
  m.def("placed", [](int64_t a, int64_t b) { return a - b; }, py::arg("a"), py::pos_only(), py::arg("b"));
  m.def("gathered", [](int64_t first, py::args rest, py::kwargs named) {
    named["count"] = rest.size() + static_cast<size_t>(first);
    return py::make_tuple(rest, named);
  });
  auto part = m.def_submodule("part", "A part.");
  part.def("twice", [](torch::Tensor x) { return x * 2; });
  part.attr("SIZE") = 3;
}
