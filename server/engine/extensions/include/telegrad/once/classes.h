// What classes.h declares, compiled once for all extensions.
#pragma once

#include "../classes.h"

namespace telegrad {
std::vector<Class>& classes() {
  static std::vector<Class> known;
  return known;
}
std::unordered_map<int64_t, Instance>& instances() {
  static std::unordered_map<int64_t, Instance> held;
  return held;
}
std::unordered_multimap<const void*, int64_t>& addresses() {
  static std::unordered_multimap<const void*, int64_t> known;
  return known;
}
void drop_instance(int64_t number) {
  const auto found = instances().find(number);
  if (found == instances().end()) return;
  forget_overrides(found->second);
  const auto [first, last] = addresses().equal_range(found->second.pointer.get());
  addresses().erase(std::find_if(first, last, [&](const auto& known) { return known.second == number; }));
  const auto dropped = std::move(found->second);  // its end may look for others
  instances().erase(found);
}
void* as_class(void* pointer, int64_t type, int64_t wanted) {
  if (type == wanted) return pointer;
  for (const auto& [base, cast] : classes()[static_cast<size_t>(type)].bases)
    if (void* found = as_class(cast(pointer), base, wanted)) return found;
  return nullptr;
}
}  // namespace telegrad
