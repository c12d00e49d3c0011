// Operators: what TORCH_LIBRARY defines, and how C++ calls operators by their names.
#pragma once

#include "binding.h"

namespace torch {
template <class F>
F* wrap_pybind_function(F* function) { return function; }
template <class F>
F* wrap_pybind_function_no_gil(F* function) { return function; }
enum class DispatchKey { CompositeExplicitAutograd, CompositeImplicitAutograd, Autograd, CPU, CUDA, Meta };
inline std::string telegrad_key(DispatchKey key) {
  static const char* names[] = {"CompositeExplicitAutograd", "CompositeImplicitAutograd", "Autograd", "CPU", "CUDA", "Meta"};
  return names[static_cast<int>(key)];
}
template <class F>
struct CppFunction {
  F function;
  std::string key;
};
template <class F>
CppFunction<std::decay_t<F>> dispatch(DispatchKey key, F&& function) { return {function, telegrad_key(key)}; }
template <class F>
CppFunction<std::decay_t<F>> dispatch(c10::DeviceType type, F&& function) {
  return {function, type == c10::kCUDA ? "CUDA" : "CPU"};
}

class Library {
 public:
  Library(std::string space, std::string key) : space_(std::move(space)), key_(std::move(key)) {}
  template <class... Tags>
  Library& def(const char* schema, const std::vector<Tags>&... ) {
    return note(schema, "", -1, true, {});
  }
  template <class F>
  Library& def(const char* schema, F&& function) {
    return add(schema, "CompositeImplicitAutograd", function, true);
  }
  template <class F>
  Library& def(const char* schema, const CppFunction<F>& given) {
    return add(schema, given.key, given.function, true);
  }
  template <class F>
  Library& impl(const char* name, F&& function) { return add(name, key_, function, false); }
  template <class F>
  Library& impl(const char* name, const CppFunction<F>& given) {
    return add(name, given.key, given.function, false);
  }
  template <class F>
  Library& impl(const char* name, DispatchKey key, F&& function) {
    return add(name, telegrad_key(key), function, false);
  }

 private:
  template <class F>
  Library& add(const char* name_or_schema, const std::string& key, const F& function, bool is_definition) {
    std::string name = name_or_schema;
    name = name.substr(0, name.find('('));
    if (name.find("::") == std::string::npos) name = space_ + "::" + name;
    auto& functions = telegrad::registry().functions;
    functions.push_back(telegrad::function_of(name, function));
    using Signature = typename telegrad::Traits<std::decay_t<F>>::Signature;
    return note(name_or_schema, key, static_cast<int64_t>(functions.size()) - 1, is_definition, std::function<Signature>(function));
  }
  Library& note(const char* name_or_schema, const std::string& key, int64_t function, bool is_definition, std::any typed) {
    telegrad::registry().operators.push_back({space_, name_or_schema, key, function, is_definition, std::move(typed)});
    return *this;
  }
  std::string space_, key_;
};

// Operators that a static object registers, under names with their namespace.
class RegisterOperators {
 public:
  RegisterOperators() = default;
  template <class F>
  explicit RegisterOperators(const std::string& name_or_schema, F&& function) { op(name_or_schema, std::forward<F>(function)); }
  template <class F>
  RegisterOperators& op(const std::string& name_or_schema, F&& function) {
    const size_t colons = name_or_schema.find("::");
    TORCH_CHECK(colons != std::string::npos, "RegisterOperators: ", name_or_schema, " has no namespace");
    Library(name_or_schema.substr(0, colons), "").def(name_or_schema.substr(colons + 2).c_str(), std::forward<F>(function));
    return *this;
  }
};
}  // namespace torch

namespace c10 {
using torch::DispatchKey;
using torch::RegisterOperators;

class OperatorHandle;
template <class F>
class TypedOperatorHandle;
// An operator with the type of its function: one of aten is an operation of the worker's, another one is a function
// that this extension has registered, by the device of the arguments and by whether autograd is passed already.
template <class R, class... A>
class TypedOperatorHandle<R(A...)> {
 public:
  explicit TypedOperatorHandle(std::string name) : name_(std::move(name)) {}
  R call(A... given) const {
    if (name_.rfind("aten::", 0) == 0) return of_worker(given...);
    const bool is_cuda = (false || ... || on_gpu(given));
    const char* keys[] = {"Autograd", is_cuda ? "AutogradCUDA" : "AutogradCPU", is_cuda ? "CUDA" : "CPU",
                          "CompositeExplicitAutograd", "CompositeImplicitAutograd", ""};
    for (size_t place = telegrad::below_autograd > 0 ? 2 : 0; place < std::size(keys); ++place)
      for (const auto& known : telegrad::registry().operators)
        if (known.function >= 0 && known.key == keys[place] && telegrad::registry().functions[static_cast<size_t>(known.function)].name == name_)
          return of_extension(known, given...);
    throw NotImplementedError(str("the operator ", name_, " has no function for these arguments in this extension"));
  }
  R operator()(A... given) const { return call(std::forward<A>(given)...); }

 private:
  R of_worker(A&... given) const {
    if constexpr (std::is_void_v<R> || std::is_reference_v<R>) {
      at::run(name_.c_str(), given...);
      if constexpr (std::is_reference_v<R>) return std::get<0>(std::tie(given...));
    } else {
      return at::call<R>(name_.c_str(), given...);
    }
  }
  R of_extension(const telegrad::Operator& known, A&... given) const {
    const auto* function = std::any_cast<std::function<R(A...)>>(&known.typed);
    TORCH_CHECK(function != nullptr, "the operator ", name_, " is called with other types than its function was registered with");
    return (*function)(std::forward<A>(given)...);
  }
  template <class T>
  static bool on_gpu(const T& given) {
    if constexpr (std::is_convertible_v<const T&, at::Tensor>) return at::Tensor(given).defined() && at::Tensor(given).is_cuda();
    else return false;
  }
  std::string name_;
};
class OperatorHandle {
 public:
  explicit OperatorHandle(std::string name) : name_(std::move(name)) {}
  template <class F>
  TypedOperatorHandle<F> typed() const { return TypedOperatorHandle<F>(name_); }

 private:
  std::string name_;
};
class Dispatcher {
 public:
  static Dispatcher& singleton() {
    static Dispatcher one;
    return one;
  }
  OperatorHandle findSchemaOrThrow(const std::string& name, const std::string& overload) const {
    return OperatorHandle(overload.empty() ? name : name + "." + overload);
  }
};
}  // namespace c10
namespace torch {
using c10::Dispatcher;
}  // namespace torch

#define TELEGRAD_LIBRARY(space, key, m, number)                                                   \
  static void TELEGRAD_JOIN(telegrad_library_, number)(::torch::Library&);                        \
  TELEGRAD_AT_LOAD(TELEGRAD_JOIN(telegrad_library_, number), ::torch::Library object(#space, key);); \
  static void TELEGRAD_JOIN(telegrad_library_, number)([[maybe_unused]] ::torch::Library& m)
#define TORCH_LIBRARY(space, m) TELEGRAD_LIBRARY(space, "", m, __COUNTER__)
#define TORCH_LIBRARY_FRAGMENT(space, m) TELEGRAD_LIBRARY(space, "", m, __COUNTER__)
#define TORCH_LIBRARY_IMPL(space, key, m) TELEGRAD_LIBRARY(space, #key, m, __COUNTER__)
#define TORCH_FN(function) (&function)
#define TORCH_SELECTIVE_NAME(name) name
#define TORCH_SELECTIVE_SCHEMA(schema) schema
