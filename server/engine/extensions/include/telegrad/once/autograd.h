// What autograd.h declares, compiled once for all extensions.
#pragma once

#include "../autograd.h"

namespace telegrad {
std::unordered_map<int64_t, Differentiated>& differentiated() {
  static std::unordered_map<int64_t, Differentiated> known;
  return known;
}
void gather(variable_list& variables, std::vector<bool>& are, const at::Tensor& given) {
  variables.push_back(given);
  are.push_back(true);
}
void gather(variable_list& variables, std::vector<bool>& are, const std::optional<at::Tensor>& given) {
  gather(variables, are, given.has_value() ? *given : at::Tensor());
}
void gather(variable_list& variables, std::vector<bool>& are, at::TensorList given) {
  for (const auto& tensor : given) gather(variables, are, tensor);
}
bool holds(const variable_list& listed, const at::Tensor& tensor) {
  for (const auto& other : listed)
    if (other.is_same(tensor)) return true;
  return false;
}
void record(Differentiated made, const variable_list& inputs, variable_list& outputs) {
  static int64_t last = 0;
  AutogradContext& context = *made.context;
  const int64_t number = context.number_ = ++last;
  std::vector<bool> are_dirty, are_differentiable;
  for (const auto& dirty : context.dirty_)
    TORCH_CHECK(holds(outputs, dirty), "Some elements marked as dirty during the forward method were not returned as "
                "output. The inputs that are modified inplace must all be outputs of the Function.");
  for (auto& output : outputs) {
    const bool is_dirty = output.defined() && holds(context.dirty_, output);
    const bool has_gradient = output.defined() && !holds(context.non_differentiable_, output);
    if (output.defined() && !is_dirty && holds(inputs, output)) {
      at::NoGradGuard guard;
      output = output.view_as(output);
    }
    are_dirty.push_back(is_dirty);
    are_differentiable.push_back(has_gradient && (at::isFloatingType(output.scalar_type()) || output.is_complex()));
  }
  Words words;
  words.put(number);
  put(words, made.name);
  put(words, inputs);
  put(words, outputs);
  put(words, context.saved_);
  put(words, are_dirty);
  put(words, are_differentiable);
  put(words, context.materializes_);
  context.saved_.clear();
  context.dirty_.clear();
  context.non_differentiable_.clear();
  context.is_recorded_ = true;
  differentiated().emplace(number, std::move(made));
  try {
    request(NODE, words);
  } catch (...) {
    differentiated().erase(number);
    throw;
  }
  for (size_t place = 0; place < outputs.size(); ++place)
    if (are_differentiable[place]) outputs[place].impl().requires_grad = true;
}
variable_list differentiate(int64_t number, const variable_list& gradients) {
  const auto found = differentiated().find(number);
  TORCH_CHECK(found != differentiated().end(), "the function that a gradient is asked of was released");
  const Differentiated& made = found->second;
  variable_list given = made.backward(made.context.get(), gradients);
  const auto& are = made.context->are_variables_;
  const size_t count = are.size();
  while (given.size() > count && !given.back().defined()) given.pop_back();
  TORCH_CHECK(given.size() == count, "function ", made.name, " returned an incorrect number of gradients (expected ",
              count, ", got ", given.size(), ")");
  variable_list chosen;
  for (size_t place = 0; place < count; ++place) {
    if (are[place])
      chosen.push_back(given[place]);
    else
      TORCH_CHECK(!given[place].defined(), "function ", made.name, " returned a gradient different from None at position ",
                  place + 1, ", but the corresponding forward input was not a Variable");
  }
  return chosen;
}
}  // namespace telegrad
