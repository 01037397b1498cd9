/* Matrix products of float32 by tiles that stay in the registers, for operands that are computed on the fly.

   A tile is ROWS by COLUMNS numbers of a result. One operand is a panel: for each step of the sum COLUMNS numbers, side by
   side. The other gives ROWS numbers per step, each broadcast to a register. The steps of a sum are added in order, and
   callers cut long sums into stretches of the same lengths for any number of threads: a result does not depend
   on it. */

#ifndef VBDROP_TILES_H
#define VBDROP_TILES_H

#include "vectors.h"

#define ROWS (WIDTH == 16 ? 12 : 6) /* with two registers per row, there is room for the operands */
#define COLUMNS (2 * WIDTH)

static inline int64_t rounded_up(int64_t count, int64_t step) { return (count + step - 1) / step * step; }

/* rounded up to whole cache lines, so that what follows in a room starts at a line, too */
static inline int64_t lines(int64_t count) { return rounded_up(count, 16); }

/* tile[r, c] = the sum over the steps k of rows[r, k] * panel[k, c], added to what is there with `add`; the numbers of
   `rows` are `row_stride` and `step_stride` apart, the rows of the tile `tile_stride`. */
static inline __attribute__((always_inline)) void multiply(const float *rows, int64_t row_stride, int64_t step_stride,
                                                           const float *panel, int64_t steps, float *tile,
                                                           int64_t tile_stride, int add) {
    vector sums[ROWS][2];
    for (int r = 0; r < ROWS; r++) {
        for (int h = 0; h < 2; h++) sums[r][h] = all(0.0f);
    }
    for (int64_t k = 0; k < steps; k++) {
        const vector left = load(panel + k * COLUMNS), right = load(panel + k * COLUMNS + WIDTH);
        for (int r = 0; r < ROWS; r++) {
            const float factor = rows[r * row_stride + k * step_stride];
            sums[r][0] += factor * left;
            sums[r][1] += factor * right;
        }
    }
    for (int r = 0; r < ROWS; r++) {
        for (int h = 0; h < 2; h++) {
            float *to = tile + r * tile_stride + h * WIDTH;
            if (add) sums[r][h] += load(to);
            store(to, sums[r][h]);
        }
    }
}

/* `multiply` with the rows of a matrix */
static __attribute__((noinline)) void multiply_rows(const float *rows, int64_t row_stride, const float *panel, int64_t steps,
                                                    float *tile, int64_t tile_stride, int add) {
    multiply(rows, row_stride, 1, panel, steps, tile, tile_stride, add);
}

/* `multiply` with packed rows: ROWS numbers per step, side by side */
static __attribute__((noinline)) void multiply_packed(const float *rows, const float *panel, int64_t steps, float *tile,
                                                      int64_t tile_stride, int add) {
    multiply(rows, 1, ROWS, panel, steps, tile, tile_stride, add);
}

#define STEPS 512 /* summed at once: a longer sum would lose its last digits */

/* multiply_packed for any number of steps */
static inline void multiply_long(const float *rows, const float *panel, int64_t steps, float *tile, int64_t tile_stride) {
    for (int64_t k = 0; k < steps; k += STEPS) {
        multiply_packed(rows + k * ROWS, panel + k * COLUMNS, steps - k < STEPS ? steps - k : STEPS, tile, tile_stride,
                        k > 0);
    }
}

/* packed[k, r] = matrix[first + r, k], or 0 for rows that the matrix does not have */
static inline void pack_rows(const float *matrix, int64_t stride, int64_t first, int64_t rows, int64_t steps,
                             float *packed) {
    for (int64_t r = 0; r < ROWS; r++) {
        const float *from = matrix + (first + r) * stride;
        for (int64_t k = 0; k < steps; k++) packed[k * ROWS + r] = first + r < rows ? from[k] : 0.0f;
    }
}

/* packed[k, r] = matrix[k, first + r], or 0 for columns that the matrix does not have */
static inline void pack_columns(const float *matrix, int64_t stride, int64_t first, int64_t columns, int64_t steps,
                                float *packed) {
    for (int64_t k = 0; k < steps; k++) {
        for (int64_t r = 0; r < ROWS; r++)
            packed[k * ROWS + r] = first + r < columns ? matrix[k * stride + first + r] : 0.0f;
    }
}

/* panel[k, c] = matrix[first + c, k], or 0 for rows that the matrix does not have */
static inline void panel_of_rows(const float *matrix, int64_t stride, int64_t first, int64_t rows, int64_t steps,
                                 float *panel) {
    const int64_t count = rows - first < COLUMNS ? rows - first : COLUMNS;
    if (count < COLUMNS) memset(panel, 0, (size_t)(steps * COLUMNS) * sizeof(float));
    transpose(matrix + first * stride, stride, count, steps, panel, COLUMNS);
}

#endif
