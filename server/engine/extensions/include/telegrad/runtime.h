// The entry points of an extension's library, defined in one source of it.
#pragma once

#include <new>

#include "binding.h"
#include "class_binding.h"
#include "cuda.h"
#include "cuda_calls.h"
#include "networks.h"
#include "once/autograd.h"
#include "once/binding.h"
#include "once/checks.h"
#include "once/classes.h"
#include "once/composites.h"
#include "once/errors.h"
#include "once/functions.h"
#include "once/indexing.h"
#include "once/ivalue.h"
#include "once/members.h"
#include "once/networks.h"
#include "once/objects.h"
#include "once/overrides.h"
#include "once/shapes.h"
#include "once/tensor.h"
#include "once/types.h"
#include "once/words.h"
#include "python/enums.h"
#include "python/overrides.h"

namespace telegrad {
inline Words answer;

// Leaves the words of the answer where the worker looks for them.
inline void publish() {
  const auto count = static_cast<int64_t>(answer.words.size());
  context[RESULT_COUNT] = count;
  context[RESULT_ADDRESS] = count > BUFFER_WORDS ? reinterpret_cast<int64_t>(answer.words.data()) : 0;
  if (count <= BUFFER_WORDS) std::memcpy(context + BUFFER, answer.words.data(), answer.words.size() * sizeof(int64_t));
}
inline void publish_error(const char* type, const char* message) {
  answer.words.clear();
  put(answer, std::string_view(type));
  put(answer, std::string_view(message));
  publish();
}

// Runs work; 1 says that it has thrown, and the answer is then the name of Python's error and the message.
template <class Work>
int64_t guarded(const Work& work) noexcept {
  try {
    answer.words.clear();
    work();
    publish();
    return 0;
  } catch (const c10::IndexError& error) {
    publish_error("IndexError", error.what());
  } catch (const c10::ValueError& error) {
    publish_error("ValueError", error.what());
  } catch (const c10::TypeError& error) {
    publish_error("TypeError", error.what());
  } catch (const c10::NotImplementedError& error) {
    publish_error("NotImplementedError", error.what());
  } catch (const c10::PythonError& error) {
    publish_error(error.type(), error.what());
  } catch (const c10::OutOfMemoryError& error) {
    publish_error("OutOfMemoryError", error.what());
  } catch (const std::bad_alloc& error) {
    publish_error("MemoryError", error.what());
  } catch (const std::invalid_argument& error) {
    publish_error("ValueError", error.what());
  } catch (const std::domain_error& error) {
    publish_error("ValueError", error.what());
  } catch (const c10::LinAlgError& error) {
    publish_error("LinAlgError", error.what());
  } catch (const std::overflow_error& error) {
    publish_error("OverflowError", error.what());
  } catch (const std::range_error& error) {
    publish_error("ValueError", error.what());
  } catch (const std::length_error& error) {
    publish_error("ValueError", error.what());
  } catch (const std::out_of_range& error) {
    publish_error("IndexError", error.what());
  } catch (const std::exception& error) {
    publish_error("RuntimeError", error.what());
  } catch (...) {
    publish_error("RuntimeError", "an exception that is no std::exception");
  }
  return 1;
}

// Gives arguments that outlive the call handles of their own.
inline void keep_arguments() {
  bool is_answer_lost = false;
  for (size_t place = 0; place < at::arguments.size(); ++place) {
    if (at::arguments[place] == nullptr) continue;
    Words words;
    words.put(static_cast<int64_t>(place));
    at::arguments[place]->handle = request(KEEP, words)[0];
    is_answer_lost = true;
  }
  at::arguments.clear();
  if (is_answer_lost) publish();
}

// The function that nodes of the backward graph call; the worker finds it by its name.
inline const AtLoad differentiates([] { registry().functions.push_back(function_of("telegrad::differentiate", &differentiate)); });

inline const AtLoad overrides_are_told([] { registry().functions.push_back(function_of("telegrad::overrides", &note_overrides)); });

inline void describe() {
  for (const auto& run : pending()) run();
  pending().clear();
  const auto& known = registry();
  answer.put(LIST, 6);
  answer.put(LIST, static_cast<int64_t>(known.functions.size()));
  for (const auto& function : known.functions) {
    answer.put(LIST, 9);
    put(answer, function.name);
    put(answer, function.doc);
    put(answer, function.result);
    put(answer, function.is_exported);
    put(answer, function.owner);
    put(answer, static_cast<int64_t>(function.role));
    put(answer, function.unnamed);
    put(answer, function.by_place);
    answer.put(LIST, static_cast<int64_t>(function.parameters.size()));
    for (const auto& parameter : function.parameters) {
      answer.put(LIST, parameter.has_default ? 3 : 2);
      put(answer, parameter.name);
      put(answer, parameter.type);
      answer.words.insert(answer.words.end(), parameter.value.words.begin(), parameter.value.words.end());
    }
  }
  answer.put(LIST, static_cast<int64_t>(known.operators.size()));
  for (const auto& op : known.operators)
    put(answer, std::make_tuple(op.space, op.name_or_schema, op.key, op.function, op.is_definition));
  answer.put(LIST, static_cast<int64_t>(known.attributes.size()));
  for (const auto& [name, value] : known.attributes) {
    answer.put(LIST, 2);
    put(answer, name);
    answer.words.insert(answer.words.end(), value.words.begin(), value.words.end());
  }
  put(answer, known.doc);
  answer.put(LIST, static_cast<int64_t>(classes().size()));
  for (const auto& one : classes()) {
    std::vector<int64_t> bases;
    for (const auto& base : one.bases) bases.push_back(base.first);
    put(answer, std::make_tuple(one.name, one.doc, bases, one.has_overrides, one.is_enumeration, one.arithmetic, one.enumerators));
    if (one.name.empty()) throw c10::TypeError(std::string("a function takes or returns the unregistered type ") + one.type->name());
  }
  put(answer, known.modules);
}
}  // namespace telegrad

extern "C" C10_EXPORT int64_t telegrad_load(int64_t* shared) {
  telegrad::context = shared;
  telegrad::calling_thread = pthread_self();
  if (shared[telegrad::ABI] != telegrad::ABI_VERSION) return 2;
  return telegrad::guarded(telegrad::describe);
}

extern "C" C10_EXPORT int64_t telegrad_call(int64_t function, const int64_t* arguments) {
#ifdef TELEGRAD_WITH_CUDA
  const int64_t device = telegrad::context[telegrad::CURRENT_DEVICE];
  int current = -1;  // to ask for it takes less than to set it
  if (device >= 0 && (cudaGetDevice(&current) != cudaSuccess || current != device)) (void)cudaSetDevice(static_cast<int>(device));
#endif
  const int64_t failed = telegrad::guarded([&] {
    telegrad::Reader reader(arguments);
    const auto& called = telegrad::registry().functions[static_cast<size_t>(function)];
    called.run(called.given.get(), reader, telegrad::answer, called.refers);
#ifdef TELEGRAD_WITH_CUDA
    telegrad::raise_unread_failure();
#endif
  });
#ifdef TELEGRAD_WITH_CUDA
  telegrad::unread_failure = cudaSuccess;
#endif
  telegrad::keep_arguments();
  return failed;
}

// Drops what a node of the backward graph computes its gradients by; it may be called while another function runs.
extern "C" C10_EXPORT void telegrad_release(int64_t number) {
  const auto found = telegrad::differentiated().find(number);
  if (found == telegrad::differentiated().end()) return;
  const auto dropped = std::move(found->second);
  telegrad::differentiated().erase(found);
}

// Drops an instance of a class that Python does not hold any more; it may be called while a function runs.
extern "C" C10_EXPORT void telegrad_drop(int64_t number) { telegrad::drop_instance(number); }
