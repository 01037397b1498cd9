/* The elementwise work of a training step on noisy weights, one pass each, for float32 on the CPU.

   Every function has its plain counterpart in PyTorch, which is the reference; native.py says which. */

#include "noise.h"
#include "posterior.h"
#include "weights.h"

/* mean += deviation * noise; noise /= deviation, or 0 where there is no deviation to speak of. With `draw`, the noise is
   drawn here first. */
void vbdrop_sample(float *mean, const float *variance, float *noise, float floor, int draw, uint64_t seed, int64_t n,
                   int threads) {
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t start = 0; start < n; start += BLOCK) {
        const int64_t end = at_most(start + BLOCK, n);
        if (draw) fill_normal(noise + start, end - start, seed, start / BLOCK);
#pragma omp simd
        for (int64_t i = start; i < end; i++) {
            const float v = variance[i] < floor * floor ? floor * floor : variance[i];
            const float deviation = sqrtf(v);
            mean[i] += deviation * noise[i];
            noise[i] = deviation > floor ? noise[i] / deviation : 0.0f;
        }
    }
}

/* posterior_of for any number of weights */
double vbdrop_posterior(const float *theta, const float *log_sigma2, float limit, float *weight, float *sigma2,
                        int64_t n, int threads) {
    double total = 0.0;
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(static) reduction(+ : total)
    for (int64_t start = 0; start < n; start += RUN) {
        const int64_t count = at_most(RUN, n - start);
        total += posterior_of(theta + start, log_sigma2 + start, limit, weight + start, sigma2 + start, count);
    }
    return total;
}

/* weight = theta where it is kept, else 0 */
void vbdrop_masked_mean(const float *theta, const float *sigma2, float limit, float *weight, int64_t n, int threads) {
    (void)threads;
#pragma omp parallel for simd num_threads(threads) schedule(static)
    for (int64_t i = 0; i < n; i++) weight[i] = masked_at(theta[i], sigma2[i], limit);
}

/* gradients_at for all weights, in place */
void vbdrop_posterior_backward(const float *theta, const float *sigma2, float limit, float scale, float *by_theta,
                               float *by_sigma2, int64_t n, int threads) {
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t start = 0; start < n; start += BLOCK) {
        const int64_t end = at_most(start + BLOCK, n);
#pragma omp simd
        for (int64_t i = start; i < end; i++) gradients_at(theta[i], sigma2[i], limit, scale, by_theta + i, by_sigma2 + i);
    }
}

/* the sum of log(1 + theta^2 / sigma2) alone */
double vbdrop_kl(const float *theta, const float *log_sigma2, int64_t n, int threads) {
    double total = 0.0;
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(static) reduction(+ : total)
    for (int64_t start = 0; start < n; start += RUN) {
        float weight[RUN], sigma2[RUN];
        total += posterior_of(theta + start, log_sigma2 + start, 0.0f, weight, sigma2, at_most(RUN, n - start));
    }
    return total;
}

/* scale times the gradients of the hierarchical KL */
void vbdrop_kl_backward(const float *theta, const float *log_sigma2, float scale, float *by_theta, float *by_log_sigma2,
                        int64_t n, int threads) {
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t start = 0; start < n; start += BLOCK) {
        const int64_t end = at_most(start + BLOCK, n);
#pragma omp simd
        for (int64_t i = start; i < end; i++) {
            const float t = theta[i];
            const float g = scale * t / (t * t + exp_of(log_sigma2[i]));
            by_theta[i] = g;
            by_log_sigma2[i] = -0.5f * t * g;
        }
    }
}
