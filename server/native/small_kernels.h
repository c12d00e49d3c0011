/* All loops over few elements, by the names that the engine's ``cpu/small`` gives them. */

#ifndef TELEGRAD_SMALL_KERNELS_H
#define TELEGRAD_SMALL_KERNELS_H

#include "small_elementwise.h"
#include "small_places.h"
#include "small_products.h"
#include "small_sorting.h"

typedef struct {
    const char *name;
    SmallKernel kernel;
} NamedKernel;

#define NAMED_LOOP(kind, name, ...) {#name, name},
#define NAMED(name, ...) {#name, name},
static const NamedKernel small_kernels[] = {
    ARITHMETIC(NAMED_LOOP) COMPARISONS(NAMED_LOOP) UNARY_FUNCTIONS(NAMED_LOOP) CASTS(NAMED_LOOP) MIXED(NAMED_LOOP) SELECTIONS(NAMED_LOOP)
    NAMED(copy_pieces) NAMED(take_elements) NAMED(put_elements) NAMED(hot_rows)
    NAMED(true_places) NAMED(true_elements) NAMED(count_classes)
    NAMED(sort_f32) NAMED(sort_narrow_i64) NAMED(cross_f32) NAMED(cross_f64)
    NAMED(multiply_matrices) NAMED(multiply_vectors) NAMED(multiply_and_add) NAMED(multiply_several) NAMED(raise_matrices)
    {NULL, NULL},
};

#endif
