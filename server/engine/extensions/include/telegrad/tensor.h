// Tensors: handles on values of the worker, with all that is known of them at hand.
#pragma once

#include "accessor.h"
#include "codec.h"
#include "operations.h"
#include "owned.h"

namespace at {
class Tensor;

// One value of the worker. Its last handle tells the worker, with the next request or at the end of the call.
struct TensorImpl {
  int64_t references = 1, handle = 0, numel = 1;
  char* address = nullptr;
  ScalarType dtype = kFloat;
  bool requires_grad = false;
  int64_t device = -1, offset = 0;
  std::vector<int64_t> sizes, strides;

  ~TensorImpl();
};
// The arguments of the call that is going on: theirs are the handles below 0. The worker holds them as long as the call
// takes; those that an extension keeps for longer get handles of their own then.
inline std::vector<TensorImpl*> arguments;

struct DeprecatedTypeProperties {
  ScalarType type;
  bool cuda;
  operator ScalarType() const { return type; }
  std::string toString() const { return std::string(cuda ? "CUDA" : "CPU") + c10::toString(type) + "Type"; }
  ScalarType scalarType() const { return type; }
  bool is_cuda() const { return cuda; }
};

namespace indexing {
struct TensorIndex;
template <class List>
std::vector<TensorIndex> list_of(const List& indices);
}

template <class... Arguments>
void run(const char* name, const Arguments&... arguments);
template <class Result = Tensor, class... Arguments>
Result call(const char* name, const Arguments&... arguments);

class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(TensorImpl* owned) : impl_(owned) {}
  Tensor(const Tensor& other) : impl_(other.impl_) {
    if (impl_) ++impl_->references;
  }
  Tensor(Tensor&& other) noexcept : impl_(std::exchange(other.impl_, nullptr)) {}
  Tensor& operator=(Tensor other) & {
    std::swap(impl_, other.impl_);
    return *this;
  }
  // What is assigned to the result of an expression goes into its elements: x[0] = y.
  const Tensor& operator=(const Tensor& other) &&;
  const Tensor& operator=(Tensor&& other) &&;
  const Tensor& operator=(const Scalar& value) &&;
  ~Tensor() {
    if (impl_ && --impl_->references == 0) drop(impl_);
  }

  bool defined() const { return impl_ != nullptr; }
  void reset() { *this = Tensor(); }
  bool is_same(const Tensor& other) const { return impl_ == other.impl_; }
  TensorImpl* unsafeGetTensorImpl() const { return impl_; }
  TensorImpl& impl() const {
    TORCH_CHECK(impl_ != nullptr, "an undefined tensor is used");
    return *impl_;
  }

  IntArrayRef sizes() const { return impl().sizes; }
  IntArrayRef strides() const { return impl().strides; }
  int64_t size(int64_t dim) const { return impl().sizes[dimension(dim)]; }
  int64_t stride(int64_t dim) const { return impl().strides[dimension(dim)]; }
  int64_t dim() const { return static_cast<int64_t>(impl().sizes.size()); }
  int64_t ndimension() const { return dim(); }
  int64_t numel() const { return impl().numel; }
  int64_t storage_offset() const { return impl().offset; }
  size_t element_size() const { return elementSize(scalar_type()); }
  int64_t itemsize() const { return static_cast<int64_t>(element_size()); }
  size_t nbytes() const { return element_size() * static_cast<size_t>(numel()); }
  ScalarType scalar_type() const { return impl().dtype; }
  TypeMeta dtype() const { return impl().dtype; }
  Layout layout() const { return kStrided; }
  DeprecatedTypeProperties type() const { return {scalar_type(), is_cuda()}; }
  Device device() const { return is_cuda() ? Device(kCUDA, static_cast<DeviceIndex>(impl().device)) : Device(kCPU); }
  DeviceIndex get_device() const { return static_cast<DeviceIndex>(impl().device); }
  bool is_cuda() const { return impl().device >= 0; }
  bool is_cpu() const { return impl().device < 0; }
#define TELEGRAD_METHOD(name) \
  bool name() const { return false; }
  TELEGRAD_NEVER(TELEGRAD_METHOD)
#undef TELEGRAD_METHOD
  bool is_signed() const { return isSignedType(scalar_type()); }
  std::string toString() const { return type().toString(); }
  int64_t use_count() const { return impl_ ? impl_->references : 0; }
  SymInt sym_size(int64_t dim) const { return size(dim); }
  SymInt sym_stride(int64_t dim) const { return stride(dim); }
  SymInt sym_numel() const { return numel(); }
  SymIntArrayRef sym_sizes() const { return symbolic(sizes()); }
  SymIntArrayRef sym_strides() const { return symbolic(strides()); }
  bool is_floating_point() const { return isFloatingType(scalar_type()); }
  bool is_complex() const { return isComplexType(scalar_type()); }
  bool requires_grad() const { return impl().requires_grad; }
  TensorOptions options() const { return TensorOptions(scalar_type()).device(device()); }
  bool is_contiguous(MemoryFormat format = MemoryFormat::Contiguous) const;
  bool is_contiguous_or_false(MemoryFormat format = MemoryFormat::Contiguous) const { return is_contiguous(format); }
  MemoryFormat suggest_memory_format() const;
  c10::MaybeOwned<Tensor> expect_contiguous(MemoryFormat format = MemoryFormat::Contiguous) const;
  bool is_non_overlapping_and_dense() const { return is_contiguous() || t_contiguous(); }

  void* data_ptr() const { return impl().address; }
  const void* const_data_ptr() const { return impl().address; }
  void* mutable_data_ptr() const { return impl().address; }
  template <class T>
  T* data_ptr() const {
    using Element = std::remove_const_t<T>;
    TORCH_CHECK(scalar_type() == CppTypeToScalarType<Element>::value, "expected scalar type ",
                CppTypeToScalarType<Element>::value, " but found ", scalar_type());
    return reinterpret_cast<T*>(impl().address);
  }
  template <class T>
  T* mutable_data_ptr() const { return data_ptr<T>(); }
  template <class T>
  const T* const_data_ptr() const { return data_ptr<T>(); }
  template <class T>
  T* data() const { return data_ptr<T>(); }
  // Accessors point to sizes and strides of their tensor, which must outlive them.
  template <class T, size_t N>
  TensorAccessor<T, N> accessor() && = delete;
  template <class T, size_t N>
  TensorAccessor<T, N> accessor() const& {
    TORCH_CHECK(is_cpu(), "accessor: expected a tensor on the CPU; packed_accessor32 is for kernels on GPUs");
    return {checked<T, N>(), impl().sizes.data(), impl().strides.data()};
  }
  template <class T, size_t N, template <class> class PtrTraits = DefaultPtrTraits>
  PackedTensorAccessor32<T, N, PtrTraits> packed_accessor32() const {
    TORCH_CHECK(numel() <= INT32_MAX, "numel needs to be smaller than int32_t max; otherwise, please use packed_accessor64");
    return {checked<T, N>(), impl().sizes.data(), impl().strides.data()};
  }
  template <class T, size_t N, template <class> class PtrTraits = DefaultPtrTraits>
  PackedTensorAccessor64<T, N, PtrTraits> packed_accessor64() const {
    return {checked<T, N>(), impl().sizes.data(), impl().strides.data()};
  }
  template <class T, size_t N, template <class> class PtrTraits = DefaultPtrTraits, class Index = int64_t>
  PackedTensorAccessor<T, N, PtrTraits, Index> packed_accessor() const {
    return {checked<T, N>(), impl().sizes.data(), impl().strides.data()};
  }
  template <class T, size_t N, template <class> class PtrTraits = DefaultPtrTraits, class Index = int64_t>
  PackedTensorAccessor<T, N, PtrTraits, Index> generic_packed_accessor() const {
    return packed_accessor<T, N, PtrTraits, Index>();
  }

  Scalar item() const;
  template <class T>
  T item() const { return item().to<T>(); }

  Tensor contiguous(MemoryFormat format = MemoryFormat::Contiguous) const;
  using Format = std::optional<MemoryFormat>;
  Tensor to(const TensorOptions& options, bool = false, bool copy = false, Format format = {}) const;
  Tensor to(ScalarType type, bool = false, bool copy = false, Format format = {}) const {
    return to(TensorOptions(type), false, copy, format);
  }
  Tensor to(Device device, ScalarType type, bool = false, bool copy = false, Format format = {}) const {
    return to(TensorOptions(type).device(device), false, copy, format);
  }
  Tensor to(const Tensor& other, bool = false, bool copy = false, Format format = {}) const {
    return to(other.options(), false, copy, format);
  }
  Tensor toType(ScalarType type) const { return to(type); }
  Tensor type_as(const Tensor& other) const { return to(other.options()); }
  Tensor cpu() const { return to(Device(kCPU)); }
  Tensor cuda() const { return to(Device(kCUDA)); }
  Tensor detach() const;
  Tensor data() const { return detach(); }
  Tensor variable_data() const { return detach(); }
  Tensor tensor_data() const { return detach(); }
  // This handle, and all others on the same tensor, have another value from here on: views in place, and new sizes.
  const Tensor& become(Tensor other) const;
  const Tensor& detach_() const { return become(detach()); }
  const Tensor& t_() const;
  const Tensor& transpose_(int64_t a, int64_t b) const;
  const Tensor& swapaxes_(int64_t a, int64_t b) const { return transpose_(a, b); }
  const Tensor& squeeze_() const;
  const Tensor& squeeze_(int64_t at) const;
  const Tensor& unsqueeze_(int64_t at) const;
  const Tensor& resize_(IntArrayRef sizes, Format format = {}) const;
  const Tensor& resize_as_(const Tensor& other, Format format = {}) const { return resize_(other.sizes(), format); }
  const Tensor& fill_diagonal_(const Scalar& value, bool wrap = false) const;
  Tensor mT() const;
  Tensor mH() const;
  Tensor adjoint() const { return mH(); }
  Tensor numpy_T() const;
  Tensor narrow_copy(int64_t at, int64_t start, int64_t length) const;
  Tensor where(const Tensor& condition, const Tensor& other) const;
  Tensor polygamma(int64_t n) const;
  Tensor isin(const Tensor& elements) const;
  bool equal(const Tensor& other) const;
  bool allclose(const Tensor& other, double rtol = 1e-5, double atol = 1e-8, bool equal_nan = false) const;
  bool is_nonzero() const;
  const Tensor& requires_grad_(bool value = true) const;
  const Tensor& set_requires_grad(bool value) const { return requires_grad_(value); }

#define TELEGRAD_METHODS(Result, name, ...)                                                         \
  template <class... A>                                                                             \
  Result name(const A&... arguments) const { return call<Result>(#name, *this, arguments...); }     \
  template <class... A>                                                                             \
  Result name(std::initializer_list<int64_t> list, const A&... arguments) const {                   \
    return call<Result>(#name, *this, list, arguments...);                                          \
  }                                                                                                 \
  template <class... A>                                                                             \
  Result name(std::initializer_list<int64_t> list, std::initializer_list<int64_t> other, const A&... arguments) const { \
    return call<Result>(#name, *this, list, other, arguments...);                                   \
  }
#define TELEGRAD_METHOD(name) TELEGRAD_METHODS(Tensor, name)
  TELEGRAD_ONE_RESULT(TELEGRAD_METHOD)
#undef TELEGRAD_METHOD
#define TELEGRAD_METHOD(name) \
  template <class... A>       \
  const Tensor& name(const A&... arguments) const { run(#name, *this, arguments...); return *this; }
  TELEGRAD_IN_PLACE(TELEGRAD_METHOD)
#undef TELEGRAD_METHOD
#define TELEGRAD_METHOD(name, other)                                                                 \
  template <class... A>                                                                             \
  Tensor name(const A&... arguments) const { return call(#other, *this, arguments...); }
  TELEGRAD_ALIASES(TELEGRAD_METHOD)
#undef TELEGRAD_METHOD
#define TELEGRAD_METHOD(name, other) \
  template <class... A>              \
  const Tensor& name(const A&... arguments) const { run(#other, *this, arguments...); return *this; }
  TELEGRAD_IN_PLACE_ALIASES(TELEGRAD_METHOD)
#undef TELEGRAD_METHOD
#define COMMA ,
#define TELEGRAD_METHOD(name) TELEGRAD_METHODS(std::tuple<Tensor COMMA Tensor>, name)
  TELEGRAD_TWO_RESULTS(TELEGRAD_METHOD)
#undef TELEGRAD_METHOD
#define TELEGRAD_METHOD(name) TELEGRAD_METHODS(std::tuple<Tensor COMMA Tensor COMMA Tensor>, name)
  TELEGRAD_THREE_RESULTS(TELEGRAD_METHOD)
#undef TELEGRAD_METHOD
#define TELEGRAD_METHOD(name) TELEGRAD_METHODS(std::vector<Tensor>, name)
  TELEGRAD_MANY_RESULTS(TELEGRAD_METHOD)
#undef TELEGRAD_METHOD

#define TELEGRAD_EXTREME(name)                                                                       \
  Tensor name() const;                                                                               \
  Tensor name(const Tensor& other) const;                                                            \
  std::tuple<Tensor, Tensor> name(int64_t dim, bool keepdim = false) const;
  TELEGRAD_EXTREME(max) TELEGRAD_EXTREME(min) TELEGRAD_EXTREME(median)
#undef TELEGRAD_EXTREME

  // Braces as the second argument tell templates nothing.
  Tensor norm(const Scalar& p, std::initializer_list<int64_t> dims, bool keepdim = false) const;

  Tensor operator[](int64_t at) const;
  Tensor operator[](const Scalar& at) const;
  Tensor operator[](const Tensor& at) const;
  Tensor index(ArrayRef<indexing::TensorIndex> indices) const;
  Tensor index(std::initializer_list<indexing::TensorIndex> indices) const;
  using Indices = ArrayRef<indexing::TensorIndex>;
  const Tensor& index_put_(Indices indices, const Tensor& values, bool accumulate = false) const;
  const Tensor& index_put_(Indices indices, const Scalar& value, bool accumulate = false) const;
  using IndexList = std::initializer_list<indexing::TensorIndex>;
  const Tensor& index_put_(IndexList indices, const Tensor& values, bool accumulate = false) const;
  const Tensor& index_put_(IndexList indices, const Scalar& value, bool accumulate = false) const;
  template <class List, class = std::enable_if_t<std::is_convertible_v<decltype(*std::declval<const List&>().begin()), std::optional<Tensor>>>>
  const Tensor& index_put_(const List& indices, const Tensor& values, bool accumulate = false) const {
    return index_put_(indexing::list_of(indices), values, accumulate);
  }
  template <class List, class = std::enable_if_t<std::is_convertible_v<decltype(*std::declval<const List&>().begin()), std::optional<Tensor>>>>
  Tensor index(const List& indices) const { return index(indexing::list_of(indices)); }
  Tensor index_put(IndexList indices, const Tensor& values, bool accumulate = false) const;

  Tensor operator-() const;
  Tensor operator~() const;
  template <class T> const Tensor& operator+=(const T& other) const { return add_(other); }
  template <class T> const Tensor& operator-=(const T& other) const { return sub_(other); }
  template <class T> const Tensor& operator*=(const T& other) const { return mul_(other); }
  template <class T> const Tensor& operator/=(const T& other) const { return div_(other); }
  template <class T> const Tensor& operator&=(const T& other) const { return bitwise_and_(other); }
  template <class T> const Tensor& operator|=(const T& other) const { return bitwise_or_(other); }
  template <class T> const Tensor& operator^=(const T& other) const { return bitwise_xor_(other); }

 private:
  static void drop(TensorImpl* impl);
  size_t dimension(int64_t at) const;
  bool t_contiguous() const;
  static SymIntArrayRef symbolic(IntArrayRef list) {
    static_assert(sizeof(SymInt) == sizeof(int64_t));
    return {reinterpret_cast<const SymInt*>(list.data()), list.size()};
  }
  template <class T, size_t N>
  T* checked() const {
    TORCH_CHECK(dim() == static_cast<int64_t>(N), "TensorAccessor expected ", N, " dims but tensor has ", dim());
    return data_ptr<T>();
  }

  TensorImpl* impl_ = nullptr;
};

using TensorList = ArrayRef<Tensor>;
using ITensorListRef = TensorList;
using TensorBase = Tensor;
}  // namespace at

namespace telegrad {
template <>
struct Codec<at::Tensor> {
  using Held = at::Tensor;
  static void put(Words& words, const at::Tensor& tensor);
  static at::Tensor take(Reader& reader);
  static std::string name() { return "torch.Tensor"; }
};
}  // namespace telegrad

namespace at {

namespace detail {
// An argument of any type, and what writes it as words; that says how many arguments of the operation it stands for.
class Argument {
 public:
  template <class T>
  Argument(const T& value) : at_(&value), put_(&put_as<T>) {}
  size_t put(telegrad::Words& words) const { return put_(words, at_); }

 private:
  template <class T>
  static size_t put_as(telegrad::Words& words, const void* at) {
    telegrad::Codec<T>::put(words, *static_cast<const T*>(at));
    return telegrad::count_of(*static_cast<const T*>(at));
  }
  const void* at_;
  size_t (*put_)(telegrad::Words&, const void*);
};
using Arguments = std::initializer_list<Argument>;
const int64_t* ask(telegrad::Verb verb, const char* name, Arguments arguments);
Tensor call(const char* name, Arguments arguments);
}  // namespace detail

// Runs an operation for what it does to its arguments.
template <class... A>
void run(const char* name, const A&... arguments) {
  detail::ask(telegrad::RUN, name, {detail::Argument(arguments)...});
}
template <class Result, class... A>
Result call(const char* name, const A&... arguments) {
  if constexpr (std::is_same_v<Result, Tensor>) return detail::call(name, {detail::Argument(arguments)...});
  telegrad::Reader reader(detail::ask(telegrad::CALL, name, {detail::Argument(arguments)...}));
  return telegrad::Codec<Result>::take(reader);
}

}  // namespace at
