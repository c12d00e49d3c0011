// What an extension offers to Python: the functions of PYBIND11_MODULE, and the operators of TORCH_LIBRARY.
#pragma once

#include <any>
#include <functional>

#include "autograd.h"
#include "classes.h"
#include "dispatch.h"
#include "checks.h"
#include "composites.h"
#include "indexing.h"
#include "objects.h"
#include "python/overrides.h"
#include "python/unions.h"
#include "shapes.h"

namespace telegrad {

struct Function;
template <class T>
using Plain = std::remove_cv_t<std::remove_reference_t<T>>;

// What is known of a function by its type: how its arguments are read and passed, and what Python calls their types.
template <class F>
struct Traits : Traits<decltype(&F::operator())> {};
template <class R, class... A>
struct Traits<R (*)(A...)> {
  using Result = R;
  using Signature = R(A...);
  using Places = std::index_sequence_for<A...>;
  using Held = HeldArguments<Places, typename Codec<Plain<A>>::Held...>;
  static Function described(std::string name);
  static Held take([[maybe_unused]] Reader& reader) { return Held{{Codec<Plain<A>>::take(reader)}...}; }
  template <class F, size_t... place>
  static R apply(F& function, [[maybe_unused]] Held& held, std::index_sequence<place...>) {
    return function(pass<A>(held_at<place>(held))...);
  }

 private:
  template <class P, class H>
  static decltype(auto) pass(H& held) {
    if constexpr (std::is_same_v<Plain<P>, const char*>)
      return held.c_str();
    else if constexpr (is_bound<Plain<P>>)
      return static_cast<std::conditional_t<std::is_reference_v<P>, P, Plain<P>&>>(*held);
    else if constexpr (std::is_pointer_v<Plain<P>>)
      return Plain<P>(held.get());
    else if constexpr (!std::is_same_v<Plain<P>, H>)
      return Plain<P>(held);
    else if constexpr (std::is_lvalue_reference_v<P>)
      return static_cast<H&>(held);
    else
      return static_cast<H&&>(held);
  }
};
template <class R>
std::string name_of_result() {
  if constexpr (std::is_void_v<R>) return "None";
  else return Codec<Plain<R>>::name();
}
template <class R, class... A>
struct Traits<R (*)(A...) noexcept> : Traits<R (*)(A...)> {};
template <class C, class R, class... A>
struct Traits<R (C::*)(A...) const> : Traits<R (*)(A...)> {};
template <class C, class R, class... A>
struct Traits<R (C::*)(A...)> : Traits<R (*)(A...)> {};

struct Parameter {
  std::string name, type;
  bool has_default = false;
  Words value = {};
};
enum Role : int64_t { FUNCTION, METHOD, STATIC, GETTER, SETTER, OPERATOR, STATIC_GETTER, STATIC_SETTER };
struct Function {
  std::string name, doc, result;
  std::vector<Parameter> parameters;
  void (*run)(void* given, Reader&, Words&, bool refers) = nullptr;
  std::shared_ptr<void> given = {};  // what ``run`` calls
  bool is_exported = false;  // a function of the module, not of an operator alone
  int64_t owner = -1;        // the class that it belongs to
  Role role = FUNCTION;
  int64_t unnamed = 0;    // so many parameters are given by place alone
  int64_t by_place = -1;  // so many may be given by place; -1 stands for all
  bool refers = false;    // a reference that it returns is no copy
};
// A function that is described so far by its name and by the types of its parameters and of its result.
Function described(std::string name, std::initializer_list<std::string> types, std::string result);
void enter(Function&& made);
void enter(const std::string& attribute, Words&& value);
template <class R, class... A>
Function Traits<R (*)(A...)>::described(std::string name) {
  return telegrad::described(std::move(name), {Codec<Plain<A>>::name()...}, name_of_result<R>());
}
struct Operator {
  std::string space, name_or_schema, key;
  int64_t function;  // -1 where a schema is defined and no function given
  bool is_definition;
  std::any typed = {};  // the function as a std::function, for those who call the operator from C++
};
struct Registry {
  std::vector<Function> functions;
  std::vector<Operator> operators;
  std::vector<std::pair<std::string, Words>> attributes;
  std::string doc;
  std::vector<std::pair<std::string, std::string>> modules = {};  // paths and documentation of modules within the module
};
Registry& registry();

// Calls a function of the type F with arguments that are read, and writes what it returns.
template <class F>
void run_function(void* given, Reader& reader, Words& words, [[maybe_unused]] bool refers) {
  using T = Traits<F>;
  auto& function = *static_cast<F*>(given);
  auto held = T::take(reader);
  if constexpr (std::is_void_v<typename T::Result>) {
    T::apply(function, held, typename T::Places());
    words.put(NONE);
  } else {
    put_result<Plain<typename T::Result>>(words, T::apply(function, held, typename T::Places()), held, refers);
  }
}
template <class F>
Function function_of(std::string name, F given) {
  Function function = Traits<F>::described(std::move(name));
  function.run = &run_function<F>;
  function.given = std::make_shared<F>(std::move(given));
  return function;
}

}  // namespace telegrad

namespace pybind11 {
struct none {};
}  // namespace pybind11
namespace telegrad {
template <>
struct Codec<pybind11::none> : Codec<std::nullopt_t> {
  static void put(Words& words, pybind11::none) { words.put(NONE); }
};
}  // namespace telegrad

namespace pybind11 {
struct arg {
  const char* name;
  bool has_default = false;
  telegrad::Words value = {};
  explicit arg(const char* name) : name(name) {}
  template <class T>
  arg operator=(const T& given) const {
    arg made = *this;
    made.has_default = true;
    telegrad::put(made.value, given);
    return made;
  }
  arg& noconvert(bool = true) { return *this; }
  arg& none(bool = true) { return *this; }
};
template <class... Named, class>
dict::dict(const arg& first, const Named&... rest) : dict() {
  for (const arg* given : {&first, &rest...}) put(*given);
}
inline namespace literals {
inline arg operator""_a(const char* name, size_t) { return arg(name); }
}  // namespace literals
struct gil_scoped_release {};
struct gil_scoped_acquire {};
template <class... T>
struct call_guard {};
// What stands between the arguments of def: those behind kw_only are given by name, those before pos_only by place.
struct kw_only {};
struct pos_only {};
struct is_operator {};
template <class... T>
struct keep_alive_ {};
enum class return_value_policy { automatic, copy, move, reference, take_ownership, reference_internal };

struct attribute {
  std::string name;
  template <class T>
  void operator=(const T& value) const {
    telegrad::Words words;
    telegrad::put(words, value);
    telegrad::enter(name, std::move(words));
  }
};

// What follows a function in ``def``: its documentation, names and defaults of arguments, and whose a result is.
void describe(telegrad::Function& function, size_t&, const char* doc);
void describe(telegrad::Function& function, size_t&, const std::string& doc);
void describe(telegrad::Function& function, size_t& named, const arg& given);
void describe(telegrad::Function& function, size_t& named, kw_only);
void describe(telegrad::Function& function, size_t& named, pos_only);
void describe(telegrad::Function& function, size_t&, is_operator);
void describe(telegrad::Function& function, size_t&, return_value_policy policy);
template <class Other>
void describe(telegrad::Function&, size_t&, const Other&) {}
template <class... Extra>
void enter(telegrad::Function made, [[maybe_unused]] size_t named, const Extra&... extra) {
  made.is_exported = true;
  (describe(made, named, extra), ...);
  telegrad::enter(std::move(made));
}

// What has attributes: the module, a module within it, or a class; its path says where it is in the module.
class scope {
 public:
  scope() = default;
  scope(const scope& within, const std::string& name) : path_(within.path(name)) {}
  attribute attr(const char* name) const { return {path(name)}; }
  const std::string& path() const { return path_; }
  std::string path(const std::string& name) const { return path_.empty() ? name : path_ + "." + name; }

 private:
  std::string path_;
};

class module_ : public scope {
 public:
  using scope::scope;
  template <class F, class... Extra>
  module_& def(const char* name, F&& function, const Extra&... extra) {
    enter(telegrad::function_of(path(name), std::forward<F>(function)), 0, extra...);
    return *this;
  }
  module_ def_submodule(const char* name, const char* doc = "");
  std::string& doc();
};
using module = module_;
}  // namespace pybind11

namespace telegrad {
// What is done when the worker loads the library.
struct AtLoad {
  explicit AtLoad(void (*run)());
};
}  // namespace telegrad

#define TELEGRAD_JOIN_(a, b) a##b
#define TELEGRAD_JOIN(a, b) TELEGRAD_JOIN_(a, b)
#define TELEGRAD_AT_LOAD(function, ...) \
  static const ::telegrad::AtLoad TELEGRAD_JOIN(telegrad_at_load_, __COUNTER__)([] { __VA_ARGS__ function(object); })

#define PYBIND11_MODULE(name, variable)                                  \
  static void telegrad_module(::pybind11::module_&);                     \
  TELEGRAD_AT_LOAD(telegrad_module, ::pybind11::module_ object;);        \
  static void telegrad_module([[maybe_unused]] ::pybind11::module_& variable)
