// What a source of an extension includes: telegrad's own counterpart of the header that PyTorch has under this name.
#pragma once

#include <algorithm>
#include <cassert>
#include <climits>
#include <cmath>
#include <iostream>
#include <memory>
#include <numeric>
#include <set>

#include <telegrad/class_binding.h>
#include <telegrad/cuda.h>
#include <telegrad/library.h>
#include <telegrad/namespaces.h>
#include <telegrad/networks.h>
#include <telegrad/python/enums.h>
#include <telegrad/python/operators.h>

namespace torch {
using namespace at;
using namespace c10;
using c10::Device;
using c10::Layout;
using c10::optional;
namespace headeronly = c10;
using at::complex;
}  // namespace torch
namespace py = pybind11;
