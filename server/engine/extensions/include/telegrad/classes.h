// Classes of C++ whose instances Python holds: where instances are kept, and how they pass as arguments and results.
#pragma once

#include <algorithm>
#include <memory>
#include <typeinfo>
#include <unordered_map>

#include "codec.h"

namespace telegrad {

// A class that functions name; it has a name of Python's once py::class_ has given it one.
struct Class {
  const std::type_info* type;
  std::string name = {}, doc = {};
  std::vector<std::pair<int64_t, void* (*)(void*)>> bases = {};
  // Of an enumeration: names, values and documentation, and whether its values are compared as numbers are.
  bool is_enumeration = false;
  int64_t arithmetic = 0;
  std::vector<std::tuple<std::string, int64_t, std::string>> enumerators = {};
  bool has_overrides = false;  // a trampoline of it asks for methods that Python overrides
};
std::vector<Class>& classes();
template <class T>
int64_t number_of() {
  static const int64_t number = [] {
    classes().push_back({&typeid(T)});
    return static_cast<int64_t>(classes().size()) - 1;
  }();
  return number;
}

// What Python holds has a number; the worker drops it when Python does.
struct Instance {
  std::shared_ptr<void> pointer;
  int64_t type;
};
std::unordered_map<int64_t, Instance>& instances();

void forget_overrides(const Instance& one);

inline int64_t last_instance = 0;
// The numbers of instances by address, where what is returned by reference may be held already.
std::unordered_multimap<const void*, int64_t>& addresses();

template <class T>
void put_instance(Words& words, std::shared_ptr<T> pointer) {
  if (pointer == nullptr) return words.put(NONE);
  using Known = std::remove_const_t<T>;
  const int64_t type = number_of<Known>();
  if (classes()[static_cast<size_t>(type)].name.empty())
    throw c10::TypeError(std::string("unregistered type: py::class_ was not called for ") + typeid(T).name());
  addresses().emplace(pointer.get(), ++last_instance);
  instances().emplace(last_instance, Instance{std::const_pointer_cast<Known>(std::move(pointer)), type});
  words.put(OBJECT, last_instance);
  words.put(type);
}

// What Python holds of an instance at this address already; null where it holds nothing.
template <class T>
std::shared_ptr<T> instance_at(T* address) {
  const auto [first, last] = addresses().equal_range(address);
  for (auto at = first; at != last; ++at) {
    const auto& [pointer, type] = instances().at(at->second);
    if (type == number_of<T>()) return std::static_pointer_cast<T>(pointer);
  }
  return nullptr;
}
void drop_instance(int64_t number);

// The address of an instance as one of its class or of a class that it is derived from; null where it is neither.
void* as_class(void* pointer, int64_t type, int64_t wanted);

template <class T>
std::shared_ptr<T> take_instance(Reader& reader) {
  if (reader.next() != OBJECT) refuse("an instance of a class of the extension");
  const auto found = instances().find(reader.next());
  reader.next();
  if (found == instances().end()) refuse("an instance that still exists");
  const auto& [pointer, type] = found->second;
  void* address = as_class(pointer.get(), type, number_of<std::remove_const_t<T>>());
  if (address == nullptr) refuse("an instance of " + classes()[static_cast<size_t>(number_of<std::remove_const_t<T>>())].name);
  return std::shared_ptr<T>(pointer, static_cast<T*>(address));
}

template <class T>
struct Bound {
  static_assert(std::is_class_v<T>,
                "telegrad: a function of an extension cannot take or return this type; it can be torch::Tensor, "
                "numbers, bool, std::string, torch::Scalar, ScalarType, Device, and optional, variant, vector, tuple, "
                "pair, array, set or map of these, or a class or an enumeration that py::class_ or py::enum_ names");
  using Held = std::shared_ptr<T>;
  static void put(Words& words, const T& value) { put_instance(words, std::make_shared<T>(value)); }
  static Held take(Reader& reader) { return take_instance<T>(reader); }
  static std::string name() { return "class " + std::to_string(number_of<std::remove_const_t<T>>()); }
};

// Pointers to instances; None is the null pointer.
template <class T>
struct Codec<std::shared_ptr<T>> {
  using Held = std::shared_ptr<T>;
  static void put(Words& words, const std::shared_ptr<T>& pointer) { put_instance(words, pointer); }
  static Held take(Reader& reader) {
    if (reader.peek() != NONE) return take_instance<T>(reader);
    reader.next();
    return nullptr;
  }
  static std::string name() { return "Optional[" + Bound<T>::name() + "]"; }
};
template <class T>
struct Codec<T*, std::enable_if_t<std::is_class_v<T>>> : Codec<std::shared_ptr<T>> {
  static void put(Words& words, T* pointer) { put_instance(words, std::shared_ptr<T>(pointer)); }
};
template <class T>
struct Codec<std::unique_ptr<T>> : Codec<std::shared_ptr<T>> {};

template <class T>
struct is_unique : std::false_type {};
template <class T>
struct is_unique<std::unique_ptr<T>> : std::true_type {};
template <class T>
std::shared_ptr<void> owner_of(const std::shared_ptr<T>& held) { return std::const_pointer_cast<std::remove_const_t<T>>(held); }
template <class T>
std::shared_ptr<void> owner_of(const T&) { return nullptr; }

// What keeps the arguments of a function while it runs: like a tuple, which takes the compiler longer.
template <size_t place, class T>
struct HeldAt {
  T value;
};
template <class Places, class... T>
struct HeldArguments;
template <size_t... place, class... T>
struct HeldArguments<std::index_sequence<place...>, T...> : HeldAt<place, T>... {
  static constexpr size_t count = sizeof...(T);
};
template <size_t place, class T>
T& held_at(HeldAt<place, T>& held) { return held.value; }
template <size_t place, class T>
const T& held_at(const HeldAt<place, T>& held) { return held.value; }

// Writes what a function has returned. A reference to what Python does not hold becomes a copy, as in pybind11, unless
// the function ``refers`` to what its first argument owns; a bare pointer is Python's from then on.
template <class R, class Result, class Held>
void put_result(Words& words, Result&& result, [[maybe_unused]] const Held& held, [[maybe_unused]] bool refers) {
  if constexpr (is_bound<R>) {
    if constexpr (std::is_lvalue_reference_v<Result>) {
      auto* pointer = const_cast<R*>(&result);
      if (auto known = instance_at(pointer)) return put_instance(words, std::move(known));
      if constexpr (Held::count > 0) {
        if (refers) return put_instance(words, std::shared_ptr<R>(owner_of(held_at<0>(held)), pointer));
      }
      if constexpr (std::is_copy_constructible_v<R>) put_instance(words, std::make_shared<R>(result));
      else throw c10::TypeError("a reference to a class that cannot be copied needs return_value_policy::reference_internal");
    } else {
      put_instance(words, std::make_shared<R>(std::move(result)));
    }
  } else if constexpr (std::is_pointer_v<R> && std::is_class_v<std::remove_pointer_t<R>>) {
    using Pointed = std::remove_const_t<std::remove_pointer_t<R>>;
    auto* pointer = const_cast<Pointed*>(result);
    if (auto known = instance_at(pointer)) return put_instance(words, std::move(known));
    if constexpr (Held::count > 0)
      if (refers) return put_instance(words, std::shared_ptr<Pointed>(owner_of(held_at<0>(held)), pointer));
    put_instance(words, std::shared_ptr<Pointed>(pointer));
  } else if constexpr (is_unique<R>::value) {
    put_instance(words, std::shared_ptr<typename R::element_type>(std::move(result)));
  } else {
    put<R>(words, result);
  }
}
}  // namespace telegrad
