/* Exponential and logarithm as polynomials, with an error of about two units in the last place, and the sizes of loops. */

#ifndef VBDROP_ELEMENTARY_H
#define VBDROP_ELEMENTARY_H

#include "vectors.h"

#define BLOCK 4096 /* elements that a thread takes at a time */
#define LANES 16   /* elements that go through a loop side by side */

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

/* exp(x), with x clamped to the range in which the result is a normal number */
static inline float exp_of(float x) {
    x = x < -87.0f ? -87.0f : x;
    x = x > 88.0f ? 88.0f : x;
    const float shifted = x * 1.44269504f + 12582912.0f; /* adding 1.5 * 2^23 rounds to the nearest integer */
    const float k = shifted - 12582912.0f;
    float r = x - k * 0.693359375f;
    r = r + k * 2.12194440e-4f;
    const float r2 = r * r; /* independent terms: a sequential sum would have to wait */
    const float low = 1.6666665459e-1f * r + 5.0000001201e-1f;
    const float middle = 8.3334519073e-3f * r + 4.1665795894e-2f;
    const float high = 1.9875691500e-4f * r + 1.3981999507e-3f;
    const float p = ((high * r2 + middle) * r2 + low) * r2 + (r + 1.0f);
    return p * from_bits(((int32_t)k + 127) << 23);
}

/* exp_of for the numbers in a register */
static inline vector exp_of_vector(vector x) {
    x = larger(all(-87.0f), x);
    x = smaller(all(88.0f), x);
    const vector shifted = x * 1.44269504f + 12582912.0f, k = shifted - 12582912.0f;
    const vector r = (x - k * 0.693359375f) + k * 2.12194440e-4f;
    const vector r2 = r * r;
    const vector low = 1.6666665459e-1f * r + 5.0000001201e-1f;
    const vector middle = 8.3334519073e-3f * r + 4.1665795894e-2f;
    const vector high = 1.9875691500e-4f * r + 1.3981999507e-3f;
    const vector p = ((high * r2 + middle) * r2 + low) * r2 + (r + 1.0f);
    return p * (vector)(((integers)shifted << 23) + 0x3f800000); /* the last bits of `shifted` are those of k */
}

/* log(x) for a normal x > 0 */
static inline float log_of(float x) {
    const int32_t bits = to_bits(x);
    const int32_t exponent = (bits - 0x3f3504f3) >> 23; /* so that the mantissa lies in [sqrt(1/2), sqrt(2)) */
    const float m = from_bits(bits - exponent * (1 << 23)) - 1.0f;
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
    return (m + tail) + e * 0.693359375f;
}

static inline int64_t at_most(int64_t a, int64_t b) { return a < b ? a : b; }

#endif
