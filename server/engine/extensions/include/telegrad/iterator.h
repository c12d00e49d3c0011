// at::TensorIterator: operands that are broadcast to each other, and loops over their elements on the CPU.
//
// Dimensions are ordered by the strides of the operands, the innermost first, and joined where all operands allow it;
// strides are in bytes then, as loops of programs have them.
#pragma once

#include <torch/extension.h>

namespace at {
class TensorIteratorConfig;

class TensorIteratorBase {
 public:
  int ntensors() const { return static_cast<int>(operands_.size()); }
  int noutputs() const { return outputs_; }
  int ninputs() const { return ntensors() - outputs_; }
  int ndim() const { return static_cast<int>(shape_.size()); }
  IntArrayRef shape() const { return shape_; }
  int64_t numel() const { return c10::multiply_integers(shape_); }
  bool is_trivial_1d() const { return ndim() <= 1; }
  bool is_contiguous() const {
    if (ndim() > 1) return false;
    for (int64_t at = 0; ndim() == 1 && at < ntensors(); ++at)
      if (strides(at)[0] != element_size(at)) return false;
    return true;
  }
  const Tensor& tensor(int64_t at) const { return operands_.at(static_cast<size_t>(at)).tensor; }
  const Tensor& output(int64_t at = 0) const { return tensor(at); }
  const Tensor& input(int64_t at = 0) const { return tensor(outputs_ + at); }
  IntArrayRef strides(int64_t at) const { return operands_.at(static_cast<size_t>(at)).strides; }
  void* data_ptr(int64_t at) const { return tensor(at).data_ptr(); }
  ScalarType dtype(int64_t at = 0) const { return tensor(at).scalar_type(); }
  ScalarType input_dtype(int64_t at = 0) const { return input(at).scalar_type(); }
  ScalarType common_dtype() const {
    TORCH_CHECK(common_ != ScalarType::Undefined, "TensorIterator: the operands have no common type");
    return common_;
  }
  Device device(int64_t at = 0) const { return tensor(at).device(); }
  DeviceType device_type(int64_t at = 0) const { return device(at).type(); }
  int64_t element_size(int64_t at) const { return tensor(at).itemsize(); }
  bool is_scalar(int64_t at) const { return tensor(at).numel() == 1; }
  bool is_cpu_scalar(int64_t at) const { return is_scalar(at) && tensor(at).is_cpu(); }
  template <class T>
  T scalar_value(int64_t at) const { return *static_cast<T*>(data_ptr(at)); }
  template <class T>
  T original_scalar_value(int64_t at) const { return operands_.at(static_cast<size_t>(at)).original.template item<T>(); }
  void remove_operand(int64_t at) { operands_.erase(operands_.begin() + at); }

  // Calls a loop with addresses, strides in bytes and how many elements: (char**, const int64_t*, n), or of two
  // dimensions, (char**, const int64_t*, n, m), whose strides follow those of the first.
  template <class Loop>
  void for_each(Loop loop, int64_t grain_size = internal::GRAIN_SIZE) const {
    (void)grain_size;
    serial_for_each(loop, {0, numel()});
  }
  struct Range {
    int64_t begin, end;
    int64_t size() const { return end - begin; }
  };
  template <class Loop>
  void serial_for_each(Loop loop, Range range) const {
    if (range.size() <= 0) return;
    const size_t count = operands_.size();
    std::vector<int64_t> steps(2 * count);
    for (size_t at = 0; at < count; ++at) {
      steps[at] = shape_.empty() ? 0 : operands_[at].strides[0];
      steps[count + at] = shape_.size() > 1 ? operands_[at].strides[1] : 0;
    }
    const int64_t inner = shape_.empty() ? 1 : shape_[0];
    std::vector<char*> data(count);
    for (int64_t first = range.begin; first < range.end;) {
      const int64_t length = std::min(inner - first % inner, range.end - first);
      address(first, data.data());
      if constexpr (std::is_invocable_v<Loop, char**, const int64_t*, int64_t, int64_t>)
        loop(data.data(), steps.data(), length, int64_t(1));
      else
        loop(data.data(), steps.data(), length);
      first += length;
    }
  }
  // Gives outputs what was computed in the common type.
  void cast_outputs() {
    for (int at = 0; at < outputs_; ++at) {
      auto& operand = operands_[static_cast<size_t>(at)];
      if (operand.original.defined() && !operand.original.is_same(operand.tensor)) operand.original.copy_(operand.tensor);
      if (operand.original.defined()) operand.tensor = operand.original;
    }
  }

 protected:
  friend class TensorIteratorConfig;
  struct Operand {
    Tensor tensor, original = {};
    std::vector<int64_t> strides = {};
  };
  void build(const TensorIteratorConfig& config);
  void find_shape(const TensorIteratorConfig& config);
  void find_type(const TensorIteratorConfig& config);
  void make_outputs(const TensorIteratorConfig& config);
  void order_dimensions();
  void join_dimensions();
  int64_t step(const Tensor& tensor, size_t dim) const;
  int compared(size_t one, size_t other) const;
  std::vector<size_t> order() const;
  void address(int64_t element, char** data) const {
    for (size_t at = 0; at < operands_.size(); ++at) {
      data[at] = static_cast<char*>(operands_[at].tensor.data_ptr());
      int64_t left = element;
      for (size_t dim = 0; dim < shape_.size(); ++dim) {
        data[at] += left % shape_[dim] * operands_[at].strides[dim];
        left /= shape_[dim];
      }
    }
  }
  std::vector<Operand> operands_;
  std::vector<int64_t> shape_;
  int outputs_ = 0;
  ScalarType common_ = ScalarType::Undefined;
};

class TensorIterator : public TensorIteratorBase {
 public:
  static TensorIterator unary_op(Tensor& out, const Tensor& a);
  static TensorIterator unary_float_op(Tensor& out, const Tensor& a);
  static TensorIterator nullary_op(Tensor& out);
  static TensorIterator binary_op(Tensor& out, const Tensor& a, const Tensor& b);
  static TensorIterator borrowing_binary_op(Tensor& out, const Tensor& a, const Tensor& b) { return binary_op(out, a, b); }
  static TensorIterator binary_float_op(Tensor& out, const Tensor& a, const Tensor& b);
  static TensorIterator comparison_op(Tensor& out, const Tensor& a, const Tensor& b);
};

class TensorIteratorConfig {
 public:
  TensorIteratorConfig& add_output(const Tensor& out) { return add(out, outputs_); }
  TensorIteratorConfig& add_owned_output(const Tensor& out) { return add(out, outputs_); }
  TensorIteratorConfig& add_borrowed_output(const Tensor& out) { return add(out, outputs_); }
  TensorIteratorConfig& add_input(const Tensor& in) { return add(in, inputs_); }
  TensorIteratorConfig& add_owned_input(const Tensor& in) { return add(in, inputs_); }
  TensorIteratorConfig& add_borrowed_input(const Tensor& in) { return add(in, inputs_); }
  TensorIteratorConfig& add_const_input(const Tensor& in) { return add(in, inputs_); }
  TensorIteratorConfig& add_owned_const_input(const Tensor& in) { return add(in, inputs_); }
  TensorIteratorConfig& add_borrowed_const_input(const Tensor& in) { return add(in, inputs_); }
#define TELEGRAD_SETTING(name, initial) \
  TensorIteratorConfig& name(bool value) { name##_ = value; return *this; } \
  bool name##_ = initial;
  TELEGRAD_SETTING(set_check_mem_overlap, true) TELEGRAD_SETTING(check_all_same_dtype, true)
  TELEGRAD_SETTING(check_all_same_device, true) TELEGRAD_SETTING(allow_cpu_scalars, false)
  TELEGRAD_SETTING(resize_outputs, true) TELEGRAD_SETTING(promote_inputs_to_common_dtype, false)
  TELEGRAD_SETTING(promote_integer_inputs_to_float, false) TELEGRAD_SETTING(cast_common_dtype_to_outputs, false)
  TELEGRAD_SETTING(enforce_safe_casting_to_output, false) TELEGRAD_SETTING(enforce_linear_iteration, false)
  TELEGRAD_SETTING(is_reduction, false)
#undef TELEGRAD_SETTING
  TensorIteratorConfig& declare_static_shape(IntArrayRef shape) { shape_ = shape.vec(); return *this; }
  TensorIteratorConfig& declare_static_dtype_and_device(ScalarType type, Device) { type_ = type; return *this; }
  TensorIteratorConfig& declare_static_dtype(ScalarType type) { type_ = type; return *this; }
  TensorIterator build() const {
    TensorIterator made;
    static_cast<TensorIteratorBase&>(made).build(*this);
    return made;
  }

 private:
  friend class TensorIteratorBase;
  TensorIteratorConfig& add(const Tensor& tensor, std::vector<Tensor>& to) { to.push_back(tensor); return *this; }
  std::vector<Tensor> outputs_, inputs_;
  std::optional<std::vector<int64_t>> shape_;
  std::optional<ScalarType> type_;
};

inline void TensorIteratorBase::build(const TensorIteratorConfig& config) {
  TORCH_CHECK(!config.is_reduction_, "TensorIterator: reductions are not there; sum over what an operation returns");
  outputs_ = static_cast<int>(config.outputs_.size());
  for (const auto* list : {&config.outputs_, &config.inputs_})
    for (const auto& tensor : *list) operands_.push_back({tensor});
  for (const auto& operand : operands_)
    TORCH_CHECK(!operand.tensor.defined() || operand.tensor.is_cpu(), "TensorIterator: loops are over tensors of the CPU");
  find_shape(config);
  find_type(config);
  make_outputs(config);
  order_dimensions();
  join_dimensions();
}
inline void TensorIteratorBase::find_shape(const TensorIteratorConfig& config) {
  bool is_first = true;
  for (int at = config.resize_outputs_ && ninputs() ? outputs_ : 0; at < ntensors(); ++at) {
    const Tensor& tensor = this->tensor(at);
    if (!tensor.defined()) continue;
    shape_ = is_first ? tensor.sizes().vec() : infer_size(shape_, tensor.sizes());
    is_first = false;
  }
  if (config.shape_) shape_ = *config.shape_;
}
inline void TensorIteratorBase::find_type(const TensorIteratorConfig& config) {
  Tensor probe;  // of no elements, and of the type that an operation on all inputs has
  bool are_same = true;
  for (int at = 0; at < ntensors(); ++at) {
    const Tensor& tensor = this->tensor(at);
    if (!tensor.defined()) continue;
    if (common_ == ScalarType::Undefined) common_ = tensor.scalar_type();
    are_same &= tensor.scalar_type() == common_;
    if (at < outputs_ && ninputs()) continue;
    const std::vector<int64_t> sizes(tensor.dim() ? 1 : 0, 0);
    const Tensor own = empty(sizes, TensorOptions(tensor.scalar_type()));
    probe = probe.defined() ? call("add", probe, own) : own;
  }
  const ScalarType first = ninputs() ? input().scalar_type() : common_;
  const bool promotes = config.promote_inputs_to_common_dtype_;
  TORCH_CHECK(are_same || promotes || !config.check_all_same_dtype_ || config.type_, "Found dtype ", common_, " but expected ", first);
  if (config.type_) common_ = *config.type_;
  else if (promotes && probe.defined()) common_ = probe.scalar_type();
  else common_ = are_same ? common_ : ninputs() ? first : common_;
  if (config.promote_integer_inputs_to_float_ && isIntegralType(common_, true)) common_ = get_default_dtype();
  if (!promotes) return;
  for (int at = outputs_; at < ntensors(); ++at) {
    auto& operand = operands_[static_cast<size_t>(at)];
    operand.original = operand.tensor;
    operand.tensor = operand.tensor.to(common_);
  }
}
inline void TensorIteratorBase::make_outputs(const TensorIteratorConfig& config) {
  for (int at = 0; at < outputs_; ++at) {
    auto& operand = operands_[static_cast<size_t>(at)];
    if (!operand.tensor.defined()) {
      std::vector<int64_t> strides(shape_.size());
      int64_t step = 1;
      for (const size_t dim : order()) {
        strides[dim] = step;
        step *= shape_[dim];
      }
      operand.tensor = empty_strided(shape_, strides, TensorOptions(common_));
    } else if (operand.tensor.sizes() != IntArrayRef(shape_)) {
      TORCH_CHECK(config.resize_outputs_, "output with shape ", operand.tensor.sizes(), " doesn't match the broadcast shape ", IntArrayRef(shape_));
      operand.tensor.resize_(shape_);
    }
    if (operand.tensor.scalar_type() == common_ || !config.promote_inputs_to_common_dtype_) continue;
    if (config.enforce_safe_casting_to_output_)
      TORCH_CHECK(canCast(common_, operand.tensor.scalar_type()), "result type ", common_, " can't be cast to the desired output type ", operand.tensor.scalar_type());
    if (!config.cast_common_dtype_to_outputs_) continue;
    operand.original = operand.tensor;
    operand.tensor = operand.tensor.to(common_);
  }
}
// The step of an operand along a dimension of the shape; 0 where it is expanded.
inline int64_t TensorIteratorBase::step(const Tensor& tensor, size_t dim) const {
  const int64_t own = static_cast<int64_t>(dim) - static_cast<int64_t>(shape_.size()) + tensor.dim();
  if (own < 0 || (tensor.size(own) == 1 && shape_[dim] != 1)) return 0;
  return tensor.stride(own);
}
// Whether one dimension stands outside of another (1), inside (-1), or no operand tells (0).
inline int TensorIteratorBase::compared(size_t one, size_t other) const {
  for (int at = 0; at < ntensors(); ++at) {
    if (!tensor(at).defined() || (at < outputs_ && tensor(at).sizes() != IntArrayRef(shape_))) continue;
    const int64_t a = step(tensor(at), one), b = step(tensor(at), other);
    if (!a || !b) continue;
    if (a != b) return a < b ? -1 : 1;
    if (shape_[one] > shape_[other]) return 1;
  }
  return 0;
}
// The dimensions from the innermost to the outermost.
inline std::vector<size_t> TensorIteratorBase::order() const {
  std::vector<size_t> dims(shape_.size());
  for (size_t at = 0; at < dims.size(); ++at) dims[at] = dims.size() - 1 - at;
  bool are_contiguous = true;
  for (int at = 0; at < ntensors(); ++at)
    are_contiguous &= !tensor(at).defined() || (tensor(at).sizes() == IntArrayRef(shape_) && tensor(at).is_contiguous());
  for (size_t at = 1; at < dims.size() && !are_contiguous; ++at) {
    for (size_t inner = at, place = at; place-- > 0;) {
      const int found = compared(dims[place], dims[inner]);
      if (found < 0) break;
      if (found == 0) continue;
      std::swap(dims[place], dims[inner]);
      inner = place;
    }
  }
  return dims;
}
inline void TensorIteratorBase::order_dimensions() {
  const auto dims = order();
  for (auto& operand : operands_) {
    operand.strides.clear();
    for (const size_t dim : dims) operand.strides.push_back(step(operand.tensor, dim) * operand.tensor.itemsize());
  }
  std::vector<int64_t> sizes;
  for (const size_t dim : dims) sizes.push_back(shape_[dim]);
  shape_ = sizes;
}
inline void TensorIteratorBase::join_dimensions() {
  for (size_t dim = 1; dim < shape_.size();) {
    bool can_join = true;
    for (const auto& operand : operands_)
      can_join &= shape_[dim] == 1 || shape_[dim - 1] == 1 || operand.strides[dim - 1] * shape_[dim - 1] == operand.strides[dim];
    if (!can_join) { ++dim; continue; }
    for (auto& operand : operands_) {
      if (shape_[dim - 1] == 1) operand.strides[dim - 1] = operand.strides[dim];
      operand.strides.erase(operand.strides.begin() + static_cast<std::ptrdiff_t>(dim));
    }
    shape_[dim - 1] *= shape_[dim];
    shape_.erase(shape_.begin() + static_cast<std::ptrdiff_t>(dim));
  }
}

namespace detail {
inline TensorIteratorConfig promoting(const Tensor& out, std::initializer_list<Tensor> inputs) {
  TensorIteratorConfig config;
  config.add_output(out).promote_inputs_to_common_dtype(true).cast_common_dtype_to_outputs(true).enforce_safe_casting_to_output(true);
  for (const auto& input : inputs) config.add_input(input);
  return config;
}
}  // namespace detail
inline TensorIterator TensorIterator::unary_op(Tensor& out, const Tensor& a) {
  return TensorIteratorConfig().add_output(out).add_input(a).cast_common_dtype_to_outputs(false).enforce_safe_casting_to_output(false)
      .check_all_same_dtype(true).build();
}
inline TensorIterator TensorIterator::unary_float_op(Tensor& out, const Tensor& a) {
  return detail::promoting(out, {a}).promote_integer_inputs_to_float(true).build();
}
inline TensorIterator TensorIterator::nullary_op(Tensor& out) {
  return TensorIteratorConfig().add_output(out).resize_outputs(false).check_all_same_dtype(false).build();
}
inline TensorIterator TensorIterator::binary_op(Tensor& out, const Tensor& a, const Tensor& b) {
  return detail::promoting(out, {a, b}).build();
}
inline TensorIterator TensorIterator::binary_float_op(Tensor& out, const Tensor& a, const Tensor& b) {
  return detail::promoting(out, {a, b}).promote_integer_inputs_to_float(true).build();
}
inline TensorIterator TensorIterator::comparison_op(Tensor& out, const Tensor& a, const Tensor& b) {
  if (!out.defined()) out = empty({0}, TensorOptions(kBool));
  return detail::promoting(out, {a, b}).enforce_safe_casting_to_output(false).build();
}

namespace native {
namespace detail {
template <class F>
struct Signature : Signature<decltype(&F::operator())> {};
template <class R, class... A>
struct Signature<R (*)(A...)> {
  using Result = R;
  using Places = std::index_sequence_for<A...>;
  template <class F, size_t... place>
  static R apply(F& function, char** data, const int64_t* strides, int64_t at, std::index_sequence<place...>) {
    return function(*reinterpret_cast<std::decay_t<A>*>(data[place] + at * strides[place])...);
  }
};
template <class C, class R, class... A>
struct Signature<R (C::*)(A...) const> : Signature<R (*)(A...)> {};
template <class C, class R, class... A>
struct Signature<R (C::*)(A...)> : Signature<R (*)(A...)> {};

template <class R, size_t... place>
void store(R result, char** data, const int64_t* strides, int64_t at, std::index_sequence<place...>) {
  ((*reinterpret_cast<std::tuple_element_t<place, R>*>(data[place] + at * strides[place]) = std::get<place>(result)), ...);
}
}  // namespace detail

// Computes each element of the output by a function of the elements of the inputs.
template <class F>
void cpu_kernel(TensorIteratorBase& iter, F&& function, int64_t grain_size = at::internal::GRAIN_SIZE) {
  using S = detail::Signature<std::decay_t<F>>;
  iter.for_each([&](char** data, const int64_t* strides, int64_t count) {
    for (int64_t at = 0; at < count; ++at) {
      if constexpr (std::is_void_v<typename S::Result>)
        S::apply(function, data, strides, at, typename S::Places());
      else
        *reinterpret_cast<typename S::Result*>(data[0] + at * strides[0]) = S::apply(function, data + 1, strides + 1, at, typename S::Places());
    }
  }, grain_size);
  iter.cast_outputs();
}
template <class F>
void cpu_serial_kernel(TensorIteratorBase& iter, F&& function) { cpu_kernel(iter, std::forward<F>(function)); }
// A function of a tuple of results, one for each output.
template <class F>
void cpu_kernel_multiple_outputs(TensorIteratorBase& iter, F&& function, int64_t grain_size = at::internal::GRAIN_SIZE) {
  using S = detail::Signature<std::decay_t<F>>;
  using R = typename S::Result;
  constexpr size_t count_of_results = std::tuple_size_v<R>;
  iter.for_each([&](char** data, const int64_t* strides, int64_t count) {
    for (int64_t at = 0; at < count; ++at)
      detail::store<R>(S::apply(function, data + count_of_results, strides + count_of_results, at, typename S::Places()), data, strides, at,
                       std::make_index_sequence<count_of_results>());
  }, grain_size);
  iter.cast_outputs();
}
}  // namespace native
}  // namespace at
namespace torch {
using at::TensorIterator;
using at::TensorIteratorConfig;
}  // namespace torch
