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

// What an instance is pickled as, and the function that makes one of that.
template <class Get, class Set>
struct pickle_factory {
  Get get;
  Set set;
};
template <class Get, class Set>
pickle_factory<std::decay_t<Get>, std::decay_t<Set>> pickle(Get&& get, Set&& set) {
  return {std::forward<Get>(get), std::forward<Set>(set)};
}
namespace detail {
template <class Made>
struct operator_;
template <class T>
struct type_of;
}  // namespace detail

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
class class_ : public scope {
 public:
  template <class... Extra>
  class_(const scope& within, const char* name, const Extra&... extra) : scope(within, name) {
    auto& known = telegrad::classes()[static_cast<size_t>(number_)];
    known.name = path();
    known.has_overrides = !std::is_void_v<Trampoline>;
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
  template <class Get, class Set, class... Extra>
  class_& def(const pickle_factory<Get, Set>& given, const Extra&... extra) {
    add("__getstate__", telegrad::METHOD, 1, given.get);
    return add("__setstate__", telegrad::STATIC, 0, given.set, extra...);
  }
  template <class Made, class... Extra>
  class_& def(const detail::operator_<Made>& given, const Extra&... extra) {
    return add(given.name, telegrad::OPERATOR, 1, given.of(detail::type_of<T>()), extra...);
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
  // Attributes of the class; functions that compute them are given the class, as None here.
  template <class D, class... Extra>
  class_& def_readonly_static(const char* name, const D* at, const Extra&... extra) {
    return add(name, telegrad::STATIC_GETTER, 0, [at](const object&) { return *at; }, extra...);
  }
  template <class D, class... Extra>
  class_& def_readwrite_static(const char* name, D* at, const Extra&... extra) {
    add(name, telegrad::STATIC_SETTER, 0, [at](const object&, const D& given) { *at = given; });
    return def_readonly_static(name, at, extra...);
  }
  template <class G, class... Extra>
  class_& def_property_readonly_static(const char* name, G get, const Extra&... extra) {
    return add(name, telegrad::STATIC_GETTER, 0, get, extra...);
  }
  template <class G, class S, class... Extra>
  class_& def_property_static(const char* name, G get, S set, const Extra&... extra) {
    add(name, telegrad::STATIC_SETTER, 0, set);
    return def_property_readonly_static(name, get, extra...);
  }

 private:
  // The class among the options that is derived from this one; its methods ask for those of Python.
  template <class...>
  struct derived_of {
    using type = void;
  };
  template <class First, class... Rest>
  struct derived_of<First, Rest...> {
    static constexpr bool is_one = std::is_base_of_v<T, First> && !std::is_same_v<T, First>;
    using type = typename std::conditional_t<is_one, derived_of<First>, derived_of<Rest...>>::type;
  };
  template <class First>
  struct derived_of<First> {
    using type = std::conditional_t<std::is_base_of_v<T, First> && !std::is_same_v<T, First>, First, void>;
  };
  using Trampoline = typename derived_of<Options...>::type;

  template <class F, class... Extra>
  class_& add(const char* name, telegrad::Role role, size_t named, F function, const Extra&... extra) {
    auto made = telegrad::function_of(name, std::move(function));
    made.owner = number_;
    made.role = role;
    if (const std::string called = name; called == "__init__" || called == "__setstate__") made.result = telegrad::Bound<T>::name();
    if (named && !made.parameters.empty()) made.parameters[0].name = "self";
    enter(std::move(made), named, extra...);
    return *this;
  }
  template <class... A>
  static std::shared_ptr<T> make(A... given) {
    if constexpr (!std::is_void_v<Trampoline>) return std::make_shared<Trampoline>(std::forward<A>(given)...);
    else if constexpr (std::is_constructible_v<T, A...>) return std::make_shared<T>(std::forward<A>(given)...);
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
