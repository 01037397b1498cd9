/* Standard normal numbers: one generator per lane (xoshiro128++), reseeded for every block, so that the numbers do not
   depend on the number of threads; and the polar form of two independent normal numbers (Box and Muller). */

#ifndef VBDROP_NOISE_H
#define VBDROP_NOISE_H

#include <math.h>

#include "elementary.h"

typedef struct {
    uint32_t word[4][LANES];
} generators;

static inline uint64_t next_seed(uint64_t *state) { /* splitmix64 */
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline void seed_generators(generators *g, uint64_t seed, int64_t block) {
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
    uint32_t (*s)[LANES] = g->word;
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

static inline void fill_normal(float *out, int64_t count, uint64_t seed, int64_t block) {
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
static inline void draw_normal(float *out, uint64_t seed, int64_t n, int threads) {
    threads = n < 8 * BLOCK ? 1 : threads;
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t start = 0; start < n; start += BLOCK) {
        fill_normal(out + start, at_most(BLOCK, n - start), seed, start / BLOCK);
    }
}

#endif
