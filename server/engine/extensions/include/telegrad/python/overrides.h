// Trampolines: classes whose virtual methods Python may override. C++ in the worker cannot call a method of Python, so
// that a call of one that is overridden there is refused; all others run.
#pragma once

#include <unordered_map>

#include "../classes.h"

namespace telegrad {
// Which methods Python overrides, by the addresses of an instance as each of its classes.
std::unordered_map<const void*, std::vector<std::string>>& overrides();

// An instance of any class of the extension.
struct AnyInstance {
  int64_t number;
};
template <>
struct Codec<AnyInstance> {
  using Held = AnyInstance;
  static AnyInstance take(Reader& reader);
  static std::string name() { return "object"; }
};
void note_overrides(AnyInstance one, const std::vector<std::string>& names);
bool is_overridden(const void* at, const char* name);
[[noreturn]] void refuse_override(const std::string& type, const char* name);
template <class T>
void refuse_override(const T* at, const char* name) {
  if (!is_overridden(at, name)) return;
  refuse_override(classes()[static_cast<size_t>(number_of<T>())].name, name);
}
}  // namespace telegrad

#define PYBIND11_OVERRIDE_NAME(result, name, text, function, ...)                  \
  do {                                                                             \
    ::telegrad::refuse_override(static_cast<const name*>(this), text);             \
    return name::function(__VA_ARGS__);                                            \
  } while (false)
#define PYBIND11_OVERRIDE_PURE_NAME(result, name, text, function, ...)             \
  do {                                                                             \
    ::telegrad::refuse_override(static_cast<const name*>(this), text);             \
    throw ::c10::Error("Tried to call pure virtual function \"" #name "::" text "\""); \
  } while (false)
#define PYBIND11_OVERRIDE(result, name, function, ...) PYBIND11_OVERRIDE_NAME(, name, #function, function, __VA_ARGS__)
#define PYBIND11_OVERRIDE_PURE(result, name, function, ...) PYBIND11_OVERRIDE_PURE_NAME(, name, #function, function, __VA_ARGS__)
#define PYBIND11_OVERLOAD PYBIND11_OVERRIDE
#define PYBIND11_OVERLOAD_PURE PYBIND11_OVERRIDE_PURE
#define PYBIND11_OVERLOAD_NAME PYBIND11_OVERRIDE_NAME
#define PYBIND11_OVERLOAD_PURE_NAME PYBIND11_OVERRIDE_PURE_NAME
#define PYBIND11_TYPE(...) __VA_ARGS__
