// Who holds what: values that are borrowed or one's own, and objects that count their holders.
#pragma once

#include <memory>
#include <utility>

namespace c10 {
// A value that somebody else holds, which must outlive this, or one's own.
template <class T>
class MaybeOwned {
 public:
  MaybeOwned() = default;
  static MaybeOwned borrowed(const T& value) { return MaybeOwned(value); }
  static MaybeOwned owned(T value) { return MaybeOwned(std::move(value)); }
  const T& operator*() const& { return value_; }
  const T* operator->() const { return &value_; }

 private:
  explicit MaybeOwned(T value) : value_(std::move(value)) {}
  T value_;
};

struct intrusive_ptr_target {
  virtual ~intrusive_ptr_target() = default;
};
template <class T>
class intrusive_ptr : public std::shared_ptr<T> {
 public:
  using std::shared_ptr<T>::shared_ptr;
  intrusive_ptr(std::shared_ptr<T> other) : std::shared_ptr<T>(std::move(other)) {}
  bool defined() const { return this->get() != nullptr; }
};
template <class T, class... A>
intrusive_ptr<T> make_intrusive(A&&... given) { return std::make_shared<T>(std::forward<A>(given)...); }
}  // namespace c10
namespace torch {
using CustomClassHolder = c10::intrusive_ptr_target;
}  // namespace torch
