/* What a weight's mean and log variance say: its variance, whether it counts, its KL from the hierarchical prior. */

#ifndef VBDROP_POSTERIOR_H
#define VBDROP_POSTERIOR_H

#include <math.h>

#include "elementary.h"

#define LOG_2 0.69314718055994531

/* The sum of many log(1 + x), x >= 0, as the logarithm of a product: mantissas are multiplied, exponents added, and there
   is one logarithm a run instead of one an element. What the rounding of 1 + x loses counts where x is small. */

#define RUN (LANES * 64) /* elements that one product takes at most: no partial product leaves its type's range */

typedef struct {
    float mantissa[LANES], lost[LANES];
    int32_t exponent[LANES];
} log1p_sum;

static inline void start_sum(log1p_sum *sum) {
    for (int l = 0; l < LANES; l++) {
        sum->mantissa[l] = 1.0f;
        sum->lost[l] = 0.0f;
        sum->exponent[l] = 0;
    }
}

static inline void add_log1p(log1p_sum *sum, int l, float x) {
    x = x > 1e38f ? 1e38f : x;
    const float u = 1.0f + x;
    const int32_t bits = to_bits(u);
    sum->mantissa[l] *= from_bits((bits & 0x007fffff) | 0x3f800000);
    sum->exponent[l] += (bits >> 23) - 127;
    sum->lost[l] += u >= 2.0f ? 0.0f : x - (u - 1.0f); /* NaN goes this way, into the total */
}

static inline double total_of(const log1p_sum *sum) {
    double total = 0.0;
    for (int from = 0; from < LANES; from += 8) {
        double mantissa = 1.0;
        int64_t exponent = 0;
        for (int l = from; l < from + 8; l++) {
            mantissa *= (double)sum->mantissa[l];
            exponent += sum->exponent[l];
            total += (double)sum->lost[l];
        }
        total += log(mantissa) + (double)exponent * LOG_2;
    }
    return total;
}

/* theta^2 times the precision 1 / sigma2; not a number where the square is none that float32 has */
static inline float ratio_of(float square, float precision) { return square * precision + (square - square); }

/* The mean as used: a mask takes what has sigma2 >= limit * theta^2. */
static inline float masked_at(float theta, float sigma2, float limit) {
    return sigma2 < limit * theta * theta ? theta : 0.0f;
}

/* sigma2 = exp(log_sigma2), and the mean as used, for any number of weights */
static inline void weights_of(const float *theta, const float *log_sigma2, float limit, float *weight, float *sigma2,
                              int64_t count) {
    int64_t i = 0;
    for (; i + WIDTH <= count; i += WIDTH) {
        const vector t = load(theta + i), s = exp_of_vector(load(log_sigma2 + i));
        store(sigma2 + i, s);
        store(weight + i, (vector)((s < limit * t * t) & (integers)t));
    }
    for (; i < count; i++) {
        sigma2[i] = exp_of(log_sigma2[i]);
        weight[i] = masked_at(theta[i], sigma2[i], limit);
    }
}

/* The sums of add_log1p in registers. */
#define SUMS (LANES / WIDTH)

typedef struct {
    vector mantissa[SUMS], lost[SUMS];
    integers exponent[SUMS];
} log1p_vectors;

static inline void start_vectors(log1p_vectors *sum) {
    for (int h = 0; h < SUMS; h++) {
        sum->mantissa[h] = all(1.0f);
        sum->lost[h] = all(0.0f);
        sum->exponent[h] = (integers){0};
    }
}

static inline double total_of_vectors(const log1p_vectors *sum) {
    log1p_sum lanes;
    memcpy(lanes.mantissa, sum->mantissa, sizeof lanes.mantissa);
    memcpy(lanes.lost, sum->lost, sizeof lanes.lost);
    memcpy(lanes.exponent, sum->exponent, sizeof lanes.exponent);
    return total_of(&lanes);
}

/* Add log(1 + theta^2 / sigma2) of LANES weights; the exponents become 127 too large. */
static inline void add_kl_step(log1p_vectors *sum, const float *theta, const float *sigma2) {
    for (int h = 0; h < SUMS; h++) {
        const vector t = load(theta + h * WIDTH), square = t * t;
        const vector x = smaller(all(1e38f), square / load(sigma2 + h * WIDTH) + (square - square)), u = x + 1.0f;
        sum->mantissa[h] *= (vector)(((integers)u & 0x007fffff) | 0x3f800000);
        sum->exponent[h] += (integers)u >> 23;
        sum->lost[h] += (vector)(~(u >= all(2.0f)) & (integers)(x - (u - 1.0f))); /* NaN goes this way, into the total */
    }
}

/* What the products have beyond 2 goes to the exponents, which lose the 127 of each step, so that the sum can go on. */
static inline void settle(log1p_vectors *sum, int64_t steps) {
    for (int h = 0; h < SUMS; h++) {
        const integers bits = (integers)sum->mantissa[h];
        sum->exponent[h] += (bits >> 23) - (int32_t)(127 * (steps + 1));
        sum->mantissa[h] = (vector)((bits & 0x007fffff) | 0x3f800000);
    }
}

/* Add the log(1 + theta^2 / sigma2) of any number of weights, that is twice their KL from the hierarchical prior. */
static inline void add_kl(log1p_vectors *sum, const float *theta, const float *sigma2, int64_t count) {
    log1p_vectors here = *sum;
    int64_t i = 0;
    while (i + LANES <= count) {
        const int64_t start = i, end = at_most(start + RUN, count);
        for (; i + LANES <= end; i += LANES) add_kl_step(&here, theta + i, sigma2 + i);
        settle(&here, (i - start) / LANES);
    }
    if (i < count) { /* the rest, filled up with weights that are zero: their logarithm is, too */
        float last_theta[LANES] = {0}, last_sigma2[LANES];
        for (int l = 0; l < LANES; l++) last_sigma2[l] = 1.0f;
        memcpy(last_theta, theta + i, (size_t)(count - i) * sizeof(float));
        memcpy(last_sigma2, sigma2 + i, (size_t)(count - i) * sizeof(float));
        add_kl_step(&here, last_theta, last_sigma2);
        settle(&here, 1);
    }
    *sum = here;
}

/* weights_of, and as the result twice the KL: each by itself, since together they have more to wait for at a time than a
   processor can see */
static inline double posterior_of(const float *theta, const float *log_sigma2, float limit, float *weight, float *sigma2,
                                  int64_t count) {
    log1p_vectors sum;
    start_vectors(&sum);
    weights_of(theta, log_sigma2, limit, weight, sigma2, count);
    add_kl(&sum, theta, sigma2, count);
    return total_of_vectors(&sum);
}

/* From the gradients towards the mean as used and sigma2 to those towards theta and log_sigma2, with `scale` times the
   gradients of the hierarchical KL added. A mean of zero is not changed by a mask, and keeps its gradient. */
static inline void gradients_at(float theta, float sigma2, float limit, float scale, float *by_theta, float *by_sigma2) {
    const float by_kl = scale * theta / (theta * theta + sigma2);
    const int kept = (sigma2 < limit * theta * theta) | (theta == 0.0f);
    *by_theta = (kept ? *by_theta : 0.0f) + by_kl;
    *by_sigma2 = *by_sigma2 * sigma2 - 0.5f * theta * by_kl;
}

#endif
