// Lists: those that lie elsewhere, sizes, and lists that grow.
#pragma once

#include <algorithm>
#include <array>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <ostream>
#include <vector>

#include "errors.h"

namespace c10 {

// A list of elements that lie elsewhere, as std::span has it.
template <class T>
class ArrayRef {
 public:
  using value_type = T;
  constexpr ArrayRef() = default;
  constexpr ArrayRef(const T& one) : data_(&one), size_(1) {}
  constexpr ArrayRef(const T* data, size_t size) : data_(data), size_(size) {}
  constexpr ArrayRef(const T* begin, const T* end) : data_(begin), size_(static_cast<size_t>(end - begin)) {}
  template <class A>
  ArrayRef(const std::vector<T, A>& list) : data_(list.data()), size_(list.size()) {}
  template <size_t N>
  constexpr ArrayRef(const std::array<T, N>& list) : data_(list.data()), size_(N) {}
  template <size_t N>
  constexpr ArrayRef(const T (&list)[N]) : data_(list), size_(N) {}
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winit-list-lifetime"
  constexpr ArrayRef(const std::initializer_list<T>& list) : data_(list.begin()), size_(list.size()) {}
#pragma GCC diagnostic pop
  constexpr const T* begin() const { return data_; }
  constexpr const T* end() const { return data_ + size_; }
  constexpr const T* data() const { return data_; }
  constexpr size_t size() const { return size_; }
  constexpr bool empty() const { return size_ == 0; }
  constexpr const T& operator[](size_t at) const { return data_[at]; }
  const T& at(size_t at) const {
    TORCH_CHECK(at < size_, "ArrayRef: invalid index Index = ", at, "; Length = ", size_);
    return data_[at];
  }
  const T& front() const { return at(0); }
  const T& back() const { return at(size_ - 1); }
  ArrayRef slice(size_t from, size_t count) const { return {data_ + from, count}; }
  ArrayRef slice(size_t from) const { return slice(from, size_ - from); }
  std::vector<T> vec() const { return {begin(), end()}; }
  operator std::vector<T>() const { return vec(); }
  bool equals(ArrayRef other) const {
    return size_ == other.size_ && std::equal(begin(), end(), other.begin());
  }

 private:
  const T* data_ = nullptr;
  size_t size_ = 0;
};
template <class T>
bool operator==(ArrayRef<T> a, ArrayRef<T> b) { return a.equals(b); }
template <class T>
bool operator!=(ArrayRef<T> a, ArrayRef<T> b) { return !a.equals(b); }
template <class T>
bool operator==(ArrayRef<T> a, const std::vector<T>& b) { return a.equals(b); }
template <class T>
std::ostream& operator<<(std::ostream& out, ArrayRef<T> list) {
  out << '[';
  for (size_t at = 0; at < list.size(); ++at) out << (at ? ", " : "") << list[at];
  return out << ']';
}
using IntArrayRef = ArrayRef<int64_t>;
using OptionalIntArrayRef = std::optional<IntArrayRef>;
template <class T>
ArrayRef<T> makeArrayRef(const std::vector<T>& list) { return list; }
template <class T>
ArrayRef<T> makeArrayRef(const T* data, size_t size) { return {data, size}; }

// A size; there are no symbolic ones here.
class SymInt {
 public:
  SymInt(int64_t value = 0) : value_(value) {}
  operator int64_t() const { return value_; }
  int64_t expect_int() const { return value_; }
  int64_t guard_int(const char*, int64_t) const { return value_; }
  bool is_symbolic() const { return false; }

 private:
  int64_t value_;
};
using SymIntArrayRef = ArrayRef<SymInt>;
template <class T, unsigned N = 8>
class SmallVector : public std::vector<T> {
 public:
  using std::vector<T>::vector;
  template <class List, class = decltype(std::declval<const List&>().begin())>
  explicit SmallVector(const List& list) : std::vector<T>(list.begin(), list.end()) {}
  void append(size_t count, const T& value) { this->insert(this->end(), count, value); }
  template <class Iterator, class = typename std::iterator_traits<Iterator>::iterator_category>
  void append(Iterator begin, Iterator end) { this->insert(this->end(), begin, end); }
  T pop_back_val() {
    T last = std::move(this->back());
    this->pop_back();
    return last;
  }
};
using DimVector = SmallVector<int64_t, 5>;

// Whole numbers from one to another, as for (auto i : c10::irange(n)) goes through them.
template <class T>
class IntegerRange {
 public:
  struct iterator {
    using iterator_category = std::input_iterator_tag;
    using value_type = T;
    using difference_type = std::ptrdiff_t;
    using pointer = const T*;
    using reference = T;
    T at;
    T operator*() const { return at; }
    iterator& operator++() { ++at; return *this; }
    iterator operator++(int) { iterator before = *this; ++at; return before; }
    bool operator==(const iterator& other) const { return at == other.at; }
    bool operator!=(const iterator& other) const { return at != other.at; }
  };
  IntegerRange(T begin, T end) : begin_{begin}, end_{begin < end ? end : begin} {}
  iterator begin() const { return begin_; }
  iterator end() const { return end_; }

 private:
  iterator begin_, end_;
};
template <class T>
IntegerRange<T> irange(T end) { return {T(), end}; }
template <class A, class B>
IntegerRange<B> irange(A begin, B end) { return {static_cast<B>(begin), end}; }

template <class List>
int64_t multiply_integers(const List& list) {
  int64_t product = 1;
  for (const auto& element : list) product *= static_cast<int64_t>(element);
  return product;
}
template <class List>
int64_t sum_integers(const List& list) {
  int64_t sum = 0;
  for (const auto& element : list) sum += static_cast<int64_t>(element);
  return sum;
}
}  // namespace c10
