/* Gates on units: x is [samples, units, space], noise [samples, units]; a unit's sums run over the samples in order,
   for any number of threads. */

#include "gates.h"
#include "noise.h"

#define GATES 64 /* units that a thread takes at a time */

/* gates_of, and out = x * (gate + deviation * noise). With `draw`, the noise is drawn here first. */
void vbdrop_gate(const float *x, const float *mean, const float *log_sigma2, float limit, float *gate, float *deviation,
                 float *noise, int draw, uint64_t seed, float *out, int64_t samples, int64_t units, int64_t space,
                 int threads) {
    if (draw) draw_normal(noise, seed, samples * units, threads);
    gates_of(mean, log_sigma2, limit, gate, deviation, units);
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t sample = 0; sample < samples; sample++) {
        const float *eps = noise + sample * units, *from = x + sample * units * space;
        float *to = out + sample * units * space;
        if (space == 1) {
            gate_units(from, gate, deviation, eps, units, to);
        } else {
            for (int64_t u = 0; u < units; u++) {
                const float factor = gate[u] + deviation[u] * eps[u];
#pragma omp simd
                for (int64_t i = u * space; i < (u + 1) * space; i++) to[i] = from[i] * factor;
            }
        }
    }
}

/* The gradients of vbdrop_gate with respect to x (unless by_x is NULL), mean and log_sigma2. */
void vbdrop_gate_backward(const float *grad, const float *x, const float *mean, const float *gate, const float *deviation,
                          const float *noise, float *by_x, float *by_mean, float *by_log_sigma2, int64_t samples,
                          int64_t units, int64_t space, int threads) {
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t first = 0; first < units; first += GATES) {
        const int64_t count = at_most(GATES, units - first);
        float sums[GATES] = {0}, noisy_sums[GATES] = {0};
        for (int64_t sample = 0; sample < samples; sample++) {
            const float *eps = noise + sample * units + first;
            const int64_t at = (sample * units + first) * space;
            if (space == 1) {
#pragma omp simd
                for (int64_t u = 0; u < count; u++) {
                    const float product = grad[at + u] * x[at + u];
                    sums[u] += product;
                    noisy_sums[u] += product * eps[u];
                }
                if (by_x) gate_units(grad + at, gate + first, deviation + first, eps, count, by_x + at);
            } else {
                for (int64_t u = 0; u < count; u++) {
                    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
                    for (int64_t i = at + u * space; i < at + (u + 1) * space; i++) sum += grad[i] * x[i];
                    sums[u] += sum;
                    noisy_sums[u] += sum * eps[u];
                    if (by_x) {
                        const float factor = gate[first + u] + deviation[first + u] * eps[u];
#pragma omp simd
                        for (int64_t i = at + u * space; i < at + (u + 1) * space; i++) by_x[i] = grad[i] * factor;
                    }
                }
            }
        }
        for (int64_t u = 0; u < count; u++) {
            const int64_t at = first + u;
            gate_gradients_at(mean[at], gate[at], deviation[at], sums[u], noisy_sums[u], by_mean + at, by_log_sigma2 + at);
        }
    }
}
