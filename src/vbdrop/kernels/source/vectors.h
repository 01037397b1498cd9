/* Numbers side by side in a register, and operations that compilers do not derive from loops. */

#ifndef VBDROP_VECTORS_H
#define VBDROP_VECTORS_H

#include <stdint.h>
#include <string.h>

#ifdef __AVX__
#include <immintrin.h>
#endif

#ifndef WIDTH /* numbers in a register */
#ifdef __AVX512F__
#define WIDTH 16
#else
#define WIDTH 8
#endif
#endif

typedef float vector __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));
typedef int32_t integers __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));

static inline vector load(const float *from) { return *(const vector *)from; }

static inline void store(float *to, vector v) { *(vector *)to = v; }

static inline vector all(float value) { return (vector){0} + value; }

/* a where the mask has ones, else b */
static inline vector chosen(integers mask, vector a, vector b) {
    return (vector)((mask & (integers)a) | (~mask & (integers)b));
}

/* the larger and the smaller of both; b where one is not a number */
static inline vector larger(vector a, vector b) {
#if defined(__AVX512F__) && WIDTH == 16
    return (vector)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX__) && WIDTH == 8
    return (vector)_mm256_max_ps((__m256)a, (__m256)b);
#else
    return chosen(a > b, a, b);
#endif
}

static inline vector smaller(vector a, vector b) {
#if defined(__AVX512F__) && WIDTH == 16
    return (vector)_mm512_min_ps((__m512)a, (__m512)b);
#elif defined(__AVX__) && WIDTH == 8
    return (vector)_mm256_min_ps((__m256)a, (__m256)b);
#else
    return chosen(a < b, a, b);
#endif
}

/* to[c, r] = from[r, c] for 8 rows and 8 columns */
static inline void transpose_8_by_8(const float *from, int64_t from_stride, float *to, int64_t to_stride) {
#ifdef __AVX__
    __m256 row[8], pair[8], four[8];
    for (int r = 0; r < 8; r++) row[r] = _mm256_loadu_ps(from + r * from_stride);
    for (int r = 0; r < 8; r += 2) {
        pair[r] = _mm256_unpacklo_ps(row[r], row[r + 1]);
        pair[r + 1] = _mm256_unpackhi_ps(row[r], row[r + 1]);
    }
    for (int r = 0; r < 8; r += 4) {
        four[r] = _mm256_shuffle_ps(pair[r], pair[r + 2], 0x44);
        four[r + 1] = _mm256_shuffle_ps(pair[r], pair[r + 2], 0xee);
        four[r + 2] = _mm256_shuffle_ps(pair[r + 1], pair[r + 3], 0x44);
        four[r + 3] = _mm256_shuffle_ps(pair[r + 1], pair[r + 3], 0xee);
    }
    for (int r = 0; r < 4; r++) {
        _mm256_storeu_ps(to + r * to_stride, _mm256_permute2f128_ps(four[r], four[r + 4], 0x20));
        _mm256_storeu_ps(to + (r + 4) * to_stride, _mm256_permute2f128_ps(four[r], four[r + 4], 0x31));
    }
#else
    for (int r = 0; r < 8; r++) {
        for (int c = 0; c < 8; c++) to[c * to_stride + r] = from[r * from_stride + c];
    }
#endif
}

/* to[c, r] = from[r, c] */
static inline void transpose(const float *from, int64_t from_stride, int64_t rows, int64_t columns, float *to,
                             int64_t to_stride) {
    const int64_t whole_rows = rows / 8 * 8, whole_columns = columns / 8 * 8;
    for (int64_t c = 0; c < whole_columns; c += 8) {
        for (int64_t r = 0; r < whole_rows; r += 8) {
            transpose_8_by_8(from + r * from_stride + c, from_stride, to + c * to_stride + r, to_stride);
        }
    }
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = r < whole_rows ? whole_columns : 0; c < columns; c++)
            to[c * to_stride + r] = from[r * from_stride + c];
    }
}

#endif
