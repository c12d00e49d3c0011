// Values of Python whose types C++ does not say: py::object, and what it can be. They are copies of what Python has.
#pragma once

#include <memory>
#include <variant>

#include "functions.h"

namespace pybind11 {
class object;
}
namespace telegrad {
struct Sequence {
  std::vector<pybind11::object> items;
};
struct Mapping {
  std::vector<std::pair<pybind11::object, pybind11::object>> items;
};
template <class T>
struct Cast;
}  // namespace telegrad

namespace pybind11 {

// Lists, tuples and dicts share their items with the objects that they are copied to, as in Python.
class object {
 public:
  using Value = std::variant<
      std::monostate, bool, int64_t, double, std::complex<double>, std::string, at::Tensor, c10::ScalarType, c10::Device,
      std::shared_ptr<telegrad::Sequence>, std::shared_ptr<telegrad::Mapping>>;
  telegrad::Kind kind = telegrad::NONE;
  Value value;

  object() = default;
  object(telegrad::Kind kind, Value value) : kind(kind), value(std::move(value)) {}
  bool is_none() const { return kind == telegrad::NONE; }
  template <class T>
  T cast() const { return telegrad::Cast<T>::from(*this); }

  telegrad::Sequence& sequence() const { return *std::get<std::shared_ptr<telegrad::Sequence>>(value); }
  telegrad::Mapping& mapping() const { return *std::get<std::shared_ptr<telegrad::Mapping>>(value); }
};
using handle = object;
struct arg;

template <class T>
object cast(const T& given);

// What an index of a list or a dict gives: it is read as an object, and written to.
class accessor {
 public:
  explicit accessor(object* at) : at_(at) {}
  operator object() const { return *at_; }
  template <class T>
  T cast() const { return at_->cast<T>(); }
  template <class T>
  const accessor& operator=(const T& given) const {
    *at_ = pybind11::cast(given);
    return *this;
  }
  const accessor& operator=(const accessor& other) const {
    *at_ = *other.at_;
    return *this;
  }

 private:
  object* at_;
};

class sequence : public object {
 public:
  using object::object;
  size_t size() const { return items().size(); }
  bool empty() const { return items().empty(); }
  accessor operator[](size_t place) const {
    TORCH_CHECK_INDEX(place < size(), "list index out of range");
    return accessor(&items()[place]);
  }
  auto begin() const { return items().begin(); }
  auto end() const { return items().end(); }
  std::vector<object>& items() const { return object::sequence().items; }
};
class list : public sequence {
 public:
  explicit list(size_t count = 0) : sequence(telegrad::LIST, std::make_shared<telegrad::Sequence>()) { items().resize(count); }
  explicit list(const object& other) : list() { items() = other.sequence().items; }
  template <class T>
  void append(const T& given) const { items().push_back(pybind11::cast(given)); }
};
class set : public sequence {
 public:
  set() : sequence(telegrad::SET, std::make_shared<telegrad::Sequence>()) {}
  explicit set(const object& other) : set() { items() = other.sequence().items; }
  template <class T>
  void add(const T& given) const { items().push_back(pybind11::cast(given)); }
};
class tuple : public sequence {
 public:
  explicit tuple(size_t count = 0) : sequence(telegrad::TUPLE, std::make_shared<telegrad::Sequence>()) { items().resize(count); }
  explicit tuple(const object& other) : tuple() { items() = other.sequence().items; }
};
// All arguments that no other parameter takes: those given by place, and those given by name.
class args : public tuple {
 public:
  args() = default;
};

template <class... T>
tuple make_tuple(const T&... given) {
  tuple made;
  (made.items().push_back(pybind11::cast(given)), ...);
  return made;
}

class dict : public object {
 public:
  dict() : object(telegrad::DICT, std::make_shared<telegrad::Mapping>()) {}
  explicit dict(const object& other) : dict() { mapping().items = other.mapping().items; }
  template <class... Named, class = std::enable_if_t<(std::is_same_v<Named, arg> && ...)>>
  explicit dict(const arg& first, const Named&... rest);
  size_t size() const { return mapping().items.size(); }
  bool empty() const { return mapping().items.empty(); }
  template <class K>
  bool contains(const K& key) const { return find(pybind11::cast(key)) != nullptr; }
  template <class K>
  accessor operator[](const K& key) const {
    const object wanted = pybind11::cast(key);
    if (object* at = find(wanted)) return accessor(at);
    mapping().items.emplace_back(wanted, object());
    return accessor(&mapping().items.back().second);
  }
  auto begin() const { return mapping().items.begin(); }
  auto end() const { return mapping().items.end(); }

 private:
  object* find(const object& key) const {
    for (auto& item : mapping().items)
      if (item.first.kind == key.kind && is_same(item.first, key)) return &item.second;
    return nullptr;
  }
  static bool is_same(const object& a, const object& b) {
    if (a.kind == telegrad::STRING) return std::get<std::string>(a.value) == std::get<std::string>(b.value);
    return a.kind == telegrad::INTEGER && std::get<int64_t>(a.value) == std::get<int64_t>(b.value);
  }
};

class kwargs : public dict {};

#define TELEGRAD_OBJECT(name, type, number)                                            \
  class name : public object {                                                         \
   public:                                                                             \
    name(const type& given = {}) : object(telegrad::number, given) {}                  \
    explicit name(const object& other) : object(telegrad::number, other.cast<type>()) {} \
    operator type() const { return object::cast<type>(); }                             \
  };
TELEGRAD_OBJECT(int_, int64_t, INTEGER) TELEGRAD_OBJECT(float_, double, FLOAT) TELEGRAD_OBJECT(bool_, bool, BOOLEAN)
TELEGRAD_OBJECT(str, std::string, STRING)
#undef TELEGRAD_OBJECT
}  // namespace pybind11

namespace telegrad {

template <>
struct Codec<pybind11::object> {
  using Held = pybind11::object;
  static void put(Words& words, const pybind11::object& given) {
    switch (given.kind) {
      case LIST: case TUPLE: case SET:
        words.put(given.kind, static_cast<int64_t>(given.sequence().items.size()));
        for (const auto& item : given.sequence().items) put(words, item);
        return;
      case DICT:
        words.put(DICT, static_cast<int64_t>(given.mapping().items.size()));
        for (const auto& [key, item] : given.mapping().items) {
          put(words, key);
          put(words, item);
        }
        return;
      default: std::visit([&](const auto& value) { put_value(words, value); }, given.value);
    }
  }
  static pybind11::object take(Reader& reader) {
    const auto kind = static_cast<Kind>(reader.peek());
    switch (kind) {
      case BOOLEAN: return {kind, Codec<bool>::take(reader)};
      case INTEGER: return {kind, Codec<int64_t>::take(reader)};
      case FLOAT: return {kind, Codec<double>::take(reader)};
      case COMPLEX: return {kind, Codec<std::complex<double>>::take(reader)};
      case STRING: return {kind, Codec<std::string>::take(reader)};
      case TENSOR: return {kind, Codec<at::Tensor>::take(reader)};
      case DTYPE: return {kind, Codec<c10::ScalarType>::take(reader)};
      case DEVICE: return {kind, Codec<c10::Device>::take(reader)};
      case LIST: case TUPLE: case SET: {
        reader.next();
        auto made = std::make_shared<Sequence>();
        for (int64_t left = reader.next(); left > 0; --left) made->items.push_back(take(reader));
        return {kind, std::move(made)};
      }
      case DICT: {
        reader.next();
        auto made = std::make_shared<Mapping>();
        for (int64_t left = reader.next(); left > 0; --left) {
          auto key = take(reader);
          made->items.emplace_back(std::move(key), take(reader));
        }
        return {kind, std::move(made)};
      }
      case NONE: reader.next(); return {};
      case OBJECT: case ENUMERATOR:
        refuse("a parameter that names the class of its argument: instances and enumerations are no py::object here");
      default: refuse("a value that C++ knows");
    }
  }
  static std::string name() { return "object"; }

 private:
  template <class T>
  static void put_value(Words& words, const T& value) {
    if constexpr (std::is_same_v<T, std::monostate>) words.put(NONE);
    else if constexpr (is_shared<T>::value) words.put(NONE);
    else Codec<T>::put(words, value);
  }
  template <class T>
  struct is_shared : std::false_type {};
  template <class T>
  struct is_shared<std::shared_ptr<T>> : std::true_type {};
};

// The kinds of objects: what they take, and what Python calls them.
template <class T>
struct ObjectKind;
template <class T>
struct Cast {
  static T from(const pybind11::object& given) {
    if constexpr (std::is_same_v<T, pybind11::object>) {
      return given;
    } else if constexpr (std::is_same_v<T, at::Tensor>) {
      if (given.kind != TENSOR) refuse("torch.Tensor");
      return std::get<at::Tensor>(given.value);
    } else if constexpr (std::is_base_of_v<pybind11::object, T>) {
      if (!ObjectKind<T>::is(given)) refuse(Codec<T>::name());
      T made;
      static_cast<pybind11::object&>(made) = given;
      return made;
    } else {
      Words words;
      Codec<pybind11::object>::put(words, given);
      Reader reader(words.words.data());
      return static_cast<T>(Codec<T>::take(reader));
    }
  }
};

#define TELEGRAD_OBJECT(type, text, ...)                                                                       \
  template <>                                                                                                  \
  struct ObjectKind<pybind11::type> {                                                                          \
    static bool is(const pybind11::object& given) {                                                            \
      for (const Kind kind : {__VA_ARGS__})                                                                    \
        if (given.kind == kind) return true;                                                                   \
      return false;                                                                                            \
    }                                                                                                          \
  };                                                                                                           \
  template <>                                                                                                  \
  struct Codec<pybind11::type> : Codec<pybind11::object> {                                                     \
    using Held = pybind11::type;                                                                               \
    static Held take(Reader& reader) { return Cast<pybind11::type>::from(Codec<pybind11::object>::take(reader)); } \
    static std::string name() { return text; }                                                                 \
  };
TELEGRAD_OBJECT(list, "list", LIST) TELEGRAD_OBJECT(tuple, "tuple", TUPLE) TELEGRAD_OBJECT(dict, "dict", DICT)
TELEGRAD_OBJECT(set, "set", SET) TELEGRAD_OBJECT(sequence, "list", LIST, TUPLE) TELEGRAD_OBJECT(int_, "int", INTEGER, BOOLEAN)
TELEGRAD_OBJECT(float_, "float", FLOAT, INTEGER) TELEGRAD_OBJECT(bool_, "bool", BOOLEAN)
TELEGRAD_OBJECT(str, "str", STRING) TELEGRAD_OBJECT(args, "*args", TUPLE) TELEGRAD_OBJECT(kwargs, "**kwargs", DICT)
#undef TELEGRAD_OBJECT

template <class T>
struct Cast<std::optional<T>> {
  static std::optional<T> from(const pybind11::object& given) {
    if (given.is_none()) return std::nullopt;
    return Cast<T>::from(given);
  }
};
template <class T>
struct Cast<std::vector<T>> {
  static std::vector<T> from(const pybind11::object& given) {
    if (given.kind != LIST && given.kind != TUPLE) refuse(Codec<std::vector<T>>::name());
    std::vector<T> made;
    for (const auto& item : given.sequence().items) made.push_back(Cast<T>::from(item));
    return made;
  }
};
}  // namespace telegrad

namespace pybind11 {
template <class T>
object cast(const T& given) {
  if constexpr (std::is_base_of_v<object, T>) {
    return given;
  } else if constexpr (std::is_same_v<T, accessor>) {
    return static_cast<object>(given);
  } else if constexpr (std::is_same_v<T, at::Tensor>) {
    return {telegrad::TENSOR, given};
  } else if constexpr (std::is_same_v<T, std::vector<at::Tensor>>) {
    list made;
    for (const auto& tensor : given) made.append(tensor);
    return made;
  } else {
    telegrad::Words words;
    telegrad::put(words, given);
    telegrad::Reader reader(words.words.data());
    return telegrad::Codec<object>::take(reader);
  }
}
template <class T>
bool isinstance(const object& given) {
  if constexpr (std::is_same_v<T, at::Tensor>) return given.kind == telegrad::TENSOR;
  else return telegrad::ObjectKind<T>::is(given);
}
inline size_t len(const object& given) {
  return given.kind == telegrad::DICT ? given.mapping().items.size() : given.sequence().items.size();
}

// Exceptions that Python sees as its own.
#define TELEGRAD_EXCEPTION(name, type)                                      \
  struct name : c10::type {                                                 \
    explicit name(const std::string& message = "") : c10::type(message) {}  \
  };
TELEGRAD_EXCEPTION(value_error, ValueError) TELEGRAD_EXCEPTION(index_error, IndexError)
TELEGRAD_EXCEPTION(type_error, TypeError) TELEGRAD_EXCEPTION(cast_error, Error) TELEGRAD_EXCEPTION(key_error, Error)
TELEGRAD_EXCEPTION(attribute_error, Error) TELEGRAD_EXCEPTION(buffer_error, Error) TELEGRAD_EXCEPTION(import_error, Error)
#undef TELEGRAD_EXCEPTION
}  // namespace pybind11
