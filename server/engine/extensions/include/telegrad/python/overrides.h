// Trampolines: classes whose virtual methods Python may override. C++ in the worker cannot call a method of Python, so
// that a call of one that is overridden there is refused; all others run.
#pragma once

#include <unordered_map>

#include "../classes.h"

namespace telegrad {
// Which methods Python overrides, by the addresses of an instance as each of its classes.
inline std::unordered_map<const void*, std::vector<std::string>>& overrides() {
  static std::unordered_map<const void*, std::vector<std::string>> known;
  return known;
}
inline void each_address(void* pointer, int64_t type, const std::function<void(void*)>& visit) {
  visit(pointer);
  for (const auto& [base, cast] : classes()[static_cast<size_t>(type)].bases) each_address(cast(pointer), base, visit);
}

// An instance of any class of the extension.
struct AnyInstance {
  int64_t number;
};
template <>
struct Codec<AnyInstance> {
  using Held = AnyInstance;
  static AnyInstance take(Reader& reader) {
    if (reader.next() != OBJECT) refuse("an instance of a class of the extension");
    const AnyInstance taken{reader.next()};
    reader.next();
    return taken;
  }
  static std::string name() { return "object"; }
};
inline void note_overrides(AnyInstance one, const std::vector<std::string>& names) {
  const auto found = instances().find(one.number);
  if (found == instances().end()) refuse("an instance that still exists");
  each_address(found->second.pointer.get(), found->second.type, [&](void* at) { overrides()[at] = names; });
}
inline void forget_overrides(const Instance& one) {
  if (overrides().empty()) return;
  each_address(one.pointer.get(), one.type, [](void* at) { overrides().erase(at); });
}
inline bool is_overridden(const void* at, const char* name) {
  const auto found = overrides().find(at);
  return found != overrides().end() && std::find(found->second.begin(), found->second.end(), name) != found->second.end();
}
template <class T>
void refuse_override(const T* at, const char* name) {
  if (!is_overridden(at, name)) return;
  throw c10::NotImplementedError(c10::str(
      classes()[static_cast<size_t>(number_of<T>())].name, ".", name, " is overridden in Python, which C++ in the server's ",
      "worker cannot call: call the method from Python and give C++ what it returns, or override it in C++"));
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
