// Exceptions, and the macros that check what a function was given.
#pragma once

#include <exception>
#include <sstream>
#include <stdexcept>
#include <string>

#include "words.h"

namespace c10 {

// Where an error is thrown; Python is told the message alone.
struct SourceLocation {
  const char* function;
  const char* file;
  uint32_t line;
};

class Error : public std::exception {
 public:
  explicit Error(std::string message) : message_(std::move(message)) {}
  Error(SourceLocation, std::string message) : Error(std::move(message)) {}
  const char* what() const noexcept override { return message_.c_str(); }
  const char* what_without_backtrace() const noexcept { return message_.c_str(); }
  const std::string& msg() const { return message_; }

 private:
  std::string message_;
};
class IndexError : public Error { using Error::Error; };
class ValueError : public Error { using Error::Error; };
class TypeError : public Error { using Error::Error; };
class NotImplementedError : public Error { using Error::Error; };
class LinAlgError : public Error { using Error::Error; };
class OutOfMemoryError : public Error { using Error::Error; };

namespace detail {
inline void append(std::ostringstream&) {}
template <class First, class... Rest>
void append(std::ostringstream& text, const First& first, const Rest&... rest) {
  text << first;
  append(text, rest...);
}
}  // namespace detail

template <class... Parts>
std::string str(const Parts&... parts) {
  std::ostringstream text;
  detail::append(text, parts...);
  return text.str();
}

namespace detail {
template <class... Parts>
std::string message_of(const char* condition, const Parts&... parts) {
  if constexpr (sizeof...(parts) == 0)
    return std::string("Expected ") + condition + " to be true, but got false.";
  else
    return str(parts...);
}
template <class T>
T&& not_null(T&& pointer, const char* name) {
  if (pointer == nullptr) throw Error(str("Check failed: '", name, "' must be non NULL"));
  return std::forward<T>(pointer);
}
}  // namespace detail
}  // namespace c10

#define TELEGRAD_CHECK_AS(type, condition, ...) \
  if (__builtin_expect(!(condition), 0)) throw ::c10::type(::c10::detail::message_of(#condition, ##__VA_ARGS__))

#define TORCH_CHECK(condition, ...) TELEGRAD_CHECK_AS(Error, condition, ##__VA_ARGS__)
#define TORCH_CHECK_INDEX(condition, ...) TELEGRAD_CHECK_AS(IndexError, condition, ##__VA_ARGS__)
#define TORCH_CHECK_VALUE(condition, ...) TELEGRAD_CHECK_AS(ValueError, condition, ##__VA_ARGS__)
#define TORCH_CHECK_TYPE(condition, ...) TELEGRAD_CHECK_AS(TypeError, condition, ##__VA_ARGS__)
#define TORCH_CHECK_NOT_IMPLEMENTED(condition, ...) TELEGRAD_CHECK_AS(NotImplementedError, condition, ##__VA_ARGS__)
#define TORCH_CHECK_LINALG(condition, ...) TELEGRAD_CHECK_AS(LinAlgError, condition, ##__VA_ARGS__)
#define TORCH_CHECK_WITH(type, condition, ...) TELEGRAD_CHECK_AS(type, condition, ##__VA_ARGS__)
#define TORCH_CHECK_ARG(condition, place, ...) TORCH_CHECK(condition, "invalid argument ", place, ": ", ##__VA_ARGS__)
#define C10_THROW_ERROR(type, message) throw ::c10::type({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, message)
#define TORCH_CHECK_NOTNULL(pointer) ::c10::detail::not_null(pointer, #pointer)
#define TORCH_CHECK_EQ(a, b) TORCH_CHECK((a) == (b), "Check failed: " #a " == " #b " (", (a), " vs. ", (b), ")")
#define TORCH_CHECK_NE(a, b) TORCH_CHECK((a) != (b), "Check failed: " #a " != " #b " (", (a), " vs. ", (b), ")")
#define TORCH_CHECK_LT(a, b) TORCH_CHECK((a) < (b), "Check failed: " #a " < " #b " (", (a), " vs. ", (b), ")")
#define TORCH_CHECK_LE(a, b) TORCH_CHECK((a) <= (b), "Check failed: " #a " <= " #b " (", (a), " vs. ", (b), ")")
#define TORCH_CHECK_GT(a, b) TORCH_CHECK((a) > (b), "Check failed: " #a " > " #b " (", (a), " vs. ", (b), ")")
#define TORCH_CHECK_GE(a, b) TORCH_CHECK((a) >= (b), "Check failed: " #a " >= " #b " (", (a), " vs. ", (b), ")")
#define TORCH_INTERNAL_ASSERT(condition, ...) \
  TORCH_CHECK(condition, #condition " INTERNAL ASSERT FAILED at \"", __FILE__, "\":", __LINE__, ". ", ##__VA_ARGS__)
#define TORCH_INTERNAL_ASSERT_DEBUG_ONLY(...) ((void)0)
#define AT_CHECK TORCH_CHECK
#define AT_ASSERT TORCH_INTERNAL_ASSERT
#define AT_ASSERTM(condition, ...) TORCH_CHECK(condition, ##__VA_ARGS__)
#define AT_ERROR(...) throw ::c10::Error(::c10::str(__VA_ARGS__))
// A warning of Python's in the program that called the extension; a program may make it an error there.
#define TORCH_WARN(...) ::telegrad::warn(::c10::str(__VA_ARGS__), __FILE__, __LINE__)
#define TORCH_WARN_ONCE(...)                                     \
  do {                                                           \
    static const bool has_warned = (TORCH_WARN(__VA_ARGS__), true); \
    (void)has_warned;                                            \
  } while (false)
#define TORCH_WARN_DEPRECATION(...) TORCH_WARN(__VA_ARGS__)

namespace telegrad {

inline const int64_t* request(Verb verb, const Words& words) {
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

inline void warn(const std::string& message, const char* file, int line) {
  Words words;
  words.put_bytes(message.data(), message.size());
  words.put_bytes(file, std::strlen(file));
  words.put(INTEGER, line);
  request(WARN, words);
}

}  // namespace telegrad
