/* Reductions over dimensions. Sums of single precision are added in double precision and rounded once, and those of double
precision carry what rounding has dropped.

``numbers`` are a walk over what is kept, of the operand's strides alone, a walk over what is reduced to one element, and
what the kernel says. Results lie one behind the other. */

#ifndef TELEGRAD_SMALL_REDUCTIONS_H
#define TELEGRAD_SMALL_REDUCTIONS_H

#include "small_walks.h"

/* What is told of one result while its elements are visited in order. */
typedef struct {
    double sum, dropped, shift;
    int64_t count, place, whole, is_found;
    double best;
} Reduced;

/* The double whose bits a number has. */
static inline double
real_of(int64_t bits)
{
    double real;
    memcpy(&real, &bits, sizeof(real));
    return real;
}

typedef void (*Finish)(const Reduced *reduced, char *const *outs, int64_t place, const int64_t *rest);

typedef struct {
    InnerLoop loop, second; /* the second loop, if any, visits the elements again, from ``shift`` on */
    Finish finish;
    const int64_t *reduced, *rest;
    char *const *outs;
    int64_t place;
} Reduction;

static void
reduce_row(int64_t count, char *const *at, const int64_t *steps, void *state)
{
    Reduction *all = state;
    for (int64_t i = 0; i < count; i++) {
        char *here[] = {at[0] + i * steps[0]};
        Reduced one = {0};
        walk(all->reduced, here, 1, all->loop, &one);
        if (all->second != NULL) {
            one.shift = one.sum / (double)one.count;
            one.sum = 0;
            walk(all->reduced, here, 1, all->second, &one);
        }
        all->finish(&one, all->outs, all->place++, all->rest);
    }
}

static void
reduce(const int64_t *numbers, char **at, InnerLoop loop, InnerLoop second, Finish finish)
{
    const int64_t *reduced = numbers + walk_size(numbers, 1);
    Reduction all = {loop, second, finish, reduced, reduced + walk_size(reduced, 1), at + 1, 0};
    walk(numbers, at, 1, reduce_row, &all);
}

#define ROW_LOOP(name, type, before, body, after)                                                                      \
    static void name(int64_t count, char *const *at, const int64_t *steps, void *state)                                \
    {                                                                                                                  \
        Reduced *one = state;                                                                                          \
        const char *here = at[0];                                                                                      \
        int64_t step = steps[0];                                                                                       \
        before;                                                                                                        \
        for (int64_t i = 0; i < count; i++, here += step) {                                                            \
            type x = AT(const type, here);                                                                             \
            body;                                                                                                      \
        }                                                                                                              \
        after;                                                                                                         \
    }

static void
add_singles(int64_t count, char *const *at, const int64_t *steps, void *state)
{
    Reduced *one = state;
    int64_t step = steps[0], i = 0;
    double sums[4] = {0};
    const char *here = at[0];
    for (; i + 4 <= count; i += 4, here += 4 * step)
        for (int k = 0; k < 4; k++) sums[k] += AT(const float, here + k * step);
    for (; i < count; i++, here += step) sums[0] += AT(const float, here);
    one->sum += (sums[0] + sums[1]) + (sums[2] + sums[3]);
    one->count += count;
}

ROW_LOOP(square_singles, float, double sum = 0, sum += (double)x * x, one->sum += sum)
ROW_LOOP(deviations, float, double sum = 0; double shift = one->shift, sum += (x - shift) * (x - shift), one->sum += sum)
ROW_LOOP(add_integers, int64_t, uint64_t sum = 0, sum += (uint64_t)x, one->whole = (int64_t)((uint64_t)one->whole + sum))
ROW_LOOP(count_bytes, uint8_t, int64_t sum = 0, sum += x, one->whole += sum)
ROW_LOOP(find_bytes, uint8_t, int64_t found = 0, found |= x, one->whole |= found)
ROW_LOOP(count_zeros, uint8_t, int64_t zeros = 0, zeros += !x, one->whole += zeros)

/* The sum of what was added so far and of what was dropped of it; the plain sum stays where that is not finite. */
ROW_LOOP(add_doubles, double, (void)0, double sum = one->sum + x;
         one->dropped += fabs(one->sum) >= fabs(x) ? (one->sum - sum) + x : (x - sum) + one->sum; one->sum = sum, one->count += count)

/* The first largest element, or the first NaN, and its place. */
#define BEST(name, type, compare)                                                                                      \
    static void name(int64_t count, char *const *at, const int64_t *steps, void *state)                                \
    {                                                                                                                  \
        Reduced *one = state;                                                                                          \
        type best;                                                                                                     \
        if (one->is_found) memcpy(&best, &one->best, sizeof(type));                                                    \
        else best = AT(const type, at[0]);                                                                             \
        one->is_found = 1;                                                                                             \
        for (int64_t i = 0; i < count; i++) {                                                                          \
            type x = AT(const type, at[0] + i * steps[0]);                                                             \
            if (x compare best || (x != x && best == best)) {                                                          \
                best = x;                                                                                              \
                one->place = one->count + i;                                                                           \
            }                                                                                                          \
        }                                                                                                              \
        one->count += count;                                                                                           \
        memcpy(&one->best, &best, sizeof(type));                                                                       \
    }

#define FINISH(name, type, value)                                                                                      \
    static void name(const Reduced *one, char *const *outs, int64_t place, const int64_t *rest)                        \
    {                                                                                                                  \
        (void)rest;                                                                                                    \
        ((type *)outs[0])[place] = (type)(value);                                                                      \
    }

FINISH(put_single, float, one->sum)
FINISH(put_single_mean, float, one->sum / (double)one->count)
FINISH(put_root, float, sqrt(one->sum))
FINISH(put_spread, float, one->sum / real_of(rest[0]))
FINISH(put_root_spread, float, sqrt(one->sum / real_of(rest[0])))
FINISH(put_whole, int64_t, one->whole)
FINISH(put_any, uint8_t, one->whole != 0)
FINISH(put_all, uint8_t, one->whole == 0)
FINISH(put_double, double, isfinite(one->sum) ? one->sum + one->dropped : one->sum)
FINISH(put_double_mean, double, (isfinite(one->sum) ? one->sum + one->dropped : one->sum) / (double)one->count)
FINISH(put_place, int64_t, one->place)

#define FINISH_BEST(suffix, type)                                                                                      \
    static void put_best_##suffix(const Reduced *one, char *const *outs, int64_t place, const int64_t *rest)           \
    {                                                                                                                  \
        (void)rest;                                                                                                    \
        memcpy((type *)outs[0] + place, &one->best, sizeof(type));                                                     \
    }                                                                                                                  \
    static void put_both_##suffix(const Reduced *one, char *const *outs, int64_t place, const int64_t *rest)           \
    {                                                                                                                  \
        put_best_##suffix(one, outs, place, rest);                                                                     \
        ((int64_t *)outs[1])[place] = one->place;                                                                      \
    }

#define BEST_OF(suffix, type)                                                                                          \
    BEST(largest_##suffix, type, >) BEST(smallest_##suffix, type, <) FINISH_BEST(suffix, type)
BEST_OF(f32, float)
BEST_OF(f64, double)
BEST_OF(i64, int64_t)
BEST_OF(u8, uint8_t)

#define REDUCTIONS_OF(X, suffix)                                                                                       \
    X(amax_##suffix, largest_##suffix, NULL, put_best_##suffix) X(amin_##suffix, smallest_##suffix, NULL, put_best_##suffix) \
    X(argmax_##suffix, largest_##suffix, NULL, put_place) X(argmin_##suffix, smallest_##suffix, NULL, put_place)       \
    X(max_##suffix, largest_##suffix, NULL, put_both_##suffix) X(min_##suffix, smallest_##suffix, NULL, put_both_##suffix)

#define REDUCTIONS(X)                                                                                                  \
    X(sum_f32, add_singles, NULL, put_single) X(mean_f32, add_singles, NULL, put_single_mean)                          \
    X(norm_f32, square_singles, NULL, put_root) X(var_f32, add_singles, deviations, put_spread)                        \
    X(std_f32, add_singles, deviations, put_root_spread) X(sum_f64, add_doubles, NULL, put_double)                     \
    X(mean_f64, add_doubles, NULL, put_double_mean) X(sum_i64, add_integers, NULL, put_whole)                          \
    X(sum_u8, count_bytes, NULL, put_whole) X(any_u8, find_bytes, NULL, put_any) X(all_u8, count_zeros, NULL, put_all) \
    REDUCTIONS_OF(X, f32) REDUCTIONS_OF(X, f64) REDUCTIONS_OF(X, i64) REDUCTIONS_OF(X, u8)

#define DEFINE_REDUCTION(name, loop, second, finish)                                                                   \
    static int name(const int64_t *numbers, char **at)                                                                 \
    {                                                                                                                  \
        reduce(numbers, at, loop, second, finish);                                                                     \
        return 0;                                                                                                      \
    }
REDUCTIONS(DEFINE_REDUCTION)

/* Running sums along one dimension: a walk over where rows begin, of operand and result, then the length and both strides. */
#define RUNNING(name, type, total, cast)                                                                               \
    static void name##_loop(int64_t count, char *const *at, const int64_t *steps, void *state)                         \
    {                                                                                                                  \
        const int64_t *row = state;                                                                                    \
        for (int64_t i = 0; i < count; i++) {                                                                          \
            const char *x = at[0] + i * steps[0];                                                                      \
            char *y = at[1] + i * steps[1];                                                                            \
            total sum = 0;                                                                                             \
            for (int64_t k = 0; k < row[0]; k++, x += row[1], y += row[2]) {                                           \
                sum += cast AT(const type, x);                                                                         \
                AT(type, y) = (type)sum;                                                                               \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    static int name(const int64_t *numbers, char **at)                                                                 \
    {                                                                                                                  \
        walk(numbers, at, 2, name##_loop, (void *)(numbers + walk_size(numbers, 2)));                                  \
        return 0;                                                                                                      \
    }
#define RUNNING_SUMS(X) X(cumsum_f32, float, double, (double)) X(cumsum_i64, int64_t, uint64_t, (uint64_t))
RUNNING_SUMS(RUNNING)

#endif
