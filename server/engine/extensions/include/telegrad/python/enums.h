// py::enum_: enumerations of C++ that Python has as classes.
#pragma once

#include "../class_binding.h"

namespace telegrad {
template <class T>
struct Codec<T, std::enable_if_t<std::is_enum_v<T>>> {
  using Held = T;
  static void put(Words& words, T value) {
    words.put(ENUMERATOR, number_of<T>());
    words.put(static_cast<int64_t>(value));
  }
  static T take(Reader& reader) {
    if (reader.next() != ENUMERATOR || reader.next() != number_of<T>())
      refuse("a value of " + classes()[static_cast<size_t>(number_of<T>())].name);
    return static_cast<T>(reader.next());
  }
  static std::string name() { return "class " + std::to_string(number_of<T>()); }
};
}  // namespace telegrad

namespace pybind11 {
struct arithmetic {};

template <class T>
class enum_ : public scope {
 public:
  // Values are compared with numbers where C++ converts them; ``arithmetic`` says 1 for that, 2 for more, 4 for more
  // among themselves alone.
  template <class... Extra>
  enum_(const scope& within, const char* name, const Extra&... extra) : scope(within, name), within_(within) {
    auto& known = described();
    known.name = path();
    known.is_enumeration = true;
    known.arithmetic = std::is_convertible_v<T, std::underlying_type_t<T>> ? 1 : 0;
    (document(extra), ...);
  }
  enum_& value(const char* name, T value, const char* doc = "") {
    described().enumerators.emplace_back(name, static_cast<int64_t>(value), doc);
    return *this;
  }
  enum_& export_values() {
    for (const auto& one : described().enumerators) within_.attr(std::get<0>(one).c_str()) = static_cast<T>(std::get<1>(one));
    return *this;
  }

 private:
  static telegrad::Class& described() { return telegrad::classes()[static_cast<size_t>(telegrad::number_of<T>())]; }
  void document(const char* doc) { described().doc = doc; }
  void document(const arithmetic&) { described().arithmetic = described().arithmetic == 1 ? 2 : 4; }
  template <class Other>
  void document(const Other&) {}
  scope within_;
};
}  // namespace pybind11
