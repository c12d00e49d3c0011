// What words.h declares, compiled once for all extensions.
#pragma once

#include "../words.h"

namespace telegrad {
void Words::put(int64_t word) { words.push_back(word); }
void Words::put(Kind kind, int64_t word) {
  words.push_back(kind);
  words.push_back(word);
}
void Words::put_double(double number) {
  int64_t bits;
  std::memcpy(&bits, &number, sizeof bits);
  words.push_back(bits);
}
void Words::put_bytes(const char* text, size_t count) {
  put(STRING, static_cast<int64_t>(count));
  const size_t at = words.size();
  words.resize(at + (count + 7) / 8);
  if (count) std::memcpy(words.data() + at, text, count);
}
double Reader::next_double() {
  double number;
  std::memcpy(&number, at++, sizeof number);
  return number;
}
std::string Reader::next_bytes() {
  const auto count = static_cast<size_t>(next());
  std::string text(reinterpret_cast<const char*>(at), count);
  at += (count + 7) / 8;
  return text;
}
}  // namespace telegrad
