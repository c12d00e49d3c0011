// py::class_: what a class of C++ offers to Python.
#pragma once

#include "binding.h"

namespace telegrad {
template <class Self, class C, class R, class... A>
auto function_of_method(R (C::*method)(A...)) {
  return [method](Self& self, A... given) -> R { return (self.*method)(std::forward<A>(given)...); };
}
template <class Self, class C, class R, class... A>
auto function_of_method(R (C::*method)(A...) const) {
  return [method](const Self& self, A... given) -> R { return (self.*method)(std::forward<A>(given)...); };
}
template <class Self, class F>
F function_of_method(F function) { return function; }
}  // namespace telegrad

namespace pybind11 {
template <class... A>
struct constructor {};
template <class F>
struct factory {
  F make;
};
template <class... A>
constructor<A...> init() { return {}; }
template <class F>
factory<std::decay_t<F>> init(F&& make) { return {std::forward<F>(make)}; }

// overload_cast<int>(&T::f) is the one of the functions of a name that takes these arguments; const_ asks for the
// method of a constant object.
constexpr std::true_type const_{};
template <class... A>
struct overload_cast_of {
  template <class R>
  constexpr auto operator()(R (*function)(A...)) const { return function; }
  template <class R, class C>
  constexpr auto operator()(R (C::*method)(A...), std::false_type = {}) const { return method; }
  template <class R, class C>
  constexpr auto operator()(R (C::*method)(A...) const, std::true_type) const { return method; }
};
template <class... A>
constexpr overload_cast_of<A...> overload_cast{};

template <class T, class... Options>
class class_ {
 public:
  template <class... Extra>
  class_(const module_&, const char* name, const Extra&... extra) {
    auto& known = telegrad::classes()[static_cast<size_t>(number_)];
    known.name = name;
    (document(extra), ...);
    (derive<Options>(), ...);
  }

  template <class... A, class... Extra>
  class_& def(constructor<A...>, const Extra&... extra) {
    return add("__init__", telegrad::STATIC, 0, make<A...>, extra...);
  }
  template <class F, class... Extra>
  class_& def(const factory<F>& given, const Extra&... extra) {
    return add("__init__", telegrad::STATIC, 0, given.make, extra...);
  }
  template <class F, class... Extra>
  class_& def(const char* name, F method, const Extra&... extra) {
    return add(name, telegrad::METHOD, 1, telegrad::function_of_method<T>(method), extra...);
  }
  template <class F, class... Extra>
  class_& def_static(const char* name, F function, const Extra&... extra) {
    return add(name, telegrad::STATIC, 0, function, extra...);
  }

  template <class D, class C, class... Extra>
  class_& def_readonly(const char* name, D C::*member, const Extra&... extra) {
    const auto get = [member](const T& self) -> const D& { return self.*member; };
    return add(name, telegrad::GETTER, 1, get, return_value_policy::reference_internal, extra...);
  }
  template <class D, class C, class... Extra>
  class_& def_readwrite(const char* name, D C::*member, const Extra&... extra) {
    add(name, telegrad::SETTER, 1, [member](T& self, const D& given) { self.*member = given; });
    return def_readonly(name, member, extra...);
  }
  template <class G, class... Extra>
  class_& def_property_readonly(const char* name, G get, const Extra&... extra) {
    const auto function = telegrad::function_of_method<T>(get);
    return add(name, telegrad::GETTER, 1, function, return_value_policy::reference_internal, extra...);
  }
  template <class G, class S, class... Extra>
  class_& def_property(const char* name, G get, S set, const Extra&... extra) {
    add(name, telegrad::SETTER, 1, telegrad::function_of_method<T>(set));
    return def_property_readonly(name, get, extra...);
  }
  attribute attr(const char* name) const {
    return {telegrad::classes()[static_cast<size_t>(number_)].name + "." + name};
  }

 private:
  template <class F, class... Extra>
  class_& add(const char* name, telegrad::Role role, size_t named, F function, const Extra&... extra) {
    auto made = telegrad::function_of(name, std::move(function));
    made.owner = number_;
    made.role = role;
    if (std::string(name) == "__init__") made.result = telegrad::Bound<T>::name();
    if (named && !made.parameters.empty()) made.parameters[0].name = "self";
    enter(std::move(made), named, extra...);
    return *this;
  }
  template <class... A>
  static std::shared_ptr<T> make(A... given) {
    if constexpr (std::is_constructible_v<T, A...>) return std::make_shared<T>(std::forward<A>(given)...);
    else return std::shared_ptr<T>(new T{std::forward<A>(given)...});
  }
  void document(const char* doc) { telegrad::classes()[static_cast<size_t>(number_)].doc = doc; }
  template <class Other>
  void document(const Other&) {}
  template <class Base>
  void derive() {
    if constexpr (std::is_base_of_v<Base, T>) {
      const auto cast = [](void* pointer) -> void* { return static_cast<Base*>(static_cast<T*>(pointer)); };
      const int64_t base = telegrad::number_of<Base>();
      telegrad::classes()[static_cast<size_t>(number_)].bases.emplace_back(base, cast);
    }
  }
  int64_t number_ = telegrad::number_of<T>();
};
}  // namespace pybind11
