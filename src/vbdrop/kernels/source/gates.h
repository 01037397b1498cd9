/* The gate of a unit: its value, its deviation and its gradients. */

#ifndef VBDROP_GATES_H
#define VBDROP_GATES_H

#include <math.h>

#include "posterior.h"

/* gate = mean, or 0 where sigma2 >= limit * mean^2; deviation = exp(log_sigma2 / 2) */
static inline void gates_of(const float *mean, const float *log_sigma2, float limit, float *gate, float *deviation,
                            int64_t units) {
    for (int64_t u = 0; u < units; u++) {
        const float s = exp_of(log_sigma2[u]);
        deviation[u] = sqrtf(s);
        gate[u] = masked_at(mean[u], s, limit);
    }
}

/* to = x * (gate + deviation * noise) */
static inline void gate_units(const float *x, const float *gate, const float *deviation, const float *noise, int64_t units,
                              float *to) {
#pragma omp simd
    for (int64_t u = 0; u < units; u++) to[u] = x[u] * (gate[u] + deviation[u] * noise[u]);
}

/* The gradients of mean and log_sigma2, from the sums over the samples of the gradient of a gate's draw, and of that
   times its noise. */
static inline void gate_gradients_at(float mean, float gate, float deviation, float sum, float noisy_sum, float *by_mean,
                                     float *by_log_sigma2) {
    *by_mean = gate == mean ? sum : 0.0f;
    *by_log_sigma2 = 0.5f * noisy_sum * deviation;
}

#endif
