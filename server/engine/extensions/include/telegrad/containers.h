// Lists and dicts of PyTorch's dispatcher. Copies of one share its elements, as references of Python do.
#pragma once

#include <functional>
#include <memory>
#include <unordered_map>

#include "tensor.h"

namespace c10 {
template <class T>
class List {
 public:
  using value_type = T;
  List() : items_(std::make_shared<std::vector<T>>()) {}
  List(std::initializer_list<T> items) : items_(std::make_shared<std::vector<T>>(items)) {}
  explicit List(ArrayRef<T> items) : items_(std::make_shared<std::vector<T>>(items.begin(), items.end())) {}
  List(std::vector<T> items) : items_(std::make_shared<std::vector<T>>(std::move(items))) {}
  size_t size() const { return items_->size(); }
  bool empty() const { return items_->empty(); }
  decltype(auto) operator[](size_t at) const { return items_->at(at); }
  T get(size_t at) const { return items_->at(at); }
  T extract(size_t at) const { return std::move(items_->at(at)); }
  void set(size_t at, T value) const { items_->at(at) = std::move(value); }
  void push_back(T value) const { items_->push_back(std::move(value)); }
  template <class... A>
  void emplace_back(A&&... given) const { items_->emplace_back(std::forward<A>(given)...); }
  void append(List other) const { items_->insert(items_->end(), other.begin(), other.end()); }
  void pop_back() const { items_->pop_back(); }
  void clear() const { items_->clear(); }
  void reserve(size_t count) const { items_->reserve(count); }
  void resize(size_t count) const { items_->resize(count); }
  auto begin() const { return items_->begin(); }
  auto end() const { return items_->end(); }
  std::vector<T> vec() const { return *items_; }
  operator std::vector<T>() const { return *items_; }
  List copy() const { return List(*items_); }

 private:
  std::shared_ptr<std::vector<T>> items_;
};

template <class K, class V>
class Dict {
 public:
  class Entry {
   public:
    Entry(const K& key, V& value) : key_(key), value_(value) {}
    const K& key() const { return key_.get(); }
    V& value() const { return value_.get(); }
    void setValue(V value) const { value_.get() = std::move(value); }

   private:
    std::reference_wrapper<const K> key_;
    std::reference_wrapper<V> value_;
  };
  // Goes through the entries in the order in which they came, as Python does.
  class iterator {
   public:
    iterator(const Dict* dict, size_t at) : dict_(dict), at_(at) {}
    const Entry& operator*() const {
      entry_.emplace(dict_->items_->at(at_).first, dict_->items_->at(at_).second);
      return *entry_;
    }
    const Entry* operator->() const { return &**this; }
    iterator& operator++() { ++at_; return *this; }
    bool operator==(const iterator& other) const { return at_ == other.at_; }
    bool operator!=(const iterator& other) const { return at_ != other.at_; }

   private:
    const Dict* dict_;
    size_t at_;
    mutable std::optional<Entry> entry_;
  };
  Dict() : items_(std::make_shared<std::vector<std::pair<K, V>>>()) {}
  size_t size() const { return items_->size(); }
  bool empty() const { return items_->empty(); }
  iterator begin() const { return {this, 0}; }
  iterator end() const { return {this, size()}; }
  iterator find(const K& key) const {
    size_t at = 0;
    while (at < size() && !((*items_)[at].first == key)) ++at;
    return {this, at};
  }
  bool contains(const K& key) const { return find(key) != end(); }
  V& at(const K& key) const {
    for (auto& [own, value] : *items_)
      if (own == key) return value;
    throw IndexError("Argument passed to at() was not in the map.");
  }
  bool insert(K key, V value) const {
    if (contains(key)) return false;
    items_->emplace_back(std::move(key), std::move(value));
    return true;
  }
  void insert_or_assign(K key, V value) const {
    if (contains(key)) at(key) = std::move(value);
    else insert(std::move(key), std::move(value));
  }
  size_t erase(const K& key) const {
    const size_t before = size();
    for (auto item = items_->begin(); item != items_->end();) item = item->first == key ? items_->erase(item) : item + 1;
    return before - size();
  }
  void clear() const { items_->clear(); }

 private:
  std::shared_ptr<std::vector<std::pair<K, V>>> items_;
};
}  // namespace c10

namespace telegrad {
template <class T>
struct Codec<c10::List<T>> : Codec<std::vector<T>> {
  using Held = c10::List<T>;
  static void put(Words& words, const c10::List<T>& list) { Codec<std::vector<T>>::put(words, list.vec()); }
  static Held take(Reader& reader) { return Codec<std::vector<T>>::take(reader); }
};
template <class K, class V>
struct Codec<c10::Dict<K, V>> : Codec<std::map<K, V>> {
  using Held = c10::Dict<K, V>;
  static void put(Words& words, const c10::Dict<K, V>& dict) {
    words.put(DICT, static_cast<int64_t>(dict.size()));
    for (const auto& entry : dict) {
      Codec<K>::put(words, entry.key());
      Codec<V>::put(words, entry.value());
    }
  }
  static Held take(Reader& reader) {
    if (reader.next() != DICT) refuse(Codec<std::map<K, V>>::name());
    Held dict;
    for (int64_t left = reader.next(); left > 0; --left) {
      auto key = take_as<K>(reader);
      dict.insert(std::move(key), take_as<V>(reader));
    }
    return dict;
  }
};
}  // namespace telegrad
