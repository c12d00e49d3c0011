// Exceptions, and the macros that check what a function was given.
#pragma once

#include <exception>
#include <initializer_list>
#include <ostream>
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
// An exception of Python's that C++ has none for: Python is told its type by name.
class PythonError : public Error {
 public:
  PythonError(const char* type, std::string message) : Error(std::move(message)), type_(type) {}
  const char* type() const noexcept { return type_; }

 private:
  const char* type_;
};
class LinAlgError : public Error { using Error::Error; };
class OutOfMemoryError : public Error { using Error::Error; };

// A part of a text, and how it is written.
class Part {
 public:
  template <class T>
  Part(const T& value) : at_(&value), write_([](std::ostream& out, const void* at) { out << *static_cast<const T*>(at); }) {}
  template <size_t N>
  Part(const char (&text)[N]) : at_(text), write_(&write_text) {}
  void write(std::ostream& out) const { write_(out, at_); }

 private:
  static void write_text(std::ostream& out, const void* at);
  const void* at_;
  void (*write_)(std::ostream&, const void*);
};
namespace detail {
std::string joined(std::initializer_list<Part> parts);
// The message of a check that has failed: its own words, else the condition.
[[gnu::cold]] std::string message_of(const char* condition, std::initializer_list<Part> parts);
template <class E>
[[noreturn, gnu::cold, gnu::noinline]] void fail(const char* condition, std::initializer_list<Part> parts) {
  throw E(message_of(condition, parts));
}
template <class T>
T&& not_null(T&& pointer, const char* name) {
  if (pointer == nullptr) throw Error(joined({"Check failed: '", name, "' must be non NULL"}));
  return std::forward<T>(pointer);
}
}  // namespace detail
template <class... Parts>
std::string str(const Parts&... parts) { return detail::joined({Part(parts)...}); }
}  // namespace c10

#define TELEGRAD_CHECK_AS(type, condition, ...) \
  if (__builtin_expect(!(condition), 0)) ::c10::detail::fail<::c10::type>(#condition, {__VA_ARGS__})

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

const int64_t* request(Verb verb, const Words& words);

void warn(const std::string& message, const char* file, int line);

}  // namespace telegrad
