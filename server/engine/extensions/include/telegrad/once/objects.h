// What objects.h declares, compiled once for all extensions.
#pragma once

#include "../objects.h"

namespace pybind11 {
object::object(const at::Tensor& tensor) : object(telegrad::TENSOR, std::make_shared<at::Tensor>(tensor)) {}
object::object(std::string text) : object(telegrad::STRING, std::make_shared<std::string>(std::move(text))) {}

void sequence::push(object item) const { items().push_back(std::move(item)); }
list::list(size_t count) : sequence(telegrad::LIST, std::make_shared<telegrad::Sequence>()) { items().resize(count); }
list::list(const object& other) : list() { items() = other.sequence().items; }
set::set() : sequence(telegrad::SET, std::make_shared<telegrad::Sequence>()) {}
set::set(const object& other) : set() { items() = other.sequence().items; }
tuple::tuple(size_t count) : sequence(telegrad::TUPLE, std::make_shared<telegrad::Sequence>()) { items().resize(count); }
tuple::tuple(const object& other) : tuple() { items() = other.sequence().items; }

dict::dict() : object(telegrad::DICT, std::make_shared<telegrad::Mapping>()) {}
dict::dict(const object& other) : dict() { mapping().items = other.mapping().items; }
object* dict::find(const object& key) const {
  for (auto& [own, item] : mapping().items) {
    if (own.kind != key.kind) continue;
    if (key.kind == telegrad::STRING ? own.text() == key.text() : own.word == key.word && !key.held) return &item;
  }
  return nullptr;
}
object* dict::add(const object& key) const {
  mapping().items.emplace_back(key, object());
  return &mapping().items.back().second;
}

#define TELEGRAD_OBJECT(name, type)                                           \
  name::name(const type& given) : object(pybind11::cast(given)) {}            \
  name::name(const object& other) : name(other.cast<type>()) {}               \
  name::operator type() const { return object::cast<type>(); }
TELEGRAD_OBJECT(int_, int64_t) TELEGRAD_OBJECT(float_, double) TELEGRAD_OBJECT(bool_, bool) TELEGRAD_OBJECT(str, std::string)
#undef TELEGRAD_OBJECT
size_t len(const object& given) {
  return given.kind == telegrad::DICT ? given.mapping().items.size() : given.sequence().items.size();
}
}  // namespace pybind11

namespace telegrad {
void Codec<pybind11::object>::put(Words& words, const pybind11::object& given) {
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
    case STRING: return Codec<std::string>::put(words, given.text());
    case TENSOR: return Codec<at::Tensor>::put(words, given.tensor());
    case NONE: return words.put(NONE);
    default: words.put(given.kind, given.word);
  }
  if (given.kind == COMPLEX || given.kind == DEVICE) words.put(given.second);
}
pybind11::object Codec<pybind11::object>::take(Reader& reader) {
  const auto kind = static_cast<Kind>(reader.peek());
  switch (kind) {
    case STRING: return pybind11::object(Codec<std::string>::take(reader));
    case TENSOR: return pybind11::object(Codec<at::Tensor>::take(reader));
    case OBJECT: case ENUMERATOR:
      refuse("a parameter that names the class of its argument: instances and enumerations are no py::object here");
    default: break;
  }
  reader.next();
  switch (kind) {
    case NONE: return {};
    case BOOLEAN: case INTEGER: case FLOAT: case DTYPE: return {kind, reader.next()};
    case COMPLEX: case DEVICE: {
      const int64_t word = reader.next();
      return {kind, word, reader.next()};
    }
    case LIST: case TUPLE: case SET: {
      auto made = std::make_shared<Sequence>();
      for (int64_t left = reader.next(); left > 0; --left) made->items.push_back(take(reader));
      return {kind, std::move(made)};
    }
    case DICT: {
      auto made = std::make_shared<Mapping>();
      for (int64_t left = reader.next(); left > 0; --left) {
        auto key = take(reader);
        made->items.emplace_back(std::move(key), take(reader));
      }
      return {kind, std::move(made)};
    }
    default: refuse("a value that C++ knows");
  }
}

#define TELEGRAD_OBJECT(type)                                                    \
  pybind11::type Codec<pybind11::type>::take(Reader& reader) {                   \
    return Cast<pybind11::type>::from(Codec<pybind11::object>::take(reader));    \
  }
TELEGRAD_OBJECT(list) TELEGRAD_OBJECT(tuple) TELEGRAD_OBJECT(dict) TELEGRAD_OBJECT(set) TELEGRAD_OBJECT(sequence)
TELEGRAD_OBJECT(int_) TELEGRAD_OBJECT(float_) TELEGRAD_OBJECT(bool_) TELEGRAD_OBJECT(str) TELEGRAD_OBJECT(args)
TELEGRAD_OBJECT(kwargs)
#undef TELEGRAD_OBJECT
}  // namespace telegrad
