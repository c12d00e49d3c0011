/* Products of few elements by the loops of NumPy that its own calls end in, so that every bit is the same. */

#ifndef TELEGRAD_SMALL_PRODUCTS_H
#define TELEGRAD_SMALL_PRODUCTS_H

#include <stdlib.h>

#include "small_walks.h"

/* A loop gets operands and results, sizes, steps in bytes, and what it was registered with. */
typedef void (*NumpyLoop)(char **at, const int64_t *sizes, const int64_t *steps, void *data);

#define PRODUCT_SIZES 4
#define PRODUCT_STEPS 9
#define PRODUCT_NUMBERS (2 + PRODUCT_SIZES + PRODUCT_STEPS)

/* What ``numpy.matmul`` does for many pairs of matrices: the loop, its data, how many pairs there are, the rows, what is summed over,
the columns, the steps from pair to pair of both operands and the result, and those of rows and columns of each. */
static void
multiply_pairs(const int64_t *numbers, char *left, char *right, char *target)
{
    char *at[] = {left, right, target};
    ((NumpyLoop)(intptr_t)numbers[0])(at, numbers + 2, numbers + 2 + PRODUCT_SIZES, (void *)(intptr_t)numbers[1]);
}

static int
multiply_matrices(const int64_t *numbers, char **at)
{
    multiply_pairs(numbers, at[0], at[1], at[2]);
    return 0;
}

/* Several products, each of two operands and a result, which follow each other: how many there are, and the numbers of each. */
static int
multiply_several(const int64_t *numbers, char **at)
{
    for (int64_t i = 0; i < numbers[0]; i++)
        multiply_pairs(numbers + 1 + i * PRODUCT_NUMBERS, at[3 * i], at[3 * i + 1], at[3 * i + 2]);
    return 0;
}

/* Products of vectors: the loop of ``numpy.vecdot``, its data, how many pairs there are, their length, and the steps from pair to
pair of both operands and the result, and within both operands. */
static int
multiply_vectors(const int64_t *numbers, char **at)
{
    ((NumpyLoop)(intptr_t)numbers[0])(at, numbers + 2, numbers + 4, (void *)(intptr_t)numbers[1]);
    return 0;
}

/* A product to whose rows, one behind the other, something is added: the bytes of an element, rows and columns of the result, and
the steps of rows and columns of what is added follow the numbers of the product. */
#define ADDING(type)                                                                                                   \
    for (int64_t r = 0; r < how[1]; r++)                                                                               \
        for (int64_t c = 0; c < how[2]; c++)                                                                           \
            ((type *)at[2])[r * how[2] + c] += AT(const type, at[3] + r * how[3] + c * how[4]);

static int
multiply_and_add(const int64_t *numbers, char **at)
{
    const int64_t *how = numbers + PRODUCT_NUMBERS;
    multiply_pairs(numbers, at[0], at[1], at[2]);
    if (how[0] == 4) {
        ADDING(float)
    } else {
        ADDING(double)
    }
    return 0;
}

/* A positive power of dense square matrices by repeated squaring: the exponent, and the bytes of all matrices, follow the numbers
of a product of two such batches. */
static int
raise_matrices(const int64_t *numbers, char **at)
{
    int64_t exponent = numbers[PRODUCT_NUMBERS], nbytes = numbers[PRODUCT_NUMBERS + 1], products = 0;
    for (int64_t left = exponent; left > 1; left >>= 1) products += 1 + (left & 1);
    char *memory = malloc(products * nbytes), *next = memory, *result = NULL, *square = at[0];
    if (memory == NULL) return 1;
    for (; exponent > 1; next += nbytes) {
        if (exponent & 1) {
            if (result != NULL) multiply_pairs(numbers, result, square, next);
            result = result == NULL ? square : next;
            next += nbytes;
        }
        exponent >>= 1;
        char *target = exponent == 1 && result == NULL ? at[1] : next;
        multiply_pairs(numbers, square, square, target);
        square = target;
    }
    if (result != NULL) multiply_pairs(numbers, result, square, at[1]);
    free(memory);
    return 0;
}

#endif
