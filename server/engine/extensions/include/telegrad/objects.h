// Values of Python whose types C++ does not say: py::object, and what it can be. They are copies of what Python has.
#pragma once

#include <memory>

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

// Lists, tuples and dicts share their items with the objects that they are copied to, as in Python. A number, a type or
// a device is its words; a text, a list, a dict or a tensor is held elsewhere.
class object {
 public:
  telegrad::Kind kind = telegrad::NONE;
  int64_t word = 0, second = 0;
  std::shared_ptr<void> held;

  object() = default;
  object(telegrad::Kind kind, int64_t word, int64_t second = 0) : kind(kind), word(word), second(second) {}
  object(telegrad::Kind kind, std::shared_ptr<void> held) : kind(kind), held(std::move(held)) {}
  explicit object(const at::Tensor& tensor);
  explicit object(std::string text);
  bool is_none() const { return kind == telegrad::NONE; }
  template <class T>
  T cast() const { return telegrad::Cast<T>::from(*this); }

  const std::string& text() const { return *static_cast<std::string*>(held.get()); }
  const at::Tensor& tensor() const { return *static_cast<at::Tensor*>(held.get()); }
  telegrad::Sequence& sequence() const { return *static_cast<telegrad::Sequence*>(held.get()); }
  telegrad::Mapping& mapping() const { return *static_cast<telegrad::Mapping*>(held.get()); }
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
  void push(object item) const;
};
class list : public sequence {
 public:
  explicit list(size_t count = 0);
  explicit list(const object& other);
  template <class T>
  void append(const T& given) const { push(pybind11::cast(given)); }
};
class set : public sequence {
 public:
  set();
  explicit set(const object& other);
  template <class T>
  void add(const T& given) const { push(pybind11::cast(given)); }
};
class tuple : public sequence {
 public:
  explicit tuple(size_t count = 0);
  explicit tuple(const object& other);
};
// All arguments that no other parameter takes: those given by place, and those given by name.
class args : public tuple {
 public:
  args() = default;
};

template <class... T>
tuple make_tuple(const T&... given) {
  tuple made;
  (made.push(pybind11::cast(given)), ...);
  return made;
}

class dict : public object {
 public:
  dict();
  explicit dict(const object& other);
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
    return accessor(add(wanted));
  }
  auto begin() const { return mapping().items.begin(); }
  auto end() const { return mapping().items.end(); }

 private:
  object* find(const object& key) const;
  object* add(const object& key) const;
  void put(const arg& given) const;
};

class kwargs : public dict {};

#define TELEGRAD_OBJECT(name, type, number)                                            \
  class name : public object {                                                         \
   public:                                                                             \
    name(const type& given = {});                                                      \
    explicit name(const object& other);                                                \
    operator type() const;                                                             \
  };
TELEGRAD_OBJECT(int_, int64_t, INTEGER) TELEGRAD_OBJECT(float_, double, FLOAT) TELEGRAD_OBJECT(bool_, bool, BOOLEAN)
TELEGRAD_OBJECT(str, std::string, STRING)
#undef TELEGRAD_OBJECT
}  // namespace pybind11

namespace telegrad {

template <>
struct Codec<pybind11::object> {
  using Held = pybind11::object;
  static void put(Words& words, const pybind11::object& given);
  static pybind11::object take(Reader& reader);
  static std::string name() { return "object"; }
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
      return given.tensor();
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
    static bool is(const pybind11::object& given) { return ((1 << given.kind) & (__VA_ARGS__)) != 0; }          \
  };                                                                                                           \
  template <>                                                                                                  \
  struct Codec<pybind11::type> : Codec<pybind11::object> {                                                     \
    using Held = pybind11::type;                                                                               \
    static Held take(Reader& reader);                                                                          \
    static std::string name() { return text; }                                                                 \
  };
TELEGRAD_OBJECT(list, "list", 1 << LIST) TELEGRAD_OBJECT(tuple, "tuple", 1 << TUPLE) TELEGRAD_OBJECT(dict, "dict", 1 << DICT)
TELEGRAD_OBJECT(set, "set", 1 << SET) TELEGRAD_OBJECT(sequence, "list", 1 << LIST | 1 << TUPLE) TELEGRAD_OBJECT(int_, "int", 1 << INTEGER | 1 << BOOLEAN)
TELEGRAD_OBJECT(float_, "float", 1 << FLOAT | 1 << INTEGER) TELEGRAD_OBJECT(bool_, "bool", 1 << BOOLEAN)
TELEGRAD_OBJECT(str, "str", 1 << STRING) TELEGRAD_OBJECT(args, "*args", 1 << TUPLE) TELEGRAD_OBJECT(kwargs, "**kwargs", 1 << DICT)
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
    return object(given);
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
// The value of an object that C++ names the type of: cast<int>(item).
template <class T, std::enable_if_t<!std::is_base_of_v<object, T> && !std::is_same_v<T, accessor>, int> = 0>
T cast(const object& given) { return given.cast<T>(); }
template <class T>
bool isinstance(const object& given) {
  if constexpr (std::is_same_v<T, at::Tensor>) return given.kind == telegrad::TENSOR;
  else return telegrad::ObjectKind<T>::is(given);
}
size_t len(const object& given);

// Exceptions that Python sees as its own.
#define TELEGRAD_EXCEPTION(name, type)                                      \
  struct name : c10::type {                                                 \
    explicit name(const std::string& message = "") : c10::type(message) {}  \
  };
TELEGRAD_EXCEPTION(value_error, ValueError) TELEGRAD_EXCEPTION(index_error, IndexError)
TELEGRAD_EXCEPTION(type_error, TypeError) TELEGRAD_EXCEPTION(cast_error, Error) TELEGRAD_EXCEPTION(reference_cast_error, Error)
#undef TELEGRAD_EXCEPTION
#define TELEGRAD_EXCEPTION(name, type)                                                 \
  struct name : c10::PythonError {                                                     \
    explicit name(const std::string& message = "") : c10::PythonError(type, message) {} \
  };
TELEGRAD_EXCEPTION(key_error, "KeyError") TELEGRAD_EXCEPTION(attribute_error, "AttributeError")
TELEGRAD_EXCEPTION(buffer_error, "BufferError") TELEGRAD_EXCEPTION(import_error, "ImportError")
TELEGRAD_EXCEPTION(stop_iteration, "StopIteration")
#undef TELEGRAD_EXCEPTION
}  // namespace pybind11
