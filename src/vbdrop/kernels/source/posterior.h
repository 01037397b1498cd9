/* What follows from a weight's mean and log variance: its variance, its mask, its KL from the hierarchical prior. */

#ifndef VBDROP_POSTERIOR_H
#define VBDROP_POSTERIOR_H

#include <math.h>

#include "elementary.h"

#define LOG_2 0.69314718055994531

/* The sum of many log(1 + x), x >= 0, as the logarithm of a product: mantissas are multiplied, exponents added, and there
   is one logarithm for many elements. The rounding error of 1 + x is added, since it matters for small x. */

#define RUN (LANES * 64) /* at most this many elements per product: no partial product overflows */
#define SUMS (LANES / WIDTH)

typedef struct {
    vector mantissa[SUMS], lost[SUMS];
    integers exponent[SUMS];
} log1p_sum;

static inline void start_sum(log1p_sum *sum) {
    for (int h = 0; h < SUMS; h++) {
        sum->mantissa[h] = all(1.0f);
        sum->lost[h] = all(0.0f);
        sum->exponent[h] = (integers){0};
    }
}

static inline double total_of(const log1p_sum *sum) {
    double total = 0.0, mantissa = 1.0;
    int64_t exponent = 0;
    for (int l = 0; l < LANES; l++) {
        mantissa *= (double)sum->mantissa[l / WIDTH][l % WIDTH];
        exponent += sum->exponent[l / WIDTH][l % WIDTH];
        total += (double)sum->lost[l / WIDTH][l % WIDTH];
    }
    return total + log(mantissa) + (double)exponent * LOG_2;
}

/* The masked mean: zero if sigma2 >= limit * theta^2. NaN is not masked. */
static inline float masked_at(float theta, float sigma2, float limit) {
    return sigma2 >= limit * theta * theta ? 0.0f : theta;
}

/* sigma2 = exp(log_sigma2), and the masked mean, for any number of weights */
static inline void weights_of(const float *theta, const float *log_sigma2, float limit, float *weight, float *sigma2,
                              int64_t count) {
    int64_t i = 0;
    for (; i + WIDTH <= count; i += WIDTH) {
        const vector t = load(theta + i), s = exp_of_vector(load(log_sigma2 + i));
        store(sigma2 + i, s);
        store(weight + i, (vector)(~(s >= limit * t * t) & (integers)t));
    }
    for (; i < count; i++) {
        sigma2[i] = exp_of(log_sigma2[i]);
        weight[i] = masked_at(theta[i], sigma2[i], limit);
    }
}

/* Add log(1 + theta^2 / sigma2) of LANES weights; the exponents become 127 too large. */
static inline void add_kl_step(log1p_sum *sum, const float *theta, const float *sigma2) {
    for (int h = 0; h < SUMS; h++) {
        const vector t = load(theta + h * WIDTH), square = t * t;
        const vector x = smaller(all(1e38f), square / load(sigma2 + h * WIDTH) + (square - square)), u = x + 1.0f;
        sum->mantissa[h] *= (vector)(((integers)u & 0x007fffff) | 0x3f800000);
        sum->exponent[h] += (integers)u >> 23;
        sum->lost[h] += (vector)(~(u >= all(2.0f)) & (integers)(x - (u - 1.0f))); /* NaN reaches the total this way */
    }
}

/* Move factors of 2 from the products to the exponents, and subtract the 127 of each step, so that the sum can continue. */
static inline void settle(log1p_sum *sum, int64_t steps) {
    for (int h = 0; h < SUMS; h++) {
        const integers bits = (integers)sum->mantissa[h];
        sum->exponent[h] += (bits >> 23) - (int32_t)(127 * (steps + 1));
        sum->mantissa[h] = (vector)((bits & 0x007fffff) | 0x3f800000);
    }
}

/* Add the log(1 + theta^2 / sigma2) of any number of weights, that is twice their KL from the hierarchical prior. */
static inline void add_kl(log1p_sum *sum, const float *theta, const float *sigma2, int64_t count) {
    log1p_sum here = *sum;
    int64_t i = 0;
    while (i + LANES <= count) {
        const int64_t start = i, end = at_most(start + RUN, count);
        for (; i + LANES <= end; i += LANES) add_kl_step(&here, theta + i, sigma2 + i);
        settle(&here, (i - start) / LANES);
    }
    if (i < count) { /* the rest, padded with zero weights, whose logarithm is zero, too */
        float last_theta[LANES] = {0}, last_sigma2[LANES];
        for (int l = 0; l < LANES; l++) last_sigma2[l] = 1.0f;
        memcpy(last_theta, theta + i, (size_t)(count - i) * sizeof(float));
        memcpy(last_sigma2, sigma2 + i, (size_t)(count - i) * sizeof(float));
        add_kl_step(&here, last_theta, last_sigma2);
        settle(&here, 1);
    }
    *sum = here;
}

/* The gradient of theta from that of the masked mean: a mean of zero is not changed by a mask, and keeps its
   gradient. */
static inline float unmasked_at(float by_weight, float theta, float sigma2, float limit) {
    return (sigma2 >= limit * theta * theta) & (theta != 0.0f) ? 0.0f : by_weight;
}

#endif
