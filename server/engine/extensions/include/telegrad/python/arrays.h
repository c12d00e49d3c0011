// py::array_t: arrays of NumPy, which lie in the client. They come as tensors of the CPU; what is written into one that
// had the right type goes back to the client's array after the call.
#pragma once

#include <torch/extension.h>

namespace pybind11 {
using ssize_t = std::ptrdiff_t;
using size_t = std::size_t;

// The memory of an array, as Python's buffers describe it; strides are in bytes.
struct buffer_info {
  void* ptr = nullptr;
  ssize_t itemsize = 0, size = 0;
  std::string format = {};
  ssize_t ndim = 0;
  std::vector<ssize_t> shape = {}, strides = {};
};
template <class T>
struct format_descriptor {
  static std::string format() {
    constexpr auto type = c10::CppTypeToScalarType<T>::value;
    static const char letters[] = {'B', 'b', 'h', 'i', 'l', 'e', 'f', 'd'};
    return type == c10::kBool ? "?" : std::string(1, letters[static_cast<int>(type)]);
  }
};

// Elements by their indices, without a check.
template <class T, ssize_t dims>
class unchecked_reference {
 public:
  explicit unchecked_reference(const at::Tensor& held) : held_(held), data_(static_cast<char*>(held.data_ptr())) {
    TORCH_CHECK_VALUE(dims < 0 || held.dim() == dims, "array has incorrect number of dimensions: ", held.dim(), "; expected ", dims);
  }
  template <class... I>
  T& operator()(I... at) const {
    ssize_t offset = 0;
    size_t dim = 0;
    ((offset += static_cast<ssize_t>(at) * held_.strides()[dim++]), ...);
    return reinterpret_cast<T*>(data_)[offset];
  }
  T& operator[](ssize_t at) const { return (*this)(at); }
  template <class... I>
  T* data(I... at) const { return &(*this)(at...); }
  template <class... I>
  T* mutable_data(I... at) const { return &(*this)(at...); }
  ssize_t shape(ssize_t dim) const { return held_.size(dim); }
  ssize_t ndim() const { return held_.dim(); }
  ssize_t size() const { return held_.numel(); }
  ssize_t itemsize() const { return sizeof(T); }
  ssize_t nbytes() const { return size() * itemsize(); }

 private:
  at::Tensor held_;
  char* data_;
};

struct array {
  enum { c_style = 1, f_style = 2, forcecast = 16 };
  using ShapeContainer = std::vector<ssize_t>;
  using StridesContainer = std::vector<ssize_t>;
};
template <class T, int flags = array::forcecast>
class array_t : public array {
 public:
  using value_type = T;
  array_t() : array_t(0) {}
  explicit array_t(const at::Tensor& held) : held_(held) {}
  template <class N, std::enable_if_t<std::is_integral_v<N>, int> = 0>
  explicit array_t(N count, const T* from = nullptr) : array_t(std::vector<int64_t>{static_cast<int64_t>(count)}, from) {}
  array_t(std::initializer_list<ssize_t> shape, const T* from = nullptr) : array_t(std::vector<int64_t>(shape), from) {}
  template <class N>
  array_t(const std::vector<N>& shape, const T* from = nullptr)
      : held_(at::empty(std::vector<int64_t>(shape.begin(), shape.end()), at::TensorOptions(type))) {
    if (from) std::copy(from, from + size(), mutable_data());
  }
  // Of elements that lie anywhere, by strides in bytes.
  template <class N>
  array_t(const std::vector<N>& shape, const std::vector<N>& strides, const T* from) : array_t(shape) {
    for (ssize_t place = 0; place < size(); ++place) {
      ssize_t left = place, offset = 0;
      for (size_t dim = shape.size(); dim-- > 0; left /= shape[dim]) offset += left % shape[dim] * strides[dim];
      mutable_data()[place] = *reinterpret_cast<const T*>(reinterpret_cast<const char*>(from) + offset);
    }
  }
  array_t(std::initializer_list<ssize_t> shape, std::initializer_list<ssize_t> strides, const T* from)
      : array_t(std::vector<ssize_t>(shape), std::vector<ssize_t>(strides), from) {}
  explicit array_t(const buffer_info& info) : array_t(info.shape, info.strides, static_cast<const T*>(info.ptr)) {}

  ssize_t ndim() const { return held_.dim(); }
  ssize_t size() const { return held_.numel(); }
  ssize_t itemsize() const { return sizeof(T); }
  ssize_t nbytes() const { return size() * itemsize(); }
  ssize_t shape(ssize_t dim) const { return held_.size(dim); }
  const ssize_t* shape() const { return reinterpret_cast<const ssize_t*>(held_.sizes().data()); }
  ssize_t strides(ssize_t dim) const { return held_.stride(dim) * itemsize(); }
  bool writeable() const { return true; }
  buffer_info request(bool = false) const {
    buffer_info info{held_.data_ptr(), itemsize(), size(), format_descriptor<T>::format(), ndim()};
    for (ssize_t dim = 0; dim < ndim(); ++dim) {
      info.shape.push_back(shape(dim));
      info.strides.push_back(strides(dim));
    }
    return info;
  }
  template <class... I>
  const T* data(I... at) const { return mutable_data(at...); }
  template <class... I>
  T* mutable_data(I... at) const { return static_cast<T*>(held_.data_ptr()) + offset(at...); }
  template <class... I>
  const T& at(I... at) const { return mutable_at(at...); }
  template <class... I>
  T& mutable_at(I... at) const {
    TORCH_CHECK_INDEX(sizeof...(I) == static_cast<size_t>(ndim()), "index dimension mismatch: ", sizeof...(I), "; expected ", ndim());
    size_t dim = 0;
    for (const ssize_t index : {static_cast<ssize_t>(at)...}) {
      TORCH_CHECK_INDEX(index < shape(static_cast<ssize_t>(dim)), "index ", index, " is out of bounds for axis ", dim, " with size ", shape(static_cast<ssize_t>(dim)));
      ++dim;
    }
    return *mutable_data(at...);
  }
  template <ssize_t dims = -1>
  unchecked_reference<const T, dims> unchecked() const { return unchecked_reference<const T, dims>(held_); }
  template <ssize_t dims = -1>
  unchecked_reference<T, dims> mutable_unchecked() const { return unchecked_reference<T, dims>(held_); }
  template <class N>
  array_t reshape(const std::vector<N>& shape) const { return array_t(held_.reshape(std::vector<int64_t>(shape.begin(), shape.end()))); }
  template <class N>
  void resize(const std::vector<N>& shape, bool = true) { *this = reshape(shape); }
  static array_t ensure(const array_t& given) { return given; }

  static constexpr c10::ScalarType type = c10::CppTypeToScalarType<T>::value;

 private:
  friend struct telegrad::Codec<array_t>;
  template <class... I>
  ssize_t offset(I... at) const {
    ssize_t sum = 0, dim = 0;
    ((sum += static_cast<ssize_t>(at) * held_.stride(dim++)), ...);
    return sum;
  }
  at::Tensor held_;
};
}  // namespace pybind11

namespace telegrad {
template <class T, int flags>
struct Codec<pybind11::array_t<T, flags>> {
  using Held = pybind11::array_t<T, flags>;
  static void put(Words& words, const Held& array) { Codec<at::Tensor>::put(words, array.held_.contiguous()); }
  static Held take(Reader& reader) {
    const auto given = Codec<at::Tensor>::take(reader);
    if (!given.defined() || given.scalar_type() != Held::type || !given.is_contiguous()) refuse(name());
    return Held(given);
  }
  static std::string name() {
    static const char* names[] = {"uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "", "complex64", "complex128", "bool"};
    return std::string("numpy.ndarray[") + names[static_cast<int>(Held::type)] + "]";
  }
};
}  // namespace telegrad
