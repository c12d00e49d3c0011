/* Walks over the elements of strided operands. All strides and offsets are in bytes, all sizes at least 1. */

#ifndef TELEGRAD_SMALL_WALKS_H
#define TELEGRAD_SMALL_WALKS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define MOST_WALKED_DIMS 16
#define MOST_WALKED 6

/* Called with the numbers that were worked out for a call, and the addresses of operands and results; 0 where it has computed,
and 1, with nothing but results written, where it cannot. */
typedef int (*SmallKernel)(const int64_t *numbers, char **at);

/* A loop over ``count`` elements, given where each operand begins and the steps between its elements. */
typedef void (*InnerLoop)(int64_t count, char *const *at, const int64_t *steps, void *state);

/* Call a loop for the last dimension of operands, for all indices of the others in order.

``numbers`` are how many dimensions there are, at least one, their sizes, and the strides of each operand. */
static void
walk(const int64_t *numbers, char *const *at, int operands, InnerLoop loop, void *state)
{
    int64_t dims = numbers[0], index[MOST_WALKED_DIMS] = {0}, inner[MOST_WALKED];
    const int64_t *sizes = numbers + 1, *strides = sizes + dims;
    char *here[MOST_WALKED];
    for (int k = 0; k < operands; k++) {
        here[k] = at[k];
        inner[k] = strides[k * dims + dims - 1];
    }
    for (;;) {
        loop(sizes[dims - 1], here, inner, state);
        int64_t d = dims - 2;
        for (; d >= 0 && ++index[d] == sizes[d]; d--) {
            index[d] = 0;
            for (int k = 0; k < operands; k++) here[k] -= strides[k * dims + d] * (sizes[d] - 1);
        }
        if (d < 0) return;
        for (int k = 0; k < operands; k++) here[k] += strides[k * dims + d];
    }
}

/* How many numbers describe a walk over so many operands. */
static int64_t
walk_size(const int64_t *numbers, int operands)
{
    return 1 + numbers[0] * (1 + operands);
}

/* The element of an operand at an address. */
#define AT(type, address) (*(type *)(address))

#endif
