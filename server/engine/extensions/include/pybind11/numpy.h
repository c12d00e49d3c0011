#pragma once
#include <telegrad/python/arrays.h>
