// Each C++ type as words: how a value is written, how it is read, and what Python calls the type.
//
// ``Held`` is what keeps a value that was read while a function uses it: lists and texts own their elements then.
#pragma once

#include <map>
#include <set>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "types.h"

namespace telegrad {

// An instance of a class that the module gives Python: classes.h defines it.
template <class T>
struct Bound;

template <class T, class Enable = void>
struct Codec : Bound<T> {};
template <class T>
constexpr bool is_bound = std::is_base_of_v<Bound<T>, Codec<T>>;

// What keeps an element of a tuple or the like; of an instance of a class it is a copy.
template <class T, bool is_instance = is_bound<T>>
struct Element {
  using Held = T;
};
template <class T>
struct Element<T, false> {
  using Held = typename Codec<T>::Held;
};
template <class T>
using HeldElement = typename Element<T>::Held;
template <class T, class As = T>
As take_as(Reader& reader) {
  if constexpr (is_bound<T>) return *Codec<T>::take(reader);
  else return static_cast<As>(Codec<T>::take(reader));
}

[[noreturn]] void refuse(const std::string& wanted);

template <class T>
struct Codec<T, std::enable_if_t<std::is_same_v<T, bool>>> {
  using Held = bool;
  static void put(Words& words, bool value) { words.put(BOOLEAN, value); }
  static bool take(Reader& reader) {
    if (reader.next() != BOOLEAN) refuse("bool");
    return reader.next() != 0;
  }
  static std::string name() { return "bool"; }
};

template <class T>
struct Codec<T, std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool>>> {
  using Held = T;
  static void put(Words& words, T value) { words.put(INTEGER, static_cast<int64_t>(value)); }
  static T take(Reader& reader) {
    const int64_t kind = reader.next();
    if (kind != INTEGER && kind != BOOLEAN) refuse("int");
    const int64_t value = reader.next();
    if (static_cast<int64_t>(static_cast<T>(value)) != value) refuse("an int that fits " + std::to_string(sizeof(T)) + " bytes");
    return static_cast<T>(value);
  }
  static std::string name() { return "int"; }
};

template <class T>
struct Codec<T, std::enable_if_t<std::is_floating_point_v<T>>> {
  using Held = T;
  static void put(Words& words, T value) {
    words.put(FLOAT);
    words.put_double(static_cast<double>(value));
  }
  static T take(Reader& reader) {
    const int64_t kind = reader.next();
    if (kind == INTEGER || kind == BOOLEAN) return static_cast<T>(reader.next());
    if (kind != FLOAT) refuse("float");
    return static_cast<T>(reader.next_double());
  }
  static std::string name() { return "float"; }
};

template <>
struct Codec<std::string> {
  using Held = std::string;
  static void put(Words& words, const std::string& text);
  static std::string take(Reader& reader);
  static std::string name() { return "str"; }
};
template <>
struct Codec<std::string_view> : Codec<std::string> {
  static void put(Words& words, std::string_view text) { words.put_bytes(text.data(), text.size()); }
};
template <>
struct Codec<const char*> : Codec<std::string> {};
template <size_t N>
struct Codec<char[N]> : Codec<std::string> {};

template <class T>
struct Codec<std::complex<T>> {
  using Held = std::complex<T>;
  static void put(Words& words, const std::complex<T>& number) {
    words.put(COMPLEX);
    words.put_double(number.real());
    words.put_double(number.imag());
  }
  static std::complex<T> take(Reader& reader) {
    if (reader.peek() != COMPLEX) return Codec<double>::take(reader);
    reader.next();
    const double real = reader.next_double();
    return {static_cast<T>(real), static_cast<T>(reader.next_double())};
  }
  static std::string name() { return "complex"; }
};

template <>
struct Codec<c10::Scalar> {
  using Held = c10::Scalar;
  static void put(Words& words, const c10::Scalar& number);
  static c10::Scalar take(Reader& reader);
  static std::string name() { return "Number"; }
};

template <>
struct Codec<c10::ScalarType> {
  using Held = c10::ScalarType;
  static void put(Words& words, c10::ScalarType type);
  static c10::ScalarType take(Reader& reader);
  static std::string name() { return "torch.dtype"; }
};

template <>
struct Codec<c10::TypeMeta> : Codec<c10::ScalarType> {};

template <>
struct Codec<c10::Device> {
  using Held = c10::Device;
  static void put(Words& words, const c10::Device& device);
  static c10::Device take(Reader& reader);
  static std::string name() { return "torch.device"; }
};
template <>
struct Codec<c10::DeviceType> : Codec<c10::Device> {};
template <>
struct Codec<c10::SymInt> : Codec<int64_t> {
  using Held = c10::SymInt;
  static void put(Words& words, c10::SymInt value) { words.put(INTEGER, value); }
};
template <>
struct Codec<at::Generator> {
  using Held = at::Generator;
  static void put(Words& words, const at::Generator&) { words.put(NONE); }
  static at::Generator take(Reader& reader) {
    if (reader.next() != NONE) refuse("None: generators of random numbers are the session's, which manual_seed seeds");
    return {};
  }
  static std::string name() { return "torch.Generator"; }
};
template <>
struct Codec<std::nullopt_t> {
  static void put(Words& words, std::nullopt_t) { words.put(NONE); }
};

template <class T>
struct Codec<std::optional<T>> {
  using Held = std::optional<HeldElement<T>>;
  static void put(Words& words, const std::optional<T>& value) {
    if (value)
      Codec<T>::put(words, *value);
    else
      words.put(NONE);
  }
  static Held take(Reader& reader) {
    if (reader.peek() != NONE) return take_as<T, HeldElement<T>>(reader);
    reader.next();
    return std::nullopt;
  }
  static std::string name() { return "Optional[" + Codec<T>::name() + "]"; }
};

template <class T>
struct Codec<std::vector<T>> {
  using Held = std::vector<T>;
  static void put(Words& words, const std::vector<T>& list) {
    words.put(LIST, static_cast<int64_t>(list.size()));
    for (const auto& element : list) Codec<T>::put(words, element);
  }
  static Held take(Reader& reader) {
    const int64_t kind = reader.next();
    if (kind != LIST && kind != TUPLE) refuse(name());
    const int64_t count = reader.next();
    std::vector<T> list;
    list.reserve(static_cast<size_t>(count));
    for (int64_t at = 0; at < count; ++at) list.push_back(take_as<T>(reader));
    return list;
  }
  static std::string name() { return "List[" + Codec<T>::name() + "]"; }
};
template <class T>
struct Codec<c10::ArrayRef<T>> : Codec<std::vector<T>> {
  static void put(Words& words, c10::ArrayRef<T> list) {
    words.put(LIST, static_cast<int64_t>(list.size()));
    for (const auto& element : list) Codec<T>::put(words, element);
  }
};
template <class T>
struct Codec<std::initializer_list<T>> : Codec<c10::ArrayRef<T>> {};

template <class T, size_t N>
struct Codec<std::array<T, N>> {
  using Held = std::array<T, N>;
  static void put(Words& words, const std::array<T, N>& list) { Codec<c10::ArrayRef<T>>::put(words, list); }
  static Held take(Reader& reader) {
    auto list = Codec<std::vector<T>>::take(reader);
    if (list.size() != N) refuse(name() + " of " + std::to_string(N) + " elements");
    Held result{};
    std::move(list.begin(), list.end(), result.begin());
    return result;
  }
  static std::string name() { return Codec<std::vector<T>>::name(); }
};

template <class... T>
struct Codec<std::tuple<T...>> {
  using Held = std::tuple<HeldElement<T>...>;
  static void put(Words& words, const std::tuple<T...>& values) {
    words.put(TUPLE, sizeof...(T));
    std::apply([&](const auto&... value) { (Codec<std::decay_t<decltype(value)>>::put(words, value), ...); }, values);
  }
  static Held take(Reader& reader) {
    const int64_t kind = reader.next();
    if ((kind != LIST && kind != TUPLE) || reader.next() != sizeof...(T)) refuse(name());
    return Held{take_as<T, HeldElement<T>>(reader)...};
  }
  static std::string name() {
    std::string names;
    ((names += (names.empty() ? "" : ", ") + Codec<T>::name()), ...);
    return "Tuple[" + names + "]";
  }
};
template <class A, class B>
struct Codec<std::pair<A, B>> : Codec<std::tuple<A, B>> {
  using Held = std::pair<HeldElement<A>, HeldElement<B>>;
  static void put(Words& words, const std::pair<A, B>& values) { Codec<std::tuple<A, B>>::put(words, values); }
  static Held take(Reader& reader) {
    auto values = Codec<std::tuple<A, B>>::take(reader);
    return {std::move(std::get<0>(values)), std::move(std::get<1>(values))};
  }
};

template <class Map, class K, class V>
struct MapCodec {
  using Held = Map;
  static void put(Words& words, const Map& map) {
    words.put(DICT, static_cast<int64_t>(map.size()));
    for (const auto& [key, value] : map) {
      Codec<K>::put(words, key);
      Codec<V>::put(words, value);
    }
  }
  static Held take(Reader& reader) {
    if (reader.next() != DICT) refuse(name());
    Map map;
    for (int64_t left = reader.next(); left > 0; --left) {
      auto key = take_as<K>(reader);
      map.emplace(std::move(key), take_as<V>(reader));
    }
    return map;
  }
  static std::string name() { return "Dict[" + Codec<K>::name() + ", " + Codec<V>::name() + "]"; }
};
template <class K, class V>
struct Codec<std::map<K, V>> : MapCodec<std::map<K, V>, K, V> {};
template <class K, class V>
struct Codec<std::unordered_map<K, V>> : MapCodec<std::unordered_map<K, V>, K, V> {};

template <class Set, class T>
struct SetCodec {
  using Held = Set;
  static void put(Words& words, const Set& set) {
    words.put(telegrad::SET, static_cast<int64_t>(set.size()));
    for (const auto& element : set) Codec<T>::put(words, element);
  }
  static Held take(Reader& reader) {
    if (reader.next() != telegrad::SET) refuse(name());
    Set set;
    for (int64_t left = reader.next(); left > 0; --left) set.insert(take_as<T>(reader));
    return set;
  }
  static std::string name() { return "Set[" + Codec<T>::name() + "]"; }
};
template <class T>
struct Codec<std::set<T>> : SetCodec<std::set<T>, T> {};
template <class T>
struct Codec<std::unordered_set<T>> : SetCodec<std::unordered_set<T>, T> {};

template <class T>
void put(Words& words, const T& value) { Codec<T>::put(words, value); }

// A keyword argument of an operation: call("sum", x, keyword("dtype", kFloat)).
template <class T>
struct Keyword {
  const char* name;
  const T& value;
};
template <class T>
Keyword<T> keyword(const char* name, const T& value) { return {name, value}; }
template <class T>
struct Codec<Keyword<T>> {
  static void put(Words& words, const Keyword<T>& given) {
    words.put(KEYWORD);
    words.put_bytes(given.name, std::strlen(given.name));
    Codec<T>::put(words, given.value);
  }
};
template <>
struct Codec<c10::TensorOptions> {
  static void put(Words& words, const c10::TensorOptions& options) {
    if (options.has_dtype()) telegrad::put(words, keyword("dtype", *options.dtype_opt()));
    if (options.has_device()) telegrad::put(words, keyword("device", *options.device_opt()));
  }
};

// How many arguments one argument of C++ stands for.
template <class T>
size_t count_of(const T&) { return 1; }
inline size_t count_of(const c10::TensorOptions& options) { return options.has_dtype() + options.has_device(); }

}  // namespace telegrad
