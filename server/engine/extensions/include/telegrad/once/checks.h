// What checks.h declares, compiled once for all extensions.
#pragma once

#include "../checks.h"

namespace at {
std::ostream& operator<<(std::ostream& out, const TensorArg& arg) {
  return arg.pos == 0 ? out << "'" << arg.name << "'" : out << "argument #" << arg.pos << " '" << arg.name << "'";
}
void checkDefined(CheckedFrom from, const TensorArg& t) {
  TORCH_CHECK(t->defined(), "Expected tensor for ", t, " to be non-null, but it was undefined (while checking arguments for ", from, ")");
}
void checkContiguous(CheckedFrom from, const TensorArg& t) {
  TORCH_CHECK(t->is_contiguous(), "Expected contiguous tensor, but got non-contiguous tensor for ", t,
              " (while checking arguments for ", from, ")");
}
void checkDim(CheckedFrom from, const TensorArg& t, int64_t dim) {
  TORCH_CHECK(t->dim() == dim, "Expected ", dim, "-dimensional tensor, but got ", t->dim(), "-dimensional tensor for ", t,
              " (while checking arguments for ", from, ")");
}
void checkDimRange(CheckedFrom from, const TensorArg& t, int64_t first, int64_t end) {
  TORCH_CHECK(t->dim() >= first && t->dim() < end, "Expected ", first, " to ", end - 1, " dimensions, but got ", t->dim(),
              "-dimensional tensor for ", t, " (while checking arguments for ", from, ")");
}
void checkSize(CheckedFrom from, const TensorArg& t, IntArrayRef sizes) {
  checkDim(from, t, static_cast<int64_t>(sizes.size()));
  TORCH_CHECK(t->sizes() == sizes, "Expected tensor of size ", sizes, ", but got tensor of size ", t->sizes(), " for ", t,
              " (while checking arguments for ", from, ")");
}
void checkSize(CheckedFrom from, const TensorArg& t, int64_t dim, int64_t size) {
  TORCH_CHECK(t->size(dim) == size, "Expected tensor to have size ", size, " at dimension ", dim, ", but got size ",
              t->size(dim), " for ", t, " (while checking arguments for ", from, ")");
}
void checkNumel(CheckedFrom from, const TensorArg& t, int64_t numel) {
  TORCH_CHECK(t->numel() == numel, "Expected tensor for ", t, " to have ", numel, " elements; but it actually has ",
              t->numel(), " elements (while checking arguments for ", from, ")");
}
void checkScalarTypes(CheckedFrom from, const TensorArg& t, ArrayRef<ScalarType> types) {
  for (const ScalarType type : types)
    if (t->scalar_type() == type) return;
  TORCH_CHECK(false, "Expected tensor for ", t, " to have one of the following scalar types: ", types, "; but got ", t->toString(),
              " instead (while checking arguments for ", from, ")");
}
void checkScalarType(CheckedFrom from, const TensorArg& t, ScalarType type) {
  TORCH_CHECK(t->scalar_type() == type, "Expected tensor for ", t, " to have scalar type ", type, "; but got ", t->toString(),
              " instead (while checking arguments for ", from, ")");
}

// A check of one tensor, and of each of a list of them.
#define TELEGRAD_CHECK_EACH(name, check)                                                  \
  void name(CheckedFrom from, ArrayRef<TensorArg> args) {                          \
    for (const auto& arg : args) check(from, arg);                                        \
  }
// A check of two tensors, and of all of a list of them beside the first.
#define TELEGRAD_CHECK_PAIR(one, all, fits, ...)                                          \
  void one(CheckedFrom from, const TensorArg& a, const TensorArg& b) {             \
    TORCH_CHECK(fits, __VA_ARGS__, " (while checking arguments for ", from, ")");         \
  }                                                                                       \
  void all(CheckedFrom from, ArrayRef<TensorArg> args) {                           \
    const TensorArg* first = nullptr;                                                     \
    for (const auto& arg : args) {                                                        \
      if (!arg->defined()) continue;                                                      \
      if (first) one(from, *first, arg);                                                  \
      else first = &arg;                                                                  \
    }                                                                                     \
  }
TELEGRAD_CHECK_PAIR(checkSameType, checkAllSameType, a->scalar_type() == b->scalar_type() && a->is_cuda() == b->is_cuda(),
                    "Expected tensor for ", a, " to have the same type as tensor for ", b, "; but type ", a->toString(),
                    " does not equal ", b->toString())
TELEGRAD_CHECK_PAIR(checkSameSize, checkAllSameSize, a->sizes() == b->sizes(), "Expected tensor for ", a,
                    " to have same size as tensor for ", b, "; but ", a->sizes(), " does not equal ", b->sizes())
TELEGRAD_CHECK_PAIR(checkSameNumel, checkAllSameNumel, a->numel() == b->numel(), "Expected tensor for ", a,
                    " to have same number of elements as tensor for ", b, "; but ", a->numel(), " does not equal ", b->numel())
TELEGRAD_CHECK_PAIR(checkSameDim, checkAllSameDim, a->dim() == b->dim(), "Expected tensor for ", a,
                    " to have same number of dimensions as tensor for ", b, "; but ", a->dim(), " does not equal ", b->dim())
TELEGRAD_CHECK_PAIR(checkSameGPU, checkAllSameGPU, a->is_cuda() && a->device() == b->device(), "Expected tensor for ", a,
                    " to have the same device as tensor for ", b, "; but device ", a->device(), " does not equal ", b->device())
#undef TELEGRAD_CHECK_PAIR
TELEGRAD_CHECK_EACH(checkAllDefined, checkDefined)
TELEGRAD_CHECK_EACH(checkAllContiguous, checkContiguous)
#undef TELEGRAD_CHECK_EACH
}  // namespace at
