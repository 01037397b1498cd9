/* The elementwise work of a training step, one pass each, for float32 on the CPU.

   Every function has its plain counterpart in PyTorch, which is the reference; native.py says which. Exponential and
   logarithm are polynomials with an error of about two units in the last place. */

#include <math.h>
#include <stdint.h>
#include <string.h>

#define BLOCK 4096 /* elements a thread takes at a time */
#define RUN 256    /* elements that are summed in float32 before they join the sum in double */

static inline float from_bits(int32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline int32_t to_bits(float value) {
    int32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* exp(x), with x held inside the range in which the result is a normal number */
static inline float exp_of(float x) {
    x = x < -87.0f ? -87.0f : x;
    x = x > 88.0f ? 88.0f : x;
    const float shifted = x * 1.44269504f + 12582912.0f; /* adding 1.5 * 2^23 rounds to the nearest integer */
    const float k = shifted - 12582912.0f;
    float r = x - k * 0.693359375f;
    r = r + k * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    return p * from_bits(((int32_t)k + 127) << 23);
}

/* log(1 + x) for x >= 0, exact in the small too: what the rounding of 1 + x loses is added again */
static inline float log1p_of(float x) {
    const float u = 1.0f + x;
    const float lost = (x - (u - 1.0f)) / u;
    const int32_t bits = to_bits(u);
    const int32_t exponent = (bits - 0x3f3504f3) >> 23; /* so that the mantissa lies in [sqrt(1/2), sqrt(2)) */
    const float m = from_bits(bits - (exponent << 23)) - 1.0f;
    const float e = (float)exponent;
    float p = 7.0376836292e-2f;
    p = p * m - 1.1514610310e-1f;
    p = p * m + 1.1676998740e-1f;
    p = p * m - 1.2420140846e-1f;
    p = p * m + 1.4249322787e-1f;
    p = p * m - 1.6668057665e-1f;
    p = p * m + 2.0000714765e-1f;
    p = p * m - 2.4999993993e-1f;
    p = p * m + 3.3333331174e-1f;
    const float m2 = m * m;
    float tail = p * m * m2 + e * -2.12194440e-4f;
    tail = tail - 0.5f * m2;
    return (m + tail) + (e * 0.693359375f + lost);
}

static inline int64_t at_most(int64_t a, int64_t b) { return a < b ? a : b; }

/* sigma2 = exp(log_sigma2); weight = theta where sigma2 < limit * theta^2, else 0 */
void vbdrop_posterior(const float *theta, const float *log_sigma2, float limit, float *weight, float *sigma2, int64_t n,
                      int threads) {
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t start = 0; start < n; start += BLOCK) {
        const int64_t end = at_most(start + BLOCK, n);
#pragma omp simd
        for (int64_t i = start; i < end; i++) {
            const float s = exp_of(log_sigma2[i]);
            sigma2[i] = s;
            weight[i] = s < limit * theta[i] * theta[i] ? theta[i] : 0.0f;
        }
    }
}

/* by_theta = 0 where the mask changed the weight; by_sigma2 *= sigma2 */
void vbdrop_posterior_backward(const float *theta, const float *weight, const float *sigma2, float *by_theta,
                               float *by_sigma2, int64_t n, int threads) {
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t start = 0; start < n; start += BLOCK) {
        const int64_t end = at_most(start + BLOCK, n);
#pragma omp simd
        for (int64_t i = start; i < end; i++) {
            by_theta[i] = weight[i] == theta[i] ? by_theta[i] : 0.0f;
            by_sigma2[i] *= sigma2[i];
        }
    }
}

/* mean += deviation * noise; noise /= deviation, or 0 where there is no deviation to speak of */
void vbdrop_sample(float *mean, const float *variance, float *noise, float floor, int64_t n, int threads) {
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t start = 0; start < n; start += BLOCK) {
        const int64_t end = at_most(start + BLOCK, n);
#pragma omp simd
        for (int64_t i = start; i < end; i++) {
            const float v = variance[i] < floor * floor ? floor * floor : variance[i];
            const float deviation = sqrtf(v);
            mean[i] += deviation * noise[i];
            noise[i] = deviation > floor ? noise[i] / deviation : 0.0f;
        }
    }
}

/* the sum of log(1 + theta^2 / sigma2), that is twice the KL of the hierarchical prior */
double vbdrop_kl(const float *theta, const float *log_sigma2, int64_t n, int threads) {
    double total = 0.0;
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(static) reduction(+ : total)
    for (int64_t start = 0; start < n; start += RUN) {
        const int64_t end = at_most(start + RUN, n);
        float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = start; i < end; i++) {
            sum += log1p_of(theta[i] * theta[i] * exp_of(-log_sigma2[i]));
        }
        total += (double)sum;
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
