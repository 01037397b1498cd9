/* The KL of the log-uniform prior by its sigmoid approximation, and its gradients (Molchanov et al. 2017). */

#include "elementary.h"
#include "weights.h"

#define K1 0.63576f
#define K2 1.87320f
#define K3 1.48695f
#define SMALLEST_SQUARE 1.17549435e-38f /* the smallest normal float32 */

static inline float square_of(float theta) {
    const float square = theta * theta;
    return square < SMALLEST_SQUARE ? SMALLEST_SQUARE : square;
}

/* 1 - S(k2 + k3 log_alpha), small for large alpha */
static inline float sigmoid_of(float square, float log_sigma2) {
    const float log_alpha = log_sigma2 - log_of(square);
    return 1.0f / (1.0f + exp_of(K2 + K3 * log_alpha));
}

/* The sum of log(1 + theta^2 / sigma2) / 2 + k1 (1 - S(k2 + k3 log_alpha)), and `scale` times its gradients, unless they are
   NULL. */
double vbdrop_log_uniform_kl(const float *theta, const float *log_sigma2, float scale, float *by_theta, float *by_log_sigma2,
                             int64_t n, int threads) {
    const double hierarchical = vbdrop_kl(theta, log_sigma2, scale, by_theta, by_log_sigma2, n, threads);
    double total = 0.0;
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(static) reduction(+ : total)
    for (int64_t start = 0; start < n; start += BLOCK) {
        const int64_t end = at_most(start + BLOCK, n);
        float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = start; i < end; i++) sum += sigmoid_of(square_of(theta[i]), log_sigma2[i]);
        total += (double)sum;
        if (!by_theta) continue;
#pragma omp simd
        for (int64_t i = start; i < end; i++) {
            const float t = theta[i], square = square_of(t), sigmoid = sigmoid_of(square, log_sigma2[i]);
            const float slope = scale * -K1 * K3 * sigmoid * (1.0f - sigmoid); /* by log_alpha */
            by_theta[i] -= 2.0f * slope * t / square;
            by_log_sigma2[i] += slope;
        }
    }
    return (double)K1 * total + 0.5 * hierarchical;
}
