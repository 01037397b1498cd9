/* The training forward and backward of a linear layer with gates on its inputs, each in one call; see blocks.h for the
   sizes. The backward recomputes the gated inputs, one block at a time, and sums the gates' gradients on the spot. */

#include "blocks.h"
#include "gates.h"
#include "noise.h"

static int64_t forward_room_of_a_thread(const forward_plan *plan, int64_t inputs) {
    return lines((COLUMNS + ROWS) * inputs) + plan->width * plan->samples;
}

/* how many floats of room vbdrop_gated_linear needs */
int64_t vbdrop_gated_linear_room(int64_t samples, int64_t inputs, int64_t outputs, int threads) {
    const forward_plan plan = plan_forward(samples, outputs, threads);
    return plan.samples * inputs + threads * forward_room_of_a_thread(&plan, inputs);
}

/* out = the layer's output for gated inputs; gate, deviation and noise are for the backward. With `draw`, the noise is drawn
   here first. */
void vbdrop_gated_linear(const float *x, const float *mean, const float *log_sigma2, const float *weight, const float *bias,
                         float limit, float *gate, float *deviation, float *noise, int draw, uint64_t seed, float *room,
                         float *out, int64_t samples, int64_t inputs, int64_t outputs, int threads) {
    const forward_plan plan = plan_forward(samples, outputs, threads);
    gates_of(mean, log_sigma2, limit, gate, deviation, inputs);
    float *panels = room, *private_room = panels + plan.samples * inputs;
    if (draw) draw_normal(noise, seed, samples * inputs, threads);
#pragma omp parallel num_threads(threads)
    {
        float *gated = private_room + this_thread() * forward_room_of_a_thread(&plan, inputs);
        float *last_rows = gated + COLUMNS * inputs, *sums = last_rows + ROWS * inputs;
#pragma omp for schedule(static)
        for (int64_t s = 0; s < plan.samples; s += COLUMNS) {
            const int64_t count = at_most(COLUMNS, samples - s);
            for (int64_t i = 0; i < count; i++) {
                gate_units(x + (s + i) * inputs, gate, deviation, noise + (s + i) * inputs, inputs, gated + i * inputs);
            }
            panel_of_rows(gated, inputs, 0, count, inputs, panels + s * inputs);
        }
#pragma omp for schedule(dynamic)
        for (int64_t block = 0; block < plan.blocks; block++) {
            const int64_t first = block * plan.width, count = at_most(plan.width, outputs - first);
            const int64_t whole = count / ROWS * ROWS, rest = count - whole;
            if (rest) {
                memcpy(last_rows, weight + (first + whole) * inputs, (size_t)(rest * inputs) * sizeof(float));
                memset(last_rows + rest * inputs, 0, (size_t)((ROWS - rest) * inputs) * sizeof(float));
            }
            for (int64_t start = 0; start < inputs; start += STRETCH) {
                const int64_t steps = at_most(STRETCH, inputs - start);
                const float *at = panels + start * COLUMNS;
                multiply_stretch(&plan, weight + first * inputs + start, inputs, whole, at, inputs, steps, sums, start > 0);
                multiply_stretch(&plan, last_rows + start, inputs, rest, at, inputs, steps, sums + whole * plan.samples,
                                 start > 0);
            }
            put_outputs(&plan, sums, bias, first, count, out, samples, outputs);
        }
    }
}

static int64_t backward_room_of_a_thread(const backward_plan *plan, int64_t samples) {
    return plan->width * (samples + CHUNK + plan->samples + 2) + ROWS * COLUMNS;
}

/* how many floats of room vbdrop_gated_linear_backward needs */
int64_t vbdrop_gated_linear_backward_room(int64_t samples, int64_t inputs, int64_t outputs, int threads) {
    const backward_plan plan = plan_backward(samples, inputs, outputs, threads);
    return room_of_packed(&plan, samples, outputs, 1) + threads * backward_room_of_a_thread(&plan, samples);
}

/* The gradients of vbdrop_gated_linear with respect to x, mean, log_sigma2, weight and bias; those of x and bias
   may be NULL. */
void vbdrop_gated_linear_backward(const float *grad, const float *x, const float *mean, const float *gate,
                                  const float *deviation, const float *noise, const float *weight, float *room, float *by_x,
                                  float *by_mean, float *by_log_sigma2, float *by_weight, float *by_bias, int64_t samples,
                                  int64_t inputs, int64_t outputs, int threads) {
    const backward_plan plan = plan_backward(samples, inputs, outputs, threads);
    float *next = room;
    const packed_gradient packed = packed_at(&next, &plan, samples, outputs, 1);
#pragma omp parallel num_threads(threads)
    {
        pack_gradient(&packed, grad, samples, outputs, 1);
        float *gated = next + this_thread() * backward_room_of_a_thread(&plan, samples);
        float *panels = gated + plan.width * samples, *sums = panels + plan.width * CHUNK;
        float *gate_sums = sums + plan.width * plan.samples, *noisy_sums = gate_sums + plan.width;
        float *tile = noisy_sums + plan.width;
#pragma omp for schedule(dynamic)
        for (int64_t block = 0; block < plan.blocks; block++) {
            const int64_t first = block * plan.width, columns = at_most(plan.width, inputs - first);
            for (int64_t s = 0; s < samples; s++) {
                fetch(x + (s + AHEAD) * inputs + first, s + AHEAD < samples ? columns : 0);
                fetch(noise + (s + AHEAD) * inputs + first, s + AHEAD < samples ? columns : 0);
                for (int64_t start = 0; start < columns; start += COLUMNS) {
                    const int64_t i = first + start, at = s * inputs + i, valid = at_most(COLUMNS, columns - start);
                    float *to = gated + start * samples + s * COLUMNS;
                    if (valid == COLUMNS) {
                        gate_units(x + at, gate + i, deviation + i, noise + at, COLUMNS, to);
                    } else {
                        memset(to, 0, COLUMNS * sizeof(float));
                        gate_units(x + at, gate + i, deviation + i, noise + at, valid, to);
                    }
                }
            }
            for (int64_t chunk = 0; chunk < outputs; chunk += CHUNK) {
                const int64_t count = at_most(CHUNK, outputs - chunk), at = chunk * inputs + first;
                for (int64_t o = 0; o < count; o++) {
                    fetch(weight + at + (o + AHEAD) * inputs, o + AHEAD < count ? columns : 0);
                    for (int64_t start = 0; start < columns; start += COLUMNS) {
                        copy_columns(weight + at + o * inputs + start, columns - start,
                                     panels + start * CHUNK + o * COLUMNS);
                    }
                }
                multiply_chunk(&plan, packed.by_sample, outputs, chunk, count, panels, columns, sums);
                for (int64_t o = 0; o < count; o += ROWS) {
                    const int64_t rows = at_most(ROWS, count - o);
                    for (int64_t r = o; r < o + rows; r++) fetch(by_weight + at + r * inputs, columns);
                    for (int64_t start = 0; start < columns; start += COLUMNS) {
                        const int64_t valid = at_most(COLUMNS, columns - start);
                        const float *left = packed.by_output + (chunk + o) * samples, *right = gated + start * samples;
                        float *to = by_weight + at + o * inputs + start;
                        if (rows == ROWS && valid == COLUMNS) {
                            multiply_long(left, right, samples, to, inputs);
                        } else {
                            multiply_long(left, right, samples, tile, COLUMNS);
                            for (int64_t r = 0; r < rows; r++) {
                                for (int64_t c = 0; c < valid; c++) to[r * inputs + c] = tile[r * COLUMNS + c];
                            }
                        }
                    }
                }
            }
            memset(gate_sums, 0, 2 * (size_t)plan.width * sizeof(float));
            for (int64_t s = 0; s < samples; s++) {
                const int64_t at = s * inputs + first;
                const float *by_gated = sums + s * plan.width, *eps = noise + at;
#pragma omp simd
                for (int64_t i = 0; i < columns; i++) {
                    const float product = by_gated[i] * x[at + i];
                    gate_sums[i] += product;
                    noisy_sums[i] += product * eps[i];
                }
                if (by_x) gate_units(by_gated, gate + first, deviation + first, eps, columns, by_x + at);
            }
            for (int64_t i = 0; i < columns; i++) {
                const int64_t u = first + i;
                gate_gradients_at(mean[u], gate[u], deviation[u], gate_sums[i], noisy_sums[i], by_mean + u,
                                  by_log_sigma2 + u);
            }
        }
    }
    if (by_bias) sum_samples(grad, samples, outputs, by_bias);
}
