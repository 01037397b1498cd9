/* The elementwise work of a training step on noisy weights, one pass each, for float32 on the CPU.

   Every function has its reference in `vbdrop.functional`; `vbdrop/kernels/weights.py` and `kl.py` say which. */

#include "noise.h"
#include "posterior.h"
#include "weights.h"

/* out = mean + deviation * noise; noise becomes the derivative of that by the variance, noise / (2 deviation), or 0 where
   the deviation is negligible. With `draw`, the noise is drawn here first. `out` may be `mean`. */
void vbdrop_sample(const float *mean, const float *variance, float *noise, float floor, int draw, uint64_t seed, float *out,
                   int64_t n, int threads) {
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t start = 0; start < n; start += BLOCK) {
        const int64_t end = at_most(start + BLOCK, n);
        if (draw) fill_normal(noise + start, end - start, seed, start / BLOCK);
#pragma omp simd
        for (int64_t i = start; i < end; i++) {
            const float v = variance[i] < floor * floor ? floor * floor : variance[i];
            const float deviation = sqrtf(v);
            out[i] = mean[i] + deviation * noise[i];
            noise[i] = deviation > floor ? 0.5f * noise[i] / deviation : 0.0f;
        }
    }
}

/* weights_of for any number of weights */
void vbdrop_posterior(const float *theta, const float *log_sigma2, float limit, float *weight, float *sigma2, int64_t n,
                      int threads) {
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t start = 0; start < n; start += BLOCK) {
        weights_of(theta + start, log_sigma2 + start, limit, weight + start, sigma2 + start, at_most(BLOCK, n - start));
    }
}

/* The gradients of theta and log_sigma2, from those of the masked mean and sigma2. */
void vbdrop_posterior_backward(const float *theta, const float *sigma2, float limit, const float *by_weight,
                               const float *by_sigma2, float *by_theta, float *by_log_sigma2, int64_t n, int threads) {
    (void)threads;
#pragma omp parallel for simd num_threads(threads) schedule(static)
    for (int64_t i = 0; i < n; i++) {
        by_theta[i] = unmasked_at(by_weight[i], theta[i], sigma2[i], limit);
        by_log_sigma2[i] = by_sigma2[i] * sigma2[i];
    }
}

/* The sum of log(1 + theta^2 / sigma2), which is twice the hierarchical KL; and `scale` times the gradients of the KL,
   unless they are NULL. */
double vbdrop_kl(const float *theta, const float *log_sigma2, float scale, float *by_theta, float *by_log_sigma2, int64_t n,
                 int threads) {
    double total = 0.0;
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(static) reduction(+ : total)
    for (int64_t start = 0; start < n; start += RUN) {
        const int64_t count = at_most(RUN, n - start);
        const float *t = theta + start;
        float unused[RUN], sigma2[RUN];
        log1p_sum sum;
        start_sum(&sum);
        weights_of(t, log_sigma2 + start, 0.0f, unused, sigma2, count);
        add_kl(&sum, t, sigma2, count);
        total += total_of(&sum);
        if (!by_theta) continue;
#pragma omp simd
        for (int64_t i = 0; i < count; i++) {
            const float slope = scale * t[i] / (t[i] * t[i] + sigma2[i]);
            by_theta[start + i] = slope;
            by_log_sigma2[start + i] = -0.5f * t[i] * slope;
        }
    }
    return total;
}
