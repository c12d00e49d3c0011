// How values pass between an extension and its worker: as 64-bit words, in both directions.
//
// A value is its kind and what belongs to it; `words.py` on the worker's side says the same. The worker and all
// extensions in its process share one array of words, the context, whose first places have the meanings of `Place`.
#pragma once

#include <pthread.h>

#include <complex>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace telegrad {

enum Kind : int64_t {
  NONE, TENSOR, INTEGER, FLOAT, BOOLEAN, STRING, LIST, TUPLE, COMPLEX, DTYPE, DEVICE, DICT, KEYWORD, OBJECT, ENUMERATOR,
  SET
};
enum Place : int64_t {
  ABI, CALLBACK, RESULT_COUNT, RESULT_ADDRESS, DEAD_COUNT, CURRENT_DEVICE, READS_DATA, DEFAULT_DTYPE, GRAD_MODE,
  READY_COUNT, READY_ADDRESS, ASKED,
  STREAMS = 16, DEAD = 64, BUFFER = 1024
};
enum Verb : int64_t { EMPTY, CALL, ITEM, HAS_CUDA, MANUAL_SEED, SET_GRAD_MODE, RUN, KEEP, DRAIN, NODE, SAVED, WARN };
constexpr int64_t ABI_VERSION = 2, MOST_DEAD = BUFFER - DEAD, BUFFER_WORDS = 8192 - BUFFER;

inline int64_t* context = nullptr;
inline pthread_t calling_thread{};

class Words {
 public:
  std::vector<int64_t> words;

  void put(int64_t word);
  void put(Kind kind, int64_t word);
  void put_double(double number);
  void put_bytes(const char* text, size_t count);
};

class Reader {
 public:
  explicit Reader(const int64_t* from) : at(from) {}
  const int64_t* at;

  int64_t next() { return *at++; }
  int64_t peek() const { return *at; }
  double next_double();
  std::string next_bytes();  // behind the kind
};

// Asks the worker for something; the answer stands in the buffer of the context. Throws what the worker refuses.
const int64_t* request(Verb verb, const Words& words);

}  // namespace telegrad
