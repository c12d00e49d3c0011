/* Stable orders of few elements, of which NaN is the largest, and products of vectors of three elements. */

#ifndef TELEGRAD_SMALL_SORTING_H
#define TELEGRAD_SMALL_SORTING_H

#include "small_walks.h"

#define MOST_SORTED 4096

/* How rows are sorted: their length, whether the largest come first, how many are kept, and the steps between elements of a
row of the operand, the values and the indices. */
typedef struct {
    int64_t length, is_descending, kept, from, to_values, to_indices, writes_values;
} Order;

/* An integer that ascends with a number: equal ones have one, and NaN has the largest. */
static inline int32_t
rank_of(float number)
{
    int32_t bits;
    if (number != number) return INT32_MAX;
    if (number == 0) return 0;
    memcpy(&bits, &number, sizeof(bits));
    return bits < 0 ? (int32_t)(0x80000000u - (uint32_t)bits) : bits;
}

/* Sort each of so many keys for itself. */
static void
sort_runs(int64_t *keys, int64_t count, int64_t run)
{
    for (int64_t begin = 0; begin < count; begin += run) {
        int64_t end = begin + run < count ? begin + run : count;
        for (int64_t i = begin + 1; i < end; i++) {
            int64_t key = keys[i], k = i;
            for (; k > begin && keys[k - 1] > key; k--) keys[k] = keys[k - 1];
            keys[k] = key;
        }
    }
}

/* Sort keys, none of which is there twice, with as much memory beside them; where they end up is returned. */
static int64_t *
sort_keys(int64_t *keys, int64_t *other, int64_t count)
{
    int64_t run = 12;
    sort_runs(keys, count, run);
    for (; run < count; run *= 2) {
        for (int64_t begin = 0; begin < count; begin += 2 * run) {
            int64_t middle = begin + run < count ? begin + run : count, end = middle + run < count ? middle + run : count;
            int64_t i = begin, k = middle;
            for (int64_t at = begin; at < end; at++) other[at] = k >= end || (i < middle && keys[i] < keys[k]) ? keys[i++] : keys[k++];
        }
        int64_t *sorted = other;
        other = keys;
        keys = sorted;
    }
    return keys;
}

/* Keys are ranks above places, so that equal elements stay in order. */
#define SORTING(name, type, rank)                                                                                      \
    static void name##_loop(int64_t count, char *const *at, const int64_t *steps, void *state)                         \
    {                                                                                                                  \
        const Order *order = state;                                                                                    \
        int64_t keys[MOST_SORTED], other[MOST_SORTED];                                                                 \
        for (int64_t row = 0; row < count; row++) {                                                                    \
            const char *from = at[0] + row * steps[0];                                                                 \
            for (int64_t i = 0; i < order->length; i++) {                                                              \
                int64_t level = rank(AT(const type, from + i * order->from));                                          \
                keys[i] = (order->is_descending ? -1 - level : level) * ((int64_t)1 << 31) + i;                        \
            }                                                                                                          \
            const int64_t *sorted = sort_keys(keys, other, order->length);                                             \
            for (int64_t i = 0; i < order->kept; i++) {                                                                \
                int64_t place = sorted[i] & INT32_MAX;                                                                 \
                AT(int64_t, at[2] + row * steps[2] + i * order->to_indices) = place;                                   \
                if (order->writes_values)                                                                              \
                    AT(type, at[1] + row * steps[1] + i * order->to_values) = AT(const type, from + place * order->from); \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    static int name(const int64_t *numbers, char **at)                                                                 \
    {                                                                                                                  \
        walk(numbers, at, 3, name##_loop, (void *)(numbers + walk_size(numbers, 3)));                                  \
        return 0;                                                                                                      \
    }
#define SORTS(X) X(sort_f32, float, rank_of) X(sort_i64, int64_t, (int64_t))
SORTS(SORTING)

/* Integers are sorted where they fit half a key. */
static void
width_loop(int64_t count, char *const *at, const int64_t *steps, void *state)
{
    int64_t *widest = state;
    for (int64_t i = 0; i < count; i++) {
        int64_t number = AT(const int64_t, at[0] + i * steps[0]);
        if (number < INT32_MIN || number > INT32_MAX) *widest = number;
    }
}

/* A walk over all elements of the operand, and then what ``sort_i64`` takes. */
static int
sort_narrow_i64(const int64_t *numbers, char **at)
{
    int64_t widest = 0;
    walk(numbers, at, 1, width_loop, &widest);
    return widest ? 1 : sort_i64(numbers + walk_size(numbers, 1), at);
}

/* The product of vectors of three elements: a walk over where they begin, and the steps between elements of both operands and
the result. */
#define CROSS(name, type)                                                                                              \
    static void name##_loop(int64_t count, char *const *at, const int64_t *steps, void *state)                         \
    {                                                                                                                  \
        const int64_t *step = state;                                                                                   \
        for (int64_t i = 0; i < count; i++) {                                                                          \
            type a[3], b[3];                                                                                           \
            for (int k = 0; k < 3; k++) {                                                                              \
                a[k] = AT(const type, at[0] + i * steps[0] + k * step[0]);                                             \
                b[k] = AT(const type, at[1] + i * steps[1] + k * step[1]);                                             \
            }                                                                                                          \
            for (int k = 0; k < 3; k++) {                                                                              \
                int l = (k + 1) % 3, m = (k + 2) % 3;                                                                  \
                type left = a[l] * b[m], right = a[m] * b[l];                                                          \
                AT(type, at[2] + i * steps[2] + k * step[2]) = left - right;                                           \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    static int name(const int64_t *numbers, char **at)                                                                 \
    {                                                                                                                  \
        walk(numbers, at, 3, name##_loop, (void *)(numbers + walk_size(numbers, 3)));                                  \
        return 0;                                                                                                      \
    }
CROSS(cross_f32, float)
CROSS(cross_f64, double)

#endif
