// What errors.h declares, compiled once for all extensions.
#pragma once

#include "../errors.h"

namespace c10 {
void Part::write_text(std::ostream& out, const void* at) { out << static_cast<const char*>(at); }
namespace detail {
std::string joined(std::initializer_list<Part> parts) {
  std::ostringstream text;
  for (const auto& part : parts) part.write(text);
  return text.str();
}
std::string message_of(const char* condition, std::initializer_list<Part> parts) {
  return parts.size() ? joined(parts) : std::string("Expected ") + condition + " to be true, but got false.";
}
}  // namespace detail
}  // namespace c10

namespace telegrad {
const int64_t* request(Verb verb, const Words& words) {
  TORCH_CHECK(context != nullptr, "tensors can be used once the extension is loaded, not while it is being loaded");
  TORCH_CHECK(pthread_equal(pthread_self(), calling_thread),
              "an extension may use functions of tensors on the thread that called it only; "
              "other threads may work on their memory");
  using Callback = int64_t (*)(int64_t, int64_t, int64_t);
  const auto ask = reinterpret_cast<Callback>(context[CALLBACK]);
  const int64_t failed = ask(verb, reinterpret_cast<int64_t>(words.words.data()), static_cast<int64_t>(words.words.size()));
  const int64_t* answer = context + BUFFER;
  if (!failed) return context[RESULT_ADDRESS] ? reinterpret_cast<const int64_t*>(context[RESULT_ADDRESS]) : answer;
  Reader reader(answer);
  const int64_t type = reader.next();
  reader.next();
  std::string message = reader.next_bytes();
  switch (type) {
    case 1: throw c10::IndexError(message);
    case 2: throw c10::ValueError(message);
    case 3: throw c10::TypeError(message);
    case 4: throw c10::NotImplementedError(message);
    case 5: throw c10::OutOfMemoryError(message);
    default: throw c10::Error(message);
  }
}
void warn(const std::string& message, const char* file, int line) {
  Words words;
  words.put_bytes(message.data(), message.size());
  words.put_bytes(file, std::strlen(file));
  words.put(INTEGER, line);
  request(WARN, words);
}
}  // namespace telegrad
