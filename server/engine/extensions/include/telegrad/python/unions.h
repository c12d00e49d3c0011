// Values of one of several types, and what cannot pass between an extension in the worker and Python in the client.
#pragma once

#include <functional>
#include <variant>

#include "../classes.h"

namespace telegrad {

// A value of the first alternative that takes it as it is, else of the first one that converts it, as pybind11 chooses.
template <class... T>
struct Codec<std::variant<T...>> {
  using Held = std::variant<T...>;
  static void put(Words& words, const Held& value) {
    std::visit([&](const auto& held) { Codec<std::decay_t<decltype(held)>>::put(words, held); }, value);
  }
  static Held take(Reader& reader) {
    std::optional<Held> found;
    for (const bool converts : {false, true}) ((found || (found = attempt<T>(reader, converts))), ...);
    if (!found) refuse(name());
    return *std::move(found);
  }
  static std::string name() {
    std::string names;
    ((names += (names.empty() ? "" : ", ") + Codec<T>::name()), ...);
    return "Union[" + names + "]";
  }

 private:
  template <class One>
  static std::optional<Held> attempt(Reader& reader, bool converts) {
    if (!converts && std::is_floating_point_v<One> && reader.peek() != FLOAT) return std::nullopt;
    const Reader begin = reader;
    try {
      return Held(std::in_place_type<One>, take_as<One>(reader));
    } catch (const c10::TypeError&) {
      reader = begin;
      return std::nullopt;
    }
  }
};
template <>
struct Codec<std::monostate> {
  using Held = std::monostate;
  static void put(Words& words, std::monostate) { words.put(NONE); }
  static std::monostate take(Reader& reader) {
    if (reader.next() != NONE) refuse(name());
    return {};
  }
  static std::string name() { return "None"; }
};

template <class>
constexpr bool never = false;
template <class R, class... A>
struct Codec<std::function<R(A...)>> {
  static_assert(never<R>,
                "telegrad: C++ in the server's worker cannot call a function of Python, which runs in the client: return "
                "to Python what the function is to be called with, and take what it returns as an argument of the next call");
};
}  // namespace telegrad

namespace pybind11 {
// What C++ cannot take here; a function of an extension that names it is refused by the compiler, with the reason.
struct function {};
struct bytes {};
struct buffer {};
}  // namespace pybind11

namespace telegrad {
template <class T>
struct Codec<T, std::enable_if_t<std::is_same_v<T, pybind11::function>>> : Codec<std::function<void(T)>> {};
template <class T>
constexpr bool is_buffer = std::is_same_v<T, pybind11::bytes> || std::is_same_v<T, pybind11::buffer>;
template <class T>
struct Codec<T, std::enable_if_t<is_buffer<T>>> {
  static_assert(never<T>, "telegrad: bytes and buffers of Python lie in the client; take a std::string, a py::array_t or a torch::Tensor");
};
}  // namespace telegrad
