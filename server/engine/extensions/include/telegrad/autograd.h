// torch::autograd::Function: operations whose forward and backward are functions of the extension.
//
// Function::apply runs forward without recording, and has the worker make a node of the backward graph whose gradients
// the extension computes. The node keeps what was saved, as all nodes do: it checks versions, and makes no cycles.
#pragma once

#include <memory>
#include <unordered_set>

#include "dispatch.h"
#include "functions.h"
#include "ivalue.h"

namespace torch {
namespace autograd {
using Variable = at::Tensor;
using variable_list = std::vector<at::Tensor>;
using tensor_list = variable_list;

struct AutogradContext {
  AutogradContext() = default;
  AutogradContext(const AutogradContext&) = delete;
  AutogradContext& operator=(const AutogradContext&) = delete;

  std::unordered_map<std::string, c10::IValue> saved_data;

  void save_for_backward(variable_list tensors) { saved_ = std::move(tensors); }
  variable_list get_saved_variables() const {
    if (!is_recorded_) return saved_;
    telegrad::Words words;
    words.put(number_);
    telegrad::Reader reader(telegrad::request(telegrad::SAVED, words));
    return telegrad::Codec<variable_list>::take(reader);
  }
  void mark_dirty(const variable_list& inputs) { dirty_ = inputs; }
  void mark_non_differentiable(const variable_list& outputs) { non_differentiable_ = outputs; }
  void set_materialize_grads(bool value) { materializes_ = value; }
  bool needs_input_grad(size_t edge) const { return edge < needs_.size() && needs_[edge]; }
  bool needs_input_grad(std::initializer_list<std::pair<size_t, size_t>> ranges) const {
    for (const auto& [first, last] : ranges)
      for (size_t edge = first; edge < last; ++edge)
        if (needs_input_grad(edge)) return true;
    return false;
  }

  // What follows is not part of PyTorch's interface.
  int64_t number_ = 0;
  bool is_recorded_ = false, materializes_ = true;
  variable_list saved_, dirty_, non_differentiable_;
  std::vector<bool> needs_;
  std::vector<bool> are_variables_;  // of the arguments of forward, lists counted by their elements
};
}  // namespace autograd
}  // namespace torch

namespace telegrad {
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Differentiated {
  std::unique_ptr<AutogradContext> context;
  variable_list (*backward)(AutogradContext*, variable_list);
  std::string name;
};
// What nodes of the worker's graph compute their gradients by, under the numbers that they know them by.
std::unordered_map<int64_t, Differentiated>& differentiated();

void gather(variable_list& variables, std::vector<bool>& are, const at::Tensor& given);
void gather(variable_list& variables, std::vector<bool>& are, const std::optional<at::Tensor>& given);
void gather(variable_list& variables, std::vector<bool>& are, at::TensorList given);
template <class T>
void gather(variable_list& variables, std::vector<bool>& are, const T& given) {
  if constexpr (std::is_convertible_v<const T&, at::TensorList>) {
    gather(variables, are, at::TensorList(given));
  } else {
    are.push_back(false);
  }
}
// The name of a type, as the compiler writes it in the name of this function.
template <class X>
std::string type_name() {
  const std::string text = __PRETTY_FUNCTION__;
  const size_t begin = text.find("X = ") + 4;
  return text.substr(begin, text.find_first_of(";]", begin) - begin);
}
bool holds(const variable_list& listed, const at::Tensor& tensor);

// Has the worker make the node of a call that is recorded.
void record(Differentiated made, const variable_list& inputs, variable_list& outputs);

// The gradients of the tensors that a function was applied to, one for each.
variable_list differentiate(int64_t number, const variable_list& gradients);
}  // namespace telegrad

namespace torch {
namespace autograd {
template <class T>
struct Function {
  template <class X = T, class... A>
  static auto apply(A&&... given) -> std::decay_t<decltype(X::forward(nullptr, given...))> {
    using Result = std::decay_t<decltype(X::forward(nullptr, given...))>;
    static_assert(std::is_same_v<Result, at::Tensor> || std::is_same_v<Result, variable_list>,
                  "forward of a torch::autograd::Function returns a Tensor or a variable_list");
    telegrad::Differentiated made{
        std::make_unique<AutogradContext>(),
        [](AutogradContext* context, variable_list gradients) -> variable_list {
          return X::backward(context, std::move(gradients));
        },
        telegrad::type_name<X>()};
    AutogradContext& context = *made.context;
    variable_list inputs;
    (telegrad::gather(inputs, context.are_variables_, given), ...);
    bool is_recorded = false;
    for (const auto& input : inputs) {
      context.needs_.push_back(input.defined() && input.requires_grad());
      is_recorded |= context.needs_.back();
    }
    is_recorded &= at::GradMode::is_enabled();
    Result result = [&] {
      at::NoGradGuard guard;
      return X::forward(&context, std::forward<A>(given)...);
    }();
    if (!is_recorded) return result;
    if constexpr (std::is_same_v<Result, at::Tensor>) {
      variable_list outputs{result};
      telegrad::record(std::move(made), inputs, outputs);
      return outputs[0];
    } else {
      telegrad::record(std::move(made), inputs, result);
      return result;
    }
  }
};
}  // namespace autograd
}  // namespace torch
