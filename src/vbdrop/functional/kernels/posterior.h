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

/* The sums of add_log1p in registers; their exponents are 127 too large a step. */
typedef struct {
    vector mantissa, lost;
    integers exponent;
} log1p_vectors;

static inline void add_log1p_vector(log1p_vectors *sum, vector x) {
    x = smaller(all(1e38f), x);
    const vector u = x + 1.0f;
    sum->mantissa *= (vector)(((integers)u & 0x007fffff) | 0x3f800000);
    sum->exponent += (integers)u >> 23;
    sum->lost += (vector)(~(u >= all(2.0f)) & (integers)(x - (u - 1.0f)));
}

/* The sum of log(1 + theta^2 / sigma2), that is twice the KL of the hierarchical prior, for at most RUN weights. */
static inline double twice_kl_of(const float *theta, const float *sigma2, int64_t count) {
    enum { SUMS = LANES / WIDTH };
    log1p_vectors sums[SUMS];
    log1p_sum sum;
    int64_t i = 0;
    for (int h = 0; h < SUMS; h++) sums[h] = (log1p_vectors){all(1.0f), all(0.0f), (integers){0}};
    for (; i + LANES <= count; i += LANES) {
        for (int h = 0; h < SUMS; h++) {
            const vector t = load(theta + i + h * WIDTH), square = t * t;
            add_log1p_vector(sums + h, square / load(sigma2 + i + h * WIDTH) + (square - square));
        }
    }
    for (int h = 0; h < SUMS; h++) {
        sums[h].exponent -= (int32_t)(127 * (i / LANES));
        memcpy(sum.mantissa + h * WIDTH, &sums[h].mantissa, sizeof(vector));
        memcpy(sum.lost + h * WIDTH, &sums[h].lost, sizeof(vector));
        memcpy(sum.exponent + h * WIDTH, &sums[h].exponent, sizeof(vector));
    }
    for (int l = 0; i < count; i++, l++) add_log1p(&sum, l, ratio_of(theta[i] * theta[i], 1.0f / sigma2[i]));
    return total_of(&sum);
}

/* weights_of and twice_kl_of, for at most RUN weights: each by itself, since together they have more to wait for at a time
   than a processor can see */
static inline double posterior_of(const float *theta, const float *log_sigma2, float limit, float *weight, float *sigma2,
                                  int64_t count) {
    weights_of(theta, log_sigma2, limit, weight, sigma2, count);
    return twice_kl_of(theta, sigma2, count);
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
