/* How the products of a linear layer are cut into blocks, which threads share.

   x is [samples, inputs], the weights are [outputs, inputs], row by row. The forward goes through the layer by blocks of
   outputs, the backward by blocks of inputs: no two blocks write to the same place, and what is computed does not depend
   on their number. */

#ifndef VBDROP_BLOCKS_H
#define VBDROP_BLOCKS_H

#include "elementary.h"
#include "tiles.h"

#ifdef _OPENMP
#include <omp.h>
static inline int this_thread(void) { return omp_get_thread_num(); }
#else
static inline int this_thread(void) { return 0; }
#endif

/* How many of the parts go into one block: at most `most`, and few enough for every thread to get some blocks. */
static inline int64_t share_of(int64_t parts, int64_t most, int threads) {
    const int64_t fair = parts / (threads > 1 ? 2 * threads : 1);
    return at_most(most, fair > 1 ? fair : 1);
}

#define STRETCH 2048  /* inputs that a forward processes at a time */
#define MOST_GROUPS 4 /* a block of a forward has at most this many times ROWS outputs */

/* The forward: blocks of `width` outputs; each goes through the inputs in stretches. */
typedef struct {
    int64_t width, blocks;
    int64_t samples; /* rounded up to whole panels */
} forward_plan;

static inline forward_plan plan_forward(int64_t samples, int64_t outputs, int threads) {
    forward_plan plan;
    plan.width = ROWS * share_of((outputs + ROWS - 1) / ROWS, MOST_GROUPS, threads);
    plan.blocks = (outputs + plan.width - 1) / plan.width;
    plan.samples = rounded_up(samples, COLUMNS);
    return plan;
}

/* sums[o, s] (+)= the sum over a stretch of inputs of weight[o, i] * x[s, i], for `outputs` rows of weights, with
   memory for a whole number of tiles; `panels` are those of x, from the start of the stretch, `inputs` steps each */
static inline void multiply_stretch(const forward_plan *plan, const float *weight, int64_t stride, int64_t outputs,
                                    const float *panels, int64_t inputs, int64_t steps, float *sums, int add) {
    for (int64_t s = 0; s < plan->samples; s += COLUMNS) {
        for (int64_t o = 0; o < outputs; o += ROWS) {
            multiply_rows(weight + o * stride, stride, panels + s * inputs, steps, sums + o * plan->samples + s,
                          plan->samples, add);
        }
    }
}

/* The backward: blocks of `width` inputs; each goes through the outputs in chunks. */
typedef struct {
    int64_t width, blocks;
    int64_t samples, outputs; /* rounded up to whole tiles */
} backward_plan;

#define CHUNK (32 * ROWS)   /* outputs that a backward processes at a time */
#define FITTING (128 * 256) /* this many numbers of x fit the cache, along with the rest of a block */

static inline backward_plan plan_backward(int64_t samples, int64_t inputs, int64_t outputs, int threads) {
    backward_plan plan;
    const int64_t fitting = FITTING / (samples * COLUMNS), most = fitting > 4 ? 4 : fitting > 1 ? fitting : 1;
    plan.width = COLUMNS * share_of((inputs + COLUMNS - 1) / COLUMNS, most, threads);
    plan.blocks = (inputs + plan.width - 1) / plan.width;
    plan.samples = rounded_up(samples, ROWS);
    plan.outputs = rounded_up(outputs, ROWS);
    return plan;
}

/* The gradient, packed in the two ways that its products need: for x and for the weights. */
typedef struct {
    float *by_sample, *by_output;
} packed_gradient;

static inline int64_t room_of_packed(const backward_plan *plan, int64_t samples, int64_t outputs, int need_x) {
    return lines(plan->outputs * samples) + (need_x ? lines(plan->samples * outputs) : 0);
}

/* its place in the room, from which it takes its part */
static inline packed_gradient packed_at(float **room, const backward_plan *plan, int64_t samples, int64_t outputs,
                                        int need_x) {
    const packed_gradient packed = {*room + lines(plan->outputs * samples), *room};
    *room += room_of_packed(plan, samples, outputs, need_x);
    return packed;
}

/* inside a parallel region, whose threads share the work */
static inline void pack_gradient(const packed_gradient *packed, const float *grad, int64_t samples, int64_t outputs,
                                 int need_x) {
#pragma omp for schedule(static)
    for (int64_t o = 0; o < outputs; o += ROWS) {
        pack_columns(grad, outputs, o, outputs, samples, packed->by_output + o * samples);
    }
    if (need_x) {
#pragma omp for schedule(static)
        for (int64_t s = 0; s < samples; s += ROWS) {
            pack_rows(grad, outputs, s, samples, outputs, packed->by_sample + s * outputs);
        }
    }
}

/* to[c] = from[c] for `count` columns, and 0 up to COLUMNS */
static inline void copy_columns(const float *from, int64_t count, float *to) {
    if (count >= COLUMNS) {
        memcpy(to, from, COLUMNS * sizeof(float));
    } else {
        for (int64_t c = 0; c < COLUMNS; c++) to[c] = c < count ? from[c] : 0.0f;
    }
}

/* sums[s, c] (+)= the sum over a chunk of outputs, from `first` on, of grad[s, o] * panels[p, o, c], for the columns of a
   block; the panels have CHUNK steps each */
static inline void multiply_chunk(const backward_plan *plan, const float *by_sample, int64_t outputs, int64_t first,
                                  int64_t count, const float *panels, int64_t columns, float *sums) {
    for (int64_t s = 0; s < plan->samples; s += ROWS) {
        for (int64_t start = 0; start < columns; start += COLUMNS) {
            multiply_packed(by_sample + s * outputs + first * ROWS, panels + start * CHUNK, count,
                            sums + s * plan->width + start, plan->width, first > 0);
        }
    }
}

#define AHEAD 4 /* rows of a block that are fetched before they are needed */

/* Prefetch memory that will be read or written: rows of a block are too far apart for the processor to predict. */
static inline void fetch(const float *from, int64_t count) {
    for (int64_t i = 0; i < count; i += 16) __builtin_prefetch(from + i);
}

/* by_bias = the sums of the gradient over the samples */
static inline void sum_samples(const float *grad, int64_t samples, int64_t outputs, float *by_bias) {
    for (int64_t first = 0; first < outputs; first += COLUMNS) {
        const int64_t count = at_most(COLUMNS, outputs - first);
        double sums[COLUMNS] = {0};
        for (int64_t s = 0; s < samples; s++) {
            for (int64_t o = 0; o < count; o++) sums[o] += (double)grad[s * outputs + first + o];
        }
        for (int64_t o = 0; o < count; o++) by_bias[first + o] = (float)sums[o];
    }
}

/* out[s, first + o] = sums[o, s] + bias[first + o], for the `count` outputs of a block */
static inline void put_outputs(const forward_plan *plan, float *sums, const float *bias, int64_t first, int64_t count,
                               float *out, int64_t samples, int64_t outputs) {
    for (int64_t o = 0; bias && o < count; o++) {
        for (int64_t s = 0; s < samples; s++) sums[o * plan->samples + s] += bias[first + o];
    }
    transpose(sums, plan->samples, count, samples, out + first, outputs);
}

#endif
