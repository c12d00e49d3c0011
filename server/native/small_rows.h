/* Softmax and losses over rows of single precision, whose sums are added in double precision.

``numbers`` are how many groups of rows there are, the elements of a row, and how many rows lie side by side, element by
element: the operand is row-major, of the shape (groups, length, side by side). */

#ifndef TELEGRAD_SMALL_ROWS_H
#define TELEGRAD_SMALL_ROWS_H

#include "small_walks.h"

typedef struct {
    int64_t groups, length, inner;
} Rows;

/* Where a row begins; its elements are ``inner`` apart. */
static int64_t
row_start(const Rows *rows, int64_t row)
{
    return row / rows->inner * rows->length * rows->inner + row % rows->inner;
}

static float
largest_of(const float *x, int64_t length, int64_t step)
{
    float largest = x[0];
    for (int64_t k = 1; k < length; k++)
        if (x[k * step] > largest || x[k * step] != x[k * step]) largest = x[k * step];
    return largest;
}

/* Write the exponentials of a row less its largest element, and return their sum. */
static double
exponentials_of(const float *x, float *y, int64_t length, int64_t step, float largest)
{
    double sum = 0;
    for (int64_t k = 0; k < length; k++) sum += y[k * step] = expf(x[k * step] - largest);
    return sum;
}

static int
softmax_rows(const int64_t *numbers, char **at)
{
    const Rows *rows = (const Rows *)numbers;
    for (int64_t row = 0; row < rows->groups * rows->inner; row++) {
        const float *x = (const float *)at[0] + row_start(rows, row);
        float *y = (float *)at[1] + row_start(rows, row);
        double inverse = 1 / exponentials_of(x, y, rows->length, rows->inner, largest_of(x, rows->length, rows->inner));
        for (int64_t k = 0; k < rows->length; k++) y[k * rows->inner] = (float)(y[k * rows->inner] * inverse);
    }
    return 0;
}

static int
log_softmax_rows(const int64_t *numbers, char **at)
{
    const Rows *rows = (const Rows *)numbers;
    for (int64_t row = 0; row < rows->groups * rows->inner; row++) {
        const float *x = (const float *)at[0] + row_start(rows, row);
        float *y = (float *)at[1] + row_start(rows, row), largest = largest_of(x, rows->length, rows->inner);
        double logarithm = log(exponentials_of(x, y, rows->length, rows->inner, largest));
        for (int64_t k = 0; k < rows->length; k++) y[k * rows->inner] = (float)((double)(x[k * rows->inner] - largest) - logarithm);
    }
    return 0;
}

/* x = y * (g - sum(g * y)), of a gradient g and a softmax y */
static int
softmax_backward_rows(const int64_t *numbers, char **at)
{
    const Rows *rows = (const Rows *)numbers;
    for (int64_t row = 0; row < rows->groups * rows->inner; row++) {
        const float *g = (const float *)at[0] + row_start(rows, row), *y = (const float *)at[1] + row_start(rows, row);
        float *x = (float *)at[2] + row_start(rows, row);
        double sum = 0;
        for (int64_t k = 0; k < rows->length; k++) sum += (double)g[k * rows->inner] * y[k * rows->inner];
        for (int64_t k = 0; k < rows->length; k++) x[k * rows->inner] = (float)((g[k * rows->inner] - sum) * y[k * rows->inner]);
    }
    return 0;
}

/* x = g - exp(y) * sum(g), of a gradient g and a logarithm of a softmax y */
static int
log_softmax_backward_rows(const int64_t *numbers, char **at)
{
    const Rows *rows = (const Rows *)numbers;
    for (int64_t row = 0; row < rows->groups * rows->inner; row++) {
        const float *g = (const float *)at[0] + row_start(rows, row), *y = (const float *)at[1] + row_start(rows, row);
        float *x = (float *)at[2] + row_start(rows, row);
        double sum = 0;
        for (int64_t k = 0; k < rows->length; k++) sum += g[k * rows->inner];
        for (int64_t k = 0; k < rows->length; k++)
            x[k * rows->inner] = (float)(g[k * rows->inner] - expf(y[k * rows->inner]) * sum);
    }
    return 0;
}

static int
logsumexp_rows(const int64_t *numbers, char **at)
{
    const Rows *rows = (const Rows *)numbers;
    for (int64_t row = 0; row < rows->groups * rows->inner; row++) {
        const float *x = (const float *)at[0] + row_start(rows, row);
        float largest = largest_of(x, rows->length, rows->inner), shift = isfinite(largest) ? largest : 0;
        double sum = 0;
        for (int64_t k = 0; k < rows->length; k++) sum += exp((double)x[k * rows->inner] - shift);
        ((float *)at[1])[row] = (float)(log(sum) + shift);
    }
    return 0;
}

/* Losses of a matrix (samples, classes) with one class a sample; how single losses are reduced. */
enum { NO_REDUCTION, MEAN_REDUCTION, SUM_REDUCTION };
typedef struct {
    int64_t samples, classes, reduction, ignored;
} Targets;

/* Whether each sample has a class, of which none is ignored. */
static int
are_classes(const Targets *targets, const int64_t *classes)
{
    if (targets->ignored >= 0 && targets->ignored < targets->classes) return 0;
    for (int64_t i = 0; i < targets->samples; i++)
        if (classes[i] < 0 || classes[i] >= targets->classes) return 0;
    return 1;
}

static void
put_loss(const Targets *targets, double sum, float *loss)
{
    if (targets->reduction != NO_REDUCTION) loss[0] = (float)(targets->reduction == MEAN_REDUCTION ? sum / (double)targets->samples : sum);
}

/* Scores and classes -> losses, softmax of the scores. */
static int
cross_entropy_rows(const int64_t *numbers, char **at)
{
    const Targets *targets = (const Targets *)numbers;
    const int64_t *classes = (const int64_t *)at[1];
    float *loss = (float *)at[2];
    double total = 0;
    if (!are_classes(targets, classes)) return 1;
    for (int64_t i = 0; i < targets->samples; i++) {
        const float *x = (const float *)at[0] + i * targets->classes;
        float *y = (float *)at[3] + i * targets->classes, largest = largest_of(x, targets->classes, 1);
        double sum = exponentials_of(x, y, targets->classes, 1, largest), inverse = 1 / sum;
        double one = log(sum) - (double)(x[classes[i]] - largest);
        for (int64_t k = 0; k < targets->classes; k++) y[k] = (float)(y[k] * inverse);
        if (targets->reduction == NO_REDUCTION) loss[i] = (float)one;
        total += one;
    }
    put_loss(targets, total, loss);
    return 0;
}

/* The gradients of losses, softmax, classes -> gradients of scores. */
static int
cross_entropy_backward_rows(const int64_t *numbers, char **at)
{
    const Targets *targets = (const Targets *)numbers;
    const int64_t *classes = (const int64_t *)at[2];
    const float *grad = (const float *)at[0];
    if (!are_classes(targets, classes)) return 1;
    for (int64_t i = 0; i < targets->samples; i++) {
        const float *y = (const float *)at[1] + i * targets->classes;
        float *x = (float *)at[3] + i * targets->classes;
        float scale = targets->reduction == NO_REDUCTION ? grad[i] : targets->reduction == MEAN_REDUCTION ? grad[0] / (float)targets->samples : grad[0];
        for (int64_t k = 0; k < targets->classes; k++) x[k] = (y[k] - (k == classes[i])) * scale;
    }
    return 0;
}

/* Logarithms of probabilities and classes -> losses, how many samples there are. */
static int
nll_rows(const int64_t *numbers, char **at)
{
    const Targets *targets = (const Targets *)numbers;
    const int64_t *classes = (const int64_t *)at[1];
    const float *x = (const float *)at[0];
    double total = 0;
    if (!are_classes(targets, classes)) return 1;
    for (int64_t i = 0; i < targets->samples; i++) {
        float one = -x[i * targets->classes + classes[i]];
        if (targets->reduction == NO_REDUCTION) ((float *)at[2])[i] = one;
        total += one;
    }
    put_loss(targets, total, (float *)at[2]);
    *(float *)at[3] = (float)targets->samples;
    return 0;
}

/* The gradients of losses, classes -> gradients of logarithms of probabilities. */
static int
nll_backward_rows(const int64_t *numbers, char **at)
{
    const Targets *targets = (const Targets *)numbers;
    const int64_t *classes = (const int64_t *)at[1];
    const float *grad = (const float *)at[0];
    float *x = (float *)at[2];
    if (!are_classes(targets, classes)) return 1;
    memset(x, 0, sizeof(float) * targets->samples * targets->classes);
    for (int64_t i = 0; i < targets->samples; i++)
        x[i * targets->classes + classes[i]] = targets->reduction == NO_REDUCTION     ? -grad[i]
                                               : targets->reduction == MEAN_REDUCTION ? -grad[0] / (float)targets->samples
                                                                                      : -grad[0];
    return 0;
}

#endif
