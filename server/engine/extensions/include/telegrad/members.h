// Methods of tensors that need functions.
#pragma once

#include "functions.h"

namespace at {
std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

}  // namespace at
