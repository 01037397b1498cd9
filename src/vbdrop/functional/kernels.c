/* The elementwise work of a training step, one pass each, for float32 on the CPU.

   Every function has its plain counterpart in PyTorch, which is the reference; native.py says which. */

#include <math.h>

#include "elementary.h"

#define LOG_2 0.69314718055994531

/* Noise: a generator a lane (xoshiro128++), seeded anew for every block, so that the numbers do not depend on how many
   threads share the work; and the polar form of two independent normal numbers (Box and Muller). */

typedef struct {
    uint32_t word[4][LANES];
} generators;

static inline uint64_t next_seed(uint64_t *state) { /* splitmix64 */
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static void seed_generators(generators *g, uint64_t seed, int64_t block) {
    uint64_t state = seed;
    state = next_seed(&state) + (uint64_t)block * 0xd1342543de82ef95u;
    for (int w = 0; w < 4; w++) {
        for (int l = 0; l < LANES; l += 2) {
            const uint64_t z = next_seed(&state);
            g->word[w][l] = (uint32_t)z;
            g->word[w][l + 1] = (uint32_t)(z >> 32);
        }
    }
}

static inline void next_bits(generators *g, uint32_t *out) {
    uint32_t(*s)[LANES] = g->word;
#pragma omp simd
    for (int l = 0; l < LANES; l++) {
        const uint32_t sum = s[0][l] + s[3][l];
        out[l] = ((sum << 7) | (sum >> 25)) + s[0][l];
        const uint32_t shifted = s[1][l] << 9;
        s[2][l] ^= s[0][l];
        s[3][l] ^= s[1][l];
        s[1][l] ^= s[2][l];
        s[0][l] ^= s[3][l];
        s[2][l] ^= shifted;
        s[3][l] = (s[3][l] << 11) | (s[3][l] >> 21);
    }
}

/* 2 * LANES standard normal numbers */
static inline void next_normal(generators *g, float *out) {
    uint32_t first[LANES], second[LANES];
    next_bits(g, first);
    next_bits(g, second);
#pragma omp simd
    for (int l = 0; l < LANES; l++) {
        const float u = ((float)(int32_t)(first[l] >> 1) + 0.5f) * 4.6566128731e-10f; /* 31 bits, in (0, 1] */
        const float radius = sqrtf(-2.0f * log_of(u));
        /* half a turn from 31 bits, as an angle in [-pi/2, pi/2); the bit that is left is the cosine's sign */
        const float a = (float)((int32_t)(second[l] & ~1u)) * 7.3145904310e-10f;
        const float a2 = a * a;
        float sine = -2.5052108385e-8f;
        sine = sine * a2 + 2.7557319224e-6f;
        sine = sine * a2 - 1.9841269841e-4f;
        sine = sine * a2 + 8.3333333333e-3f;
        sine = sine * a2 - 1.6666666667e-1f;
        sine = sine * a2 * a + a;
        float cosine = 2.0876756988e-9f;
        cosine = cosine * a2 - 2.7557319224e-7f;
        cosine = cosine * a2 + 2.4801587302e-5f;
        cosine = cosine * a2 - 1.3888888889e-3f;
        cosine = cosine * a2 + 4.1666666667e-2f;
        cosine = cosine * a2 - 0.5f;
        cosine = cosine * a2 + 1.0f;
        out[l] = radius * sine;
        out[LANES + l] = from_bits(to_bits(radius * cosine) ^ (int32_t)(second[l] << 31));
    }
}

static void fill_normal(float *out, int64_t count, uint64_t seed, int64_t block) {
    generators g;
    seed_generators(&g, seed, block);
    int64_t i = 0;
    for (; i + 2 * LANES <= count; i += 2 * LANES) next_normal(&g, out + i);
    if (i < count) {
        float rest[2 * LANES];
        next_normal(&g, rest);
        memcpy(out + i, rest, (size_t)(count - i) * sizeof(float));
    }
}

/* out = standard normal numbers */
static void draw_normal(float *out, uint64_t seed, int64_t n, int threads) {
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t start = 0; start < n; start += BLOCK) {
        fill_normal(out + start, at_most(BLOCK, n - start), seed, start / BLOCK);
    }
}

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

/* The sum of many log(1 + x), x >= 0, as the logarithm of a product: mantissas are multiplied, exponents added, and there
   is one logarithm a run instead of one an element. What the rounding of 1 + x loses counts where x is small. */

#define RUN (LANES * 64) /* elements that one product takes: no partial product leaves its type's range */

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

/* theta^2 times the precision 1 / sigma2; not a number where the square is none that float32 has */
static inline float ratio_of(float square, float precision) { return square * precision + (square - square); }

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

/* what vbdrop_posterior does with one weight */
static inline void posterior_at(float theta, float log_sigma2, float limit, float *weight, float *sigma2, log1p_sum *sum,
                                int l) {
    const float s = exp_of(log_sigma2);
    *sigma2 = s;
    *weight = s < limit * theta * theta ? theta : 0.0f;
    add_log1p(sum, l, ratio_of(theta * theta, 1.0f / s));
}

/* sigma2 = exp(log_sigma2); weight = theta where sigma2 < limit * theta^2, else 0;
   returns the sum of log(1 + theta^2 / sigma2), that is twice the KL of the hierarchical prior */
double vbdrop_posterior(const float *theta, const float *log_sigma2, float limit, float *weight, float *sigma2,
                        int64_t n, int threads) {
    double total = 0.0;
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(static) reduction(+ : total)
    for (int64_t start = 0; start < n; start += RUN) {
        const int64_t end = at_most(start + RUN, n);
        int64_t i = start;
        log1p_sum sum;
        start_sum(&sum);
        for (; i + LANES <= end; i += LANES) {
#pragma omp simd
            for (int l = 0; l < LANES; l++) {
                posterior_at(theta[i + l], log_sigma2[i + l], limit, weight + i + l, sigma2 + i + l, &sum, l);
            }
        }
        for (int l = 0; i < end; i++, l++) posterior_at(theta[i], log_sigma2[i], limit, weight + i, sigma2 + i, &sum, l);
        total += total_of(&sum);
    }
    return total;
}

/* vbdrop_posterior without the sum */
void vbdrop_weights(const float *theta, const float *log_sigma2, float limit, float *weight, float *sigma2, int64_t n,
                    int threads) {
    (void)threads;
#pragma omp parallel for simd num_threads(threads) schedule(static)
    for (int64_t i = 0; i < n; i++) {
        const float s = exp_of(log_sigma2[i]);
        sigma2[i] = s;
        weight[i] = s < limit * theta[i] * theta[i] ? theta[i] : 0.0f;
    }
}

/* Whether a mask changes nothing about a mean: a mean of zero is not changed by any. */
static inline int is_kept(float theta, float sigma2, float limit) {
    return (sigma2 < limit * theta * theta) | (theta == 0.0f);
}

/* weight = theta where it is kept, else 0 */
void vbdrop_masked_mean(const float *theta, const float *sigma2, float limit, float *weight, int64_t n, int threads) {
    (void)threads;
#pragma omp parallel for simd num_threads(threads) schedule(static)
    for (int64_t i = 0; i < n; i++) weight[i] = sigma2[i] < limit * theta[i] * theta[i] ? theta[i] : 0.0f;
}

/* From the gradients towards weight and sigma2 to those towards theta and log_sigma2, in place, with `scale` times the
   gradients of the hierarchical KL added: zero where the mask changed the weight; times sigma2. */
void vbdrop_posterior_backward(const float *theta, const float *sigma2, float limit, float scale, float *by_theta,
                               float *by_sigma2, int64_t n, int threads) {
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t start = 0; start < n; start += BLOCK) {
        const int64_t end = at_most(start + BLOCK, n);
#pragma omp simd
        for (int64_t i = start; i < end; i++) {
            const float t = theta[i], s = sigma2[i];
            const float g = scale * t / (t * t + s);
            by_theta[i] = (is_kept(t, s, limit) ? by_theta[i] : 0.0f) + g;
            by_sigma2[i] = by_sigma2[i] * s - 0.5f * t * g;
        }
    }
}

/* the sum of log(1 + theta^2 / sigma2) alone */
double vbdrop_kl(const float *theta, const float *log_sigma2, int64_t n, int threads) {
    double total = 0.0;
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(static) reduction(+ : total)
    for (int64_t start = 0; start < n; start += RUN) {
        const int64_t end = at_most(start + RUN, n);
        int64_t i = start;
        log1p_sum sum;
        start_sum(&sum);
        for (; i + LANES <= end; i += LANES) {
#pragma omp simd
            for (int l = 0; l < LANES; l++) {
                add_log1p(&sum, l, ratio_of(theta[i + l] * theta[i + l], exp_of(-log_sigma2[i + l])));
            }
        }
        for (int l = 0; i < end; i++, l++) add_log1p(&sum, l, ratio_of(theta[i] * theta[i], exp_of(-log_sigma2[i])));
        total += total_of(&sum);
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

/* Gates on units: x is [samples, units, space], noise [samples, units]; a unit's sums run over samples in their order,
   whatever the number of threads. */

#define GATES 64 /* units a thread takes at a time */

/* gate = mean where sigma2 < limit * mean^2, else 0; deviation = exp(log_sigma2 / 2); out = x * (gate + deviation * noise);
   returns twice the KL of the hierarchical prior. With `draw`, the noise is drawn here first. */
double vbdrop_gate(const float *x, const float *mean, const float *log_sigma2, float limit, float *gate, float *deviation,
                   float *noise, int draw, uint64_t seed, float *out, int64_t samples, int64_t units, int64_t space,
                   int threads) {
    if (draw) draw_normal(noise, seed, samples * units, samples * units < 8 * BLOCK ? 1 : threads);
    for (int64_t u = 0; u < units; u++) {
        const float s = exp_of(log_sigma2[u]);
        deviation[u] = sqrtf(s);
        gate[u] = s < limit * mean[u] * mean[u] ? mean[u] : 0.0f;
    }
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t sample = 0; sample < samples; sample++) {
        const float *eps = noise + sample * units, *from = x + sample * units * space;
        float *to = out + sample * units * space;
        if (space == 1) {
#pragma omp simd
            for (int64_t u = 0; u < units; u++) to[u] = from[u] * (gate[u] + deviation[u] * eps[u]);
        } else {
            for (int64_t u = 0; u < units; u++) {
                const float factor = gate[u] + deviation[u] * eps[u];
#pragma omp simd
                for (int64_t i = u * space; i < (u + 1) * space; i++) to[i] = from[i] * factor;
            }
        }
    }
    return vbdrop_kl(mean, log_sigma2, units, 1);
}

/* The gradients of vbdrop_gate towards x (or not, if by_x is NULL), mean and log_sigma2, with `scale` times those of the
   hierarchical KL added. */
void vbdrop_gate_backward(const float *grad, const float *x, const float *mean, const float *gate, const float *deviation,
                          const float *noise, float scale, float *by_x, float *by_mean, float *by_log_sigma2,
                          int64_t samples, int64_t units, int64_t space, int threads) {
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
                if (by_x) {
#pragma omp simd
                    for (int64_t u = 0; u < count; u++) {
                        by_x[at + u] = grad[at + u] * (gate[first + u] + deviation[first + u] * eps[u]);
                    }
                }
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
            const float t = mean[first + u], d = deviation[first + u];
            const float g = scale * t / (t * t + d * d);
            by_mean[first + u] = (gate[first + u] == t ? sums[u] : 0.0f) + g;
            by_log_sigma2[first + u] = 0.5f * (noisy_sums[u] * d - t * g);
        }
    }
}
