#pragma once
#include <telegrad/iterator.h>
