#pragma once
#include <telegrad/nn/layers.h>
