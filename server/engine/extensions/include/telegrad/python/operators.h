// Operators of classes by py::self: py::self + py::self, py::self * double(), -py::self.
#pragma once

#include "../class_binding.h"

namespace pybind11 {
struct self_t {};
inline constexpr self_t self{};

namespace detail {
template <class T, class Other>
using operand = std::conditional_t<std::is_same_v<Other, self_t>, T, Other>;

// An operator of a class: ``of<T>()`` is the function of a T, under the name that Python has for it.
template <class Made>
struct operator_ {
  const char* name;
  Made of;
};
template <class Made>
operator_<Made> operator_of(const char* name, Made made) { return {name, made}; }
template <class T>
struct type_of {
  using type = T;
};
}  // namespace detail

#define TELEGRAD_BINARY(op, name, reflected)                                                                   \
  template <class R>                                                                                           \
  auto operator op(const self_t&, const R&) {                                                                  \
    return detail::operator_of(name, [](auto tag) {                                                            \
      using T = typename decltype(tag)::type;                                                                  \
      return [](const T& a, const detail::operand<T, R>& b) { return a op b; };                                \
    });                                                                                                        \
  }                                                                                                            \
  template <class L, std::enable_if_t<!std::is_same_v<L, self_t>, int> = 0>                                    \
  auto operator op(const L&, const self_t&) {                                                                  \
    return detail::operator_of(reflected, [](auto tag) {                                                       \
      using T = typename decltype(tag)::type;                                                                  \
      return [](const T& b, const L& a) { return a op b; };                                                    \
    });                                                                                                        \
  }
TELEGRAD_BINARY(+, "__add__", "__radd__") TELEGRAD_BINARY(-, "__sub__", "__rsub__") TELEGRAD_BINARY(*, "__mul__", "__rmul__")
TELEGRAD_BINARY(/, "__truediv__", "__rtruediv__") TELEGRAD_BINARY(%, "__mod__", "__rmod__")
TELEGRAD_BINARY(<<, "__lshift__", "__rlshift__") TELEGRAD_BINARY(>>, "__rshift__", "__rrshift__")
TELEGRAD_BINARY(&, "__and__", "__rand__") TELEGRAD_BINARY(|, "__or__", "__ror__") TELEGRAD_BINARY(^, "__xor__", "__rxor__")
TELEGRAD_BINARY(==, "__eq__", "__eq__") TELEGRAD_BINARY(!=, "__ne__", "__ne__") TELEGRAD_BINARY(<, "__lt__", "__gt__")
TELEGRAD_BINARY(>, "__gt__", "__lt__") TELEGRAD_BINARY(<=, "__le__", "__ge__") TELEGRAD_BINARY(>=, "__ge__", "__le__")
#undef TELEGRAD_BINARY
#define TELEGRAD_IN_PLACE_OPERATOR(op, name)                                                                   \
  template <class R>                                                                                           \
  auto operator op(const self_t&, const R&) {                                                                  \
    return detail::operator_of(name, [](auto tag) {                                                            \
      using T = typename decltype(tag)::type;                                                                  \
      return [](T& a, const detail::operand<T, R>& b) -> T& { return a op b; };                                \
    });                                                                                                        \
  }
TELEGRAD_IN_PLACE_OPERATOR(+=, "__iadd__") TELEGRAD_IN_PLACE_OPERATOR(-=, "__isub__") TELEGRAD_IN_PLACE_OPERATOR(*=, "__imul__")
TELEGRAD_IN_PLACE_OPERATOR(/=, "__itruediv__") TELEGRAD_IN_PLACE_OPERATOR(%=, "__imod__") TELEGRAD_IN_PLACE_OPERATOR(&=, "__iand__")
TELEGRAD_IN_PLACE_OPERATOR(|=, "__ior__") TELEGRAD_IN_PLACE_OPERATOR(^=, "__ixor__")
#undef TELEGRAD_IN_PLACE_OPERATOR
#define TELEGRAD_UNARY(op, name)                                                                               \
  inline auto operator op(const self_t&) {                                                                     \
    return detail::operator_of(name, [](auto tag) {                                                            \
      using T = typename decltype(tag)::type;                                                                  \
      return [](const T& a) { return op a; };                                                                  \
    });                                                                                                        \
  }
TELEGRAD_UNARY(-, "__neg__") TELEGRAD_UNARY(+, "__pos__") TELEGRAD_UNARY(~, "__invert__")
#undef TELEGRAD_UNARY
}  // namespace pybind11
