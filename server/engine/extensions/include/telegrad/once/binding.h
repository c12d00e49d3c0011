// What binding.h declares, compiled once for all extensions.
#pragma once

#include "../binding.h"

namespace telegrad {
Registry& registry() {
  static Registry known;
  return known;
}
Function described(std::string name, std::initializer_list<std::string> types, std::string result) {
  Function made;
  made.name = std::move(name);
  made.result = std::move(result);
  for (const auto& type : types) made.parameters.push_back({"arg" + std::to_string(made.parameters.size()), type});
  return made;
}
void enter(Function&& made) { registry().functions.push_back(std::move(made)); }
void enter(const std::string& attribute, Words&& value) { registry().attributes.emplace_back(attribute, std::move(value)); }
std::vector<void (*)()>& pending() {
  static std::vector<void (*)()> waiting;
  return waiting;
}
AtLoad::AtLoad(void (*run)()) { pending().push_back(run); }
}  // namespace telegrad

namespace pybind11 {
void dict::put(const arg& given) const {
  telegrad::Reader reader(given.value.words.data());
  (*this)[std::string(given.name)] = telegrad::Codec<object>::take(reader);
}
module_ module_::def_submodule(const char* name, const char* doc) {
  telegrad::registry().modules.emplace_back(path(name), doc);
  return {*this, name};
}
std::string& module_::doc() { return telegrad::registry().doc; }
void describe(telegrad::Function& function, size_t&, const char* doc) { function.doc = doc; }
void describe(telegrad::Function& function, size_t&, const std::string& doc) { function.doc = doc; }
void describe(telegrad::Function& function, size_t& named, const arg& given) {
  TORCH_CHECK(named < function.parameters.size(), "def(\"", function.name, "\"): more names than parameters");
  auto& parameter = function.parameters[named++];
  parameter.name = given.name;
  parameter.has_default = given.has_default;
  parameter.value = given.value;
}
void describe(telegrad::Function& function, size_t& named, kw_only) { function.by_place = static_cast<int64_t>(named); }
void describe(telegrad::Function& function, size_t& named, pos_only) { function.unnamed = static_cast<int64_t>(named); }
void describe(telegrad::Function& function, size_t&, is_operator) {
  if (function.role == telegrad::METHOD) function.role = telegrad::OPERATOR;
}
void describe(telegrad::Function& function, size_t&, return_value_policy policy) {
  function.refers = policy == return_value_policy::reference || policy == return_value_policy::reference_internal;
}
}  // namespace pybind11
