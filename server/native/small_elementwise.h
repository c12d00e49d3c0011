/* Element-wise functions whose results no rounding of a library decides: the bits are those of NumPy's loops. */

#ifndef TELEGRAD_SMALL_ELEMENTWISE_H
#define TELEGRAD_SMALL_ELEMENTWISE_H

#include "small_walks.h"

/* Loops over rows that have no gaps, or repeat one element, are written out, so that the compiler uses vectors. */
#define BINARY(name, type, result, expression)                                                                         \
    static void name##_loop(int64_t count, char *const *at, const int64_t *steps, void *state)                         \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        const type *x = (const type *)at[0], *y = (const type *)at[1];                                                 \
        result *z = (result *)at[2];                                                                                   \
        int is_dense = steps[0] == sizeof(type) && steps[2] == sizeof(result);                                         \
        if (is_dense && steps[1] == sizeof(type)) {                                                                    \
            for (int64_t i = 0; i < count; i++) {                                                                      \
                type a = x[i], b = y[i];                                                                               \
                z[i] = expression;                                                                                     \
            }                                                                                                          \
        } else if (is_dense && steps[1] == 0) {                                                                        \
            type b = *y;                                                                                               \
            for (int64_t i = 0; i < count; i++) {                                                                      \
                type a = x[i];                                                                                         \
                z[i] = expression;                                                                                     \
            }                                                                                                          \
        } else {                                                                                                       \
            for (int64_t i = 0; i < count; i++) {                                                                      \
                type a = AT(const type, at[0] + i * steps[0]), b = AT(const type, at[1] + i * steps[1]);               \
                AT(result, at[2] + i * steps[2]) = expression;                                                         \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    static int name(const int64_t *numbers, char **at)                                                                 \
    {                                                                                                                  \
        walk(numbers, at, 3, name##_loop, NULL);                                                                       \
        return 0;                                                                                                      \
    }

#define UNARY(name, type, result, expression)                                                                          \
    static void name##_loop(int64_t count, char *const *at, const int64_t *steps, void *state)                         \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        if (steps[0] == sizeof(type) && steps[1] == sizeof(result)) {                                                  \
            const type *x = (const type *)at[0];                                                                       \
            result *y = (result *)at[1];                                                                               \
            for (int64_t i = 0; i < count; i++) {                                                                      \
                type a = x[i];                                                                                         \
                y[i] = expression;                                                                                     \
            }                                                                                                          \
        } else {                                                                                                       \
            for (int64_t i = 0; i < count; i++) {                                                                      \
                type a = AT(const type, at[0] + i * steps[0]);                                                         \
                AT(result, at[1] + i * steps[1]) = expression;                                                         \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    static int name(const int64_t *numbers, char **at)                                                                 \
    {                                                                                                                  \
        walk(numbers, at, 2, name##_loop, NULL);                                                                       \
        return 0;                                                                                                      \
    }

#define TERNARY(name, first, type, expression)                                                                         \
    static void name##_loop(int64_t count, char *const *at, const int64_t *steps, void *state)                         \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        if (steps[0] == sizeof(first) && steps[1] == 0 && steps[2] == 0 && steps[3] == sizeof(type)) {                 \
            type b = AT(const type, at[1]), c = AT(const type, at[2]);                                                 \
            for (int64_t i = 0; i < count; i++) {                                                                      \
                first a = ((const first *)at[0])[i];                                                                   \
                ((type *)at[3])[i] = expression;                                                                       \
            }                                                                                                          \
            return;                                                                                                    \
        }                                                                                                              \
        for (int64_t i = 0; i < count; i++) {                                                                          \
            first a = AT(const first, at[0] + i * steps[0]);                                                           \
            type b = AT(const type, at[1] + i * steps[1]), c = AT(const type, at[2] + i * steps[2]);                   \
            AT(type, at[3] + i * steps[3]) = expression;                                                               \
        }                                                                                                              \
    }                                                                                                                  \
    static int name(const int64_t *numbers, char **at)                                                                 \
    {                                                                                                                  \
        walk(numbers, at, 4, name##_loop, NULL);                                                                       \
        return 0;                                                                                                      \
    }

/* Signed integers are added and multiplied as unsigned ones, which wrap around as NumPy's do. */
#define ARITHMETIC(X)                                                                                                  \
    X(BINARY, add_f32, float, float, a + b) X(BINARY, add_f64, double, double, a + b)                                  \
    X(BINARY, add_i64, uint64_t, uint64_t, a + b) X(BINARY, add_i32, uint32_t, uint32_t, a + b)                        \
    X(BINARY, sub_f32, float, float, a - b) X(BINARY, sub_f64, double, double, a - b)                                  \
    X(BINARY, sub_i64, uint64_t, uint64_t, a - b) X(BINARY, sub_i32, uint32_t, uint32_t, a - b)                        \
    X(BINARY, mul_f32, float, float, a * b) X(BINARY, mul_f64, double, double, a * b)                                  \
    X(BINARY, mul_i64, uint64_t, uint64_t, a * b) X(BINARY, mul_i32, uint32_t, uint32_t, a * b)                        \
    X(BINARY, div_f32, float, float, a / b) X(BINARY, div_f64, double, double, a / b)                                  \
    X(BINARY, squared_error_f32, float, float, (a - b) * (a - b))                                                      \
    X(BINARY, squared_error_f64, double, double, (a - b) * (a - b))                                                    \
    X(BINARY, and_u8, uint8_t, uint8_t, a & b) X(BINARY, or_u8, uint8_t, uint8_t, a | b)                               \
    X(BINARY, xor_u8, uint8_t, uint8_t, a ^ b)

#define COMPARISONS_OF(X, suffix, type)                                                                                \
    X(BINARY, eq_##suffix, type, uint8_t, a == b) X(BINARY, ne_##suffix, type, uint8_t, a != b)                        \
    X(BINARY, lt_##suffix, type, uint8_t, a < b) X(BINARY, le_##suffix, type, uint8_t, a <= b)                         \
    X(BINARY, gt_##suffix, type, uint8_t, a > b) X(BINARY, ge_##suffix, type, uint8_t, a >= b)

#define COMPARISONS(X)                                                                                                 \
    COMPARISONS_OF(X, f32, float) COMPARISONS_OF(X, f64, double) COMPARISONS_OF(X, i64, int64_t)                       \
    COMPARISONS_OF(X, i32, int32_t) COMPARISONS_OF(X, u8, uint8_t)

#define UNARY_FUNCTIONS(X)                                                                                             \
    X(UNARY, neg_f32, float, float, -a) X(UNARY, neg_f64, double, double, -a)                                          \
    X(UNARY, neg_i64, uint64_t, uint64_t, 0 - a) X(UNARY, abs_f32, float, float, fabsf(a))                             \
    X(UNARY, abs_f64, double, double, fabs(a)) X(UNARY, square_f32, float, float, a *a)                                \
    X(UNARY, square_f64, double, double, a *a) X(UNARY, sqrt_f32, float, float, sqrtf(a))                              \
    X(UNARY, sqrt_f64, double, double, sqrt(a)) X(UNARY, not_u8, uint8_t, uint8_t, a ^ 1)

#define CASTS(X)                                                                                                       \
    X(UNARY, u8_to_f32, uint8_t, float, (float)a) X(UNARY, u8_to_f64, uint8_t, double, (double)a)                      \
    X(UNARY, u8_to_i64, uint8_t, int64_t, (int64_t)a) X(UNARY, i64_to_f32, int64_t, float, (float)a)                   \
    X(UNARY, i64_to_f64, int64_t, double, (double)a) X(UNARY, i32_to_i64, int32_t, int64_t, (int64_t)a)                \
    X(UNARY, i32_to_f32, int32_t, float, (float)a) X(UNARY, f32_to_f64, float, double, (double)a)                      \
    X(UNARY, f64_to_f32, double, float, (float)a) X(UNARY, i64_to_u8, int64_t, uint8_t, a != 0)                        \
    X(UNARY, f32_to_u8, float, uint8_t, a != 0)

/* Integers and truth values beside single precision, to which they are converted first. */
#define MIXED_LOOP(name, first, second, expression)                                                                    \
    static void name##_loop(int64_t count, char *const *at, const int64_t *steps, void *state)                         \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        for (int64_t i = 0; i < count; i++) {                                                                          \
            float a = (float)AT(const first, at[0] + i * steps[0]), b = (float)AT(const second, at[1] + i * steps[1]); \
            AT(float, at[2] + i * steps[2]) = expression;                                                              \
        }                                                                                                              \
    }                                                                                                                  \
    static int name(const int64_t *numbers, char **at)                                                                 \
    {                                                                                                                  \
        walk(numbers, at, 3, name##_loop, NULL);                                                                       \
        return 0;                                                                                                      \
    }
#define MIXED_OF(X, name, expression)                                                                                  \
    X(MIXED_LOOP, name##_f32_i64, float, int64_t, expression) X(MIXED_LOOP, name##_i64_f32, int64_t, float, expression) \
    X(MIXED_LOOP, name##_f32_u8, float, uint8_t, expression) X(MIXED_LOOP, name##_u8_f32, uint8_t, float, expression)
#define MIXED(X)                                                                                                       \
    MIXED_OF(X, add, a + b) MIXED_OF(X, sub, a - b) MIXED_OF(X, mul, a * b) MIXED_OF(X, div, a / b)                    \
    X(MIXED_LOOP, div_i64_i64, int64_t, int64_t, a / b)

/* What is NaN stays so, and an upper limit goes before a lower one. */
#define CLAMPED ((a < b ? b : a) > c ? c : (a < b ? b : a))
#define SELECTIONS(X)                                                                                                  \
    X(TERNARY, where_1, uint8_t, uint8_t, a ? b : c) X(TERNARY, where_4, uint8_t, uint32_t, a ? b : c)                 \
    X(TERNARY, where_8, uint8_t, uint64_t, a ? b : c) X(TERNARY, clamp_f32, float, float, CLAMPED)                     \
    X(TERNARY, clamp_f64, double, double, CLAMPED) X(TERNARY, clamp_i64, int64_t, int64_t, CLAMPED)

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O3")
#endif
#define DEFINE_LOOP(kind, ...) kind(__VA_ARGS__)
ARITHMETIC(DEFINE_LOOP)
COMPARISONS(DEFINE_LOOP)
UNARY_FUNCTIONS(DEFINE_LOOP)
CASTS(DEFINE_LOOP)
MIXED(DEFINE_LOOP)
SELECTIONS(DEFINE_LOOP)
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif

#endif
