// torch::nn: modules of C++ programs, their parameters, and how these are initialised.
#pragma once

#include "functional.h"

namespace torch {
// Names and what they stand for, in the order in which they came.
template <class K, class V>
class OrderedDict {
 public:
  class Item {
   public:
    Item(K key, V value) : pair_(std::move(key), std::move(value)) {}
    const K& key() const { return pair_.first; }
    V& value() { return pair_.second; }
    const V& value() const { return pair_.second; }
    V& operator*() { return pair_.second; }
    V* operator->() { return &pair_.second; }
    const std::pair<K, V>& pair() const { return pair_; }

   private:
    std::pair<K, V> pair_;
  };
  auto begin() { return items_.begin(); }
  auto end() { return items_.end(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  size_t size() const { return items_.size(); }
  bool is_empty() const { return items_.empty(); }
  Item& operator[](size_t at) { return items_[at]; }
  V* find(const K& key) {
    for (auto& item : items_)
      if (item.key() == key) return &item.value();
    return nullptr;
  }
  bool contains(const K& key) const { return const_cast<OrderedDict*>(this)->find(key) != nullptr; }
  V& operator[](const K& key) {
    V* found = find(key);
    TORCH_CHECK(found != nullptr, "Key '", key, "' is not defined");
    return *found;
  }
  V& insert(K key, V value) {
    TORCH_CHECK(!contains(key), "Key '", key, "' already defined");
    items_.emplace_back(std::move(key), std::move(value));
    return items_.back().value();
  }
  std::vector<K> keys() const {
    std::vector<K> made;
    for (const auto& item : items_) made.push_back(item.key());
    return made;
  }
  std::vector<V> values() const {
    std::vector<V> made;
    for (const auto& item : items_) made.push_back(item.value());
    return made;
  }

 private:
  std::vector<Item> items_;
};

namespace nn {
template <class Impl>
class ModuleHolder;

class Module : public std::enable_shared_from_this<Module> {
 public:
  explicit Module(std::string name = "Module") : name_(std::move(name)) {}
  Module(const Module&) = default;
  virtual ~Module() = default;
  const std::string& name() const { return name_; }
  at::Tensor& register_parameter(std::string name, at::Tensor tensor, bool requires_grad = true) {
    if (tensor.defined() && requires_grad && tensor.is_floating_point()) tensor = tensor.detach().requires_grad_();
    return parameters_.insert(std::move(name), tensor);
  }
  at::Tensor& register_buffer(std::string name, at::Tensor tensor) { return buffers_.insert(std::move(name), tensor); }
  template <class M>
  std::shared_ptr<M> register_module(std::string name, std::shared_ptr<M> module) {
    children_.insert(std::move(name), module);
    return module;
  }
  template <class Impl>
  std::shared_ptr<Impl> register_module(std::string name, ModuleHolder<Impl> module) { return register_module(std::move(name), module.ptr()); }
  OrderedDict<std::string, at::Tensor> named_parameters(bool recurse = true) const { return named(&Module::parameters_, recurse); }
  OrderedDict<std::string, at::Tensor> named_buffers(bool recurse = true) const { return named(&Module::buffers_, recurse); }
  std::vector<at::Tensor> parameters(bool recurse = true) const { return named_parameters(recurse).values(); }
  std::vector<at::Tensor> buffers(bool recurse = true) const { return named_buffers(recurse).values(); }
  const OrderedDict<std::string, std::shared_ptr<Module>>& named_children() const { return children_; }
  std::vector<std::shared_ptr<Module>> children() const { return children_.values(); }
  bool is_training() const { return training_; }
  virtual void train(bool on = true) {
    for (auto& child : children_) child.value()->train(on);
    training_ = on;
  }
  void eval() { train(false); }
  template <class... A>
  void to(const A&... given) {
    for (auto* list : {&parameters_, &buffers_})
      for (auto& item : *list)
        if (item.value().defined()) item.value().become(item.value().to(given...).detach().clone().requires_grad_(item.value().requires_grad()));
    for (auto& child : children_) child.value()->to(given...);
  }
  void apply(const std::function<void(Module&)>& visit) {
    for (auto& child : children_) child.value()->apply(visit);
    visit(*this);
  }

 private:
  using Tensors = OrderedDict<std::string, at::Tensor>;
  Tensors named(Tensors Module::*list, bool recurse) const {
    Tensors made;
    for (const auto& item : this->*list)
      if (item.value().defined()) made.insert(item.key(), item.value());
    if (recurse)
      for (const auto& child : children_)
        for (const auto& item : child.value()->named(list, true)) made.insert(child.key() + "." + item.key(), item.value());
    return made;
  }
  std::string name_;
  Tensors parameters_, buffers_;
  OrderedDict<std::string, std::shared_ptr<Module>> children_;
  bool training_ = true;
};
template <class Derived>
class Cloneable : public Module {
 public:
  using Module::Module;
};

// What programs have of a module: a shared pointer that is made with the module's arguments, and called as it is.
template <class Contained>
class ModuleHolder {
 public:
  using ContainedType = Contained;
  template <class C = Contained, class = std::enable_if_t<std::is_default_constructible_v<C>>>
  ModuleHolder() : impl_(std::make_shared<Contained>()) {}
  ModuleHolder(std::nullptr_t) {}
  ModuleHolder(std::shared_ptr<Contained> module) : impl_(std::move(module)) {}
  template <class Head, class... Tail, class = std::enable_if_t<!std::is_base_of_v<ModuleHolder, std::decay_t<Head>> &&
                                                                !std::is_convertible_v<Head, std::shared_ptr<Contained>>>>
  explicit ModuleHolder(Head&& head, Tail&&... tail)
      : impl_(std::make_shared<Contained>(std::forward<Head>(head), std::forward<Tail>(tail)...)) {}
  explicit operator bool() const { return impl_ != nullptr; }
  bool is_empty() const { return impl_ == nullptr; }
  Contained* operator->() const { return get(); }
  Contained& operator*() const { return *get(); }
  Contained* get() const {
    TORCH_CHECK(impl_ != nullptr, "Accessing empty ModuleHolder");
    return impl_.get();
  }
  const std::shared_ptr<Contained>& ptr() const { return impl_; }
  template <class... A>
  auto operator()(A&&... given) const { return get()->forward(std::forward<A>(given)...); }

 private:
  std::shared_ptr<Contained> impl_;
};
#define TORCH_MODULE_IMPL(Name, ImplType)                          \
  class Name : public ::torch::nn::ModuleHolder<ImplType> {        \
   public:                                                         \
    using ::torch::nn::ModuleHolder<ImplType>::ModuleHolder;       \
    using Impl = ImplType;                                         \
  }
#define TORCH_MODULE(Name) TORCH_MODULE_IMPL(Name, Name##Impl)

namespace init {
inline at::Tensor constant_(at::Tensor t, const at::Scalar& value) { at::NoGradGuard guard; return t.fill_(value); }
inline at::Tensor zeros_(at::Tensor t) { return constant_(t, 0); }
inline at::Tensor ones_(at::Tensor t) { return constant_(t, 1); }
inline at::Tensor uniform_(at::Tensor t, double low = 0, double high = 1) { at::NoGradGuard guard; at::run("uniform_", t, low, high); return t; }
inline at::Tensor normal_(at::Tensor t, double mean = 0, double std = 1) { at::NoGradGuard guard; at::run("normal_", t, mean, std); return t; }
inline std::pair<double, double> fans(const at::Tensor& t) {
  const auto field = static_cast<double>(t.numel() / (t.size(0) * t.size(1)));
  return {static_cast<double>(t.size(1)) * field, static_cast<double>(t.size(0)) * field};
}
inline at::Tensor xavier_uniform_(at::Tensor t, double gain = 1) {
  const auto [in, out] = fans(t);
  const double bound = gain * std::sqrt(6 / (in + out));
  return uniform_(t, -bound, bound);
}
inline at::Tensor xavier_normal_(at::Tensor t, double gain = 1) {
  const auto [in, out] = fans(t);
  return normal_(t, 0, gain * std::sqrt(2 / (in + out)));
}
inline double calculate_gain(telegrad::Word kind, double param = 0.01) {
  if (kind == kTanh) return 5.0 / 3;
  if (kind == kReLU) return std::sqrt(2.0);
  return kind == kLeakyReLU ? std::sqrt(2 / (1 + param * param)) : 1;
}
inline at::Tensor kaiming_uniform_(at::Tensor t, double a = 0, telegrad::Word mode = kFanIn, telegrad::Word kind = kLeakyReLU) {
  const auto [in, out] = fans(t);
  const double bound = calculate_gain(kind, a) * std::sqrt(3 / (mode == kFanIn ? in : out));
  return uniform_(t, -bound, bound);
}
inline at::Tensor kaiming_normal_(at::Tensor t, double a = 0, telegrad::Word mode = kFanIn, telegrad::Word kind = kLeakyReLU) {
  const auto [in, out] = fans(t);
  return normal_(t, 0, calculate_gain(kind, a) / std::sqrt(mode == kFanIn ? in : out));
}
}  // namespace init
}  // namespace nn
}  // namespace torch
