// What python/overrides.h declares, compiled once for all extensions.
#pragma once

#include "../python/overrides.h"

namespace telegrad {
std::unordered_map<const void*, std::vector<std::string>>& overrides() {
  static std::unordered_map<const void*, std::vector<std::string>> known;
  return known;
}
void each_address(void* pointer, int64_t type, const std::function<void(void*)>& visit) {
  visit(pointer);
  for (const auto& [base, cast] : classes()[static_cast<size_t>(type)].bases) each_address(cast(pointer), base, visit);
}

void note_overrides(AnyInstance one, const std::vector<std::string>& names) {
  const auto found = instances().find(one.number);
  if (found == instances().end()) refuse("an instance that still exists");
  each_address(found->second.pointer.get(), found->second.type, [&](void* at) { overrides()[at] = names; });
}
void forget_overrides(const Instance& one) {
  if (overrides().empty()) return;
  each_address(one.pointer.get(), one.type, [](void* at) { overrides().erase(at); });
}
bool is_overridden(const void* at, const char* name) {
  const auto found = overrides().find(at);
  return found != overrides().end() && std::find(found->second.begin(), found->second.end(), name) != found->second.end();
}
AnyInstance Codec<AnyInstance>::take(Reader& reader) {
  if (reader.next() != OBJECT) refuse("an instance of a class of the extension");
  const AnyInstance taken{reader.next()};
  reader.next();
  return taken;
}
void refuse_override(const std::string& type, const char* name) {
  throw c10::NotImplementedError(c10::str(
      type, ".", name, " is overridden in Python, which C++ in the server's ",
      "worker cannot call: call the method from Python and give C++ what it returns, or override it in C++"));
}
}  // namespace telegrad
