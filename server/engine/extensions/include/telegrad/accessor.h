// Views of a tensor's memory with as many dimensions as their type says, for host and device code.
#pragma once

#include "types.h"

namespace at {

template <class T>
struct DefaultPtrTraits {
  using PtrType = T*;
};
template <class T>
struct RestrictPtrTraits {
  using PtrType = T* __restrict__;
};

template <class T, size_t N, template <class> class PtrTraits = DefaultPtrTraits, class Index = int64_t>
class TensorAccessor {
 public:
  using PtrType = typename PtrTraits<T>::PtrType;
  C10_HOST_DEVICE TensorAccessor(PtrType data, const Index* sizes, const Index* strides)
      : data_(data), sizes_(sizes), strides_(strides) {}
  C10_HOST_DEVICE Index size(Index dim) const { return sizes_[dim]; }
  C10_HOST_DEVICE Index stride(Index dim) const { return strides_[dim]; }
  C10_HOST_DEVICE PtrType data() const { return data_; }
  C10_HOST IntArrayRef sizes() const { return IntArrayRef(sizes_, N); }
  C10_HOST IntArrayRef strides() const { return IntArrayRef(strides_, N); }
  C10_HOST_DEVICE decltype(auto) operator[](Index at) const {
    if constexpr (N == 1)
      return (data_[strides_[0] * at]);
    else
      return TensorAccessor<T, N - 1, PtrTraits, Index>(data_ + strides_[0] * at, sizes_ + 1, strides_ + 1);
  }

 private:
  PtrType data_;
  const Index* sizes_;
  const Index* strides_;
};

// Carries its sizes and strides itself, so that it can be an argument of a kernel.
template <class T, size_t N, template <class> class PtrTraits = DefaultPtrTraits, class Index = int64_t>
class GenericPackedTensorAccessor {
 public:
  using PtrType = typename PtrTraits<T>::PtrType;
  C10_HOST GenericPackedTensorAccessor(PtrType data, const int64_t* sizes, const int64_t* strides) : data_(data) {
    for (size_t dim = 0; dim < N; ++dim) {
      sizes_[dim] = static_cast<Index>(sizes[dim]);
      strides_[dim] = static_cast<Index>(strides[dim]);
    }
  }
  C10_HOST_DEVICE Index size(Index dim) const { return sizes_[dim]; }
  C10_HOST_DEVICE Index stride(Index dim) const { return strides_[dim]; }
  C10_HOST_DEVICE PtrType data() const { return data_; }
  C10_HOST_DEVICE decltype(auto) operator[](Index at) const {
    if constexpr (N == 1)
      return (data_[strides_[0] * at]);
    else
      return TensorAccessor<T, N - 1, PtrTraits, Index>(data_ + strides_[0] * at, sizes_ + 1, strides_ + 1);
  }

 private:
  PtrType data_;
  Index sizes_[N];
  Index strides_[N];
};
template <class T, size_t N, template <class> class PtrTraits = DefaultPtrTraits>
using PackedTensorAccessor32 = GenericPackedTensorAccessor<T, N, PtrTraits, int32_t>;
template <class T, size_t N, template <class> class PtrTraits = DefaultPtrTraits>
using PackedTensorAccessor64 = GenericPackedTensorAccessor<T, N, PtrTraits, int64_t>;
template <class T, size_t N, template <class> class PtrTraits = DefaultPtrTraits, class Index = int64_t>
using PackedTensorAccessor = GenericPackedTensorAccessor<T, N, PtrTraits, Index>;

}  // namespace at
