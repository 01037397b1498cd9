/* The training forward and backward of a linear layer with noisy weights, each in one call; see blocks.h for the sizes.

   Either every weight has its log_sigma2, or (with log_sigma2 = NULL) every input has its alpha, and the variances are
   alpha * theta^2; then the squares of x are multiplied by alpha, and the weights' squares replace the variances. The
   variances, the masked means and their gradients exist for one block of weights at a time, in the cache. */

#include "blocks.h"
#include "posterior.h"
#include "weights.h"

/* Whether tiles fit the registers: elsewhere, torch's products are faster. */
int vbdrop_has_products(void) {
#if defined(__AVX512F__) || (defined(__AVX2__) && defined(__FMA__))
    return 1;
#else
    return 0;
#endif
}

/* the distance between the weights of two outputs in a stretch: no large power of two, which causes cache conflicts */
static int64_t stretch_stride(int64_t inputs) { return rounded_up(at_most(inputs, STRETCH), 2 * COLUMNS) + COLUMNS; }

static int64_t forward_room_of_a_thread(const forward_plan *plan, int64_t inputs) {
    return 2 * plan->width * (stretch_stride(inputs) + plan->samples);
}

/* how many floats of room vbdrop_noisy_linear needs */
int64_t vbdrop_noisy_linear_room(int64_t samples, int64_t inputs, int64_t outputs, int threads) {
    const forward_plan plan = plan_forward(samples, outputs, threads);
    return 2 * plan.samples * inputs + lines(samples * outputs) + threads * forward_room_of_a_thread(&plan, inputs);
}

/* weights_of, or theta and its squares if the weights have no log_sigma2 */
static void parameters_of(const float *theta, const float *log_sigma2, float limit, float *weight, float *sigma2,
                          int64_t count) {
    if (log_sigma2) {
        weights_of(theta, log_sigma2, limit, weight, sigma2, count);
        return;
    }
#pragma omp simd
    for (int64_t i = 0; i < count; i++) {
        weight[i] = theta[i];
        sigma2[i] = theta[i] * theta[i];
    }
}

/* The masked means and the variances of a stretch of inputs, for `count` outputs; zeros up to `width` of them. */
static void parameters_of_stretch(const float *theta, const float *log_sigma2, float limit, int64_t inputs, int64_t steps,
                                  int64_t count, int64_t width, float *weight, float *sigma2, int64_t stride) {
    for (int64_t o = 0; o < count; o++) {
        const int64_t from = o * inputs, to = o * stride;
        parameters_of(theta + from, log_sigma2 ? log_sigma2 + from : 0, limit, weight + to, sigma2 + to, steps);
    }
    memset(weight + count * stride, 0, (size_t)((width - count) * stride) * sizeof(float));
    memset(sigma2 + count * stride, 0, (size_t)((width - count) * stride) * sizeof(float));
}

/* A sample of the output and, for the backward, the slope that vbdrop_sample leaves in place of the noise. */
void vbdrop_noisy_linear(const float *x, const float *theta, const float *log_sigma2, const float *alpha, const float *bias,
                         float limit, float floor, int draw, uint64_t seed, float *room, float *out, float *noise_to_slope,
                         int64_t samples, int64_t inputs, int64_t outputs, int threads) {
    const forward_plan plan = plan_forward(samples, outputs, threads);
    const int64_t stride = stretch_stride(inputs);
    float *panels = room, *squares = panels + plan.samples * inputs;
    float *variance = squares + plan.samples * inputs, *private_room = variance + lines(samples * outputs);
#pragma omp parallel num_threads(threads)
    {
#pragma omp for schedule(static)
        for (int64_t s = 0; s < plan.samples; s += COLUMNS) {
            float *panel = panels + s * inputs, *square = squares + s * inputs;
            panel_of_rows(x, inputs, s, samples, inputs, panel);
            for (int64_t i = 0; i < inputs * COLUMNS; i++) square[i] = panel[i] * panel[i];
            for (int64_t i = 0; alpha && i < inputs; i++) {
                for (int64_t c = 0; c < COLUMNS; c++) square[i * COLUMNS + c] *= alpha[i];
            }
        }
        float *weight = private_room + this_thread() * forward_room_of_a_thread(&plan, inputs);
        float *sigma2 = weight + plan.width * stride, *means = sigma2 + plan.width * stride;
        float *variances = means + plan.width * plan.samples;
#pragma omp for schedule(dynamic)
        for (int64_t block = 0; block < plan.blocks; block++) {
            const int64_t first = block * plan.width, count = at_most(plan.width, outputs - first);
            for (int64_t start = 0; start < inputs; start += STRETCH) {
                const int64_t steps = at_most(STRETCH, inputs - start), at = first * inputs + start;
                parameters_of_stretch(theta + at, log_sigma2 ? log_sigma2 + at : 0, limit, inputs, steps, count, plan.width,
                                      weight, sigma2, stride);
                multiply_stretch(&plan, weight, stride, count, panels + start * COLUMNS, inputs, steps, means, start > 0);
                multiply_stretch(&plan, sigma2, stride, count, squares + start * COLUMNS, inputs, steps, variances,
                                 start > 0);
            }
            put_outputs(&plan, means, bias, first, count, out, samples, outputs);
            put_outputs(&plan, variances, 0, first, count, variance, samples, outputs);
        }
    }
    vbdrop_sample(out, variance, noise_to_slope, floor, draw, seed, out, samples * outputs, threads);
}

static int64_t backward_room_of_a_thread(const backward_plan *plan, int64_t samples, int need_x) {
    return 2 * plan->width * (samples + CHUNK + (need_x ? plan->samples : 0)) + 2 * ROWS * COLUMNS;
}

/* how many floats of room vbdrop_noisy_linear_backward needs */
int64_t vbdrop_noisy_linear_backward_room(int64_t samples, int64_t inputs, int64_t outputs, int need_x, int threads) {
    const backward_plan plan = plan_backward(samples, inputs, outputs, threads);
    return lines(samples * outputs) + 2 * room_of_packed(&plan, samples, outputs, need_x) +
           threads * backward_room_of_a_thread(&plan, samples, need_x);
}

/* The masked means and the variances of a chunk of outputs, as panels[p, o, c] of a block's columns. */
static void parameters_of_chunk(const float *theta, const float *log_sigma2, float limit, int64_t inputs, int64_t count,
                                int64_t columns, float *weight, float *sigma2) {
    for (int64_t o = 0; o < count; o++) {
        fetch(theta + (o + AHEAD) * inputs, o + AHEAD < count ? columns : 0);
        if (log_sigma2) fetch(log_sigma2 + (o + AHEAD) * inputs, o + AHEAD < count ? columns : 0);
        for (int64_t start = 0; start < columns; start += COLUMNS) {
            const int64_t from = o * inputs + start, to = start * CHUNK + o * COLUMNS;
            const int64_t valid = at_most(COLUMNS, columns - start);
            if (valid < COLUMNS) {
                memset(weight + to, 0, COLUMNS * sizeof(float));
                memset(sigma2 + to, 0, COLUMNS * sizeof(float));
            }
            parameters_of(theta + from, log_sigma2 ? log_sigma2 + from : 0, limit, weight + to, sigma2 + to, valid);
        }
    }
}

/* The gradients of theta and log_sigma2, from the tiles of both products. */
static void put_gradients(const float *theta, const float *sigma2, float limit, const float *tiles, float *by_theta,
                          float *by_log_sigma2, int64_t inputs, int64_t rows, int64_t columns) {
    for (int64_t r = 0; r < rows; r++) {
        const float *mean = tiles + r * COLUMNS, *variance = tiles + (ROWS + r) * COLUMNS;
#pragma omp simd
        for (int64_t c = 0; c < columns; c++) {
            const float s = sigma2[r * COLUMNS + c];
            by_theta[r * inputs + c] = unmasked_at(mean[c], theta[r * inputs + c], s, limit);
            by_log_sigma2[r * inputs + c] = variance[c] * s;
        }
    }
}

/* The gradients of theta, and their contribution to those of log(alpha), from the tiles of both products. */
static void put_rated_gradients(const float *theta, const float *tiles, float *by_theta, float *by_log_alpha, int64_t inputs,
                                int64_t rows, int64_t columns) {
    for (int64_t r = 0; r < rows; r++) {
        const float *mean = tiles + r * COLUMNS, *variance = tiles + (ROWS + r) * COLUMNS;
#pragma omp simd
        for (int64_t c = 0; c < columns; c++) {
            const float t = theta[r * inputs + c];
            by_theta[r * inputs + c] = mean[c] + 2.0f * t * variance[c];
            by_log_alpha[c] += t * t * variance[c];
        }
    }
}

/* The gradients of vbdrop_noisy_linear with respect to x, theta, log_sigma2 and bias; those of x and bias may be NULL.
   by_rate is that of log_sigma2 or, without it, of log(alpha). */
void vbdrop_noisy_linear_backward(const float *grad, const float *x, const float *theta, const float *log_sigma2,
                                  const float *alpha, const float *slope, float limit, float *room, float *by_x,
                                  float *by_theta, float *by_rate, float *by_bias, int64_t samples, int64_t inputs,
                                  int64_t outputs, int threads) {
    const backward_plan plan = plan_backward(samples, inputs, outputs, threads);
    const int need_x = by_x != 0;
    float *noisy = room, *next = room + lines(samples * outputs);
    const packed_gradient of_mean = packed_at(&next, &plan, samples, outputs, need_x);
    const packed_gradient of_variance = packed_at(&next, &plan, samples, outputs, need_x);
#pragma omp parallel num_threads(threads)
    {
#pragma omp for simd schedule(static)
        for (int64_t i = 0; i < samples * outputs; i++) noisy[i] = grad[i] * slope[i];
        pack_gradient(&of_mean, grad, samples, outputs, need_x);
        pack_gradient(&of_variance, noisy, samples, outputs, need_x);
        float *panels = next + this_thread() * backward_room_of_a_thread(&plan, samples, need_x);
        float *squares = panels + plan.width * samples, *weight = squares + plan.width * samples;
        float *sigma2 = weight + plan.width * CHUNK, *tiles = sigma2 + plan.width * CHUNK;
        float *sums = tiles + 2 * ROWS * COLUMNS, *square_sums = sums + plan.width * plan.samples;
#pragma omp for schedule(dynamic)
        for (int64_t block = 0; block < plan.blocks; block++) {
            const int64_t first = block * plan.width, columns = at_most(plan.width, inputs - first);
            for (int64_t s = 0; s < samples; s++) {
                fetch(x + (s + AHEAD) * inputs + first, s + AHEAD < samples ? columns : 0);
                for (int64_t start = 0; start < columns; start += COLUMNS) {
                    float *to = panels + start * samples + s * COLUMNS, *square = to + (squares - panels);
                    copy_columns(x + s * inputs + first + start, columns - start, to);
                    for (int64_t c = 0; c < COLUMNS; c++) square[c] = to[c] * to[c];
                    for (int64_t c = 0; alpha && c < at_most(COLUMNS, columns - start); c++) {
                        square[c] *= alpha[first + start + c];
                    }
                }
            }
            if (alpha) memset(by_rate + first, 0, (size_t)columns * sizeof(float));
            for (int64_t chunk = 0; chunk < outputs; chunk += CHUNK) {
                const int64_t count = at_most(CHUNK, outputs - chunk), at = chunk * inputs + first;
                parameters_of_chunk(theta + at, log_sigma2 ? log_sigma2 + at : 0, limit, inputs, count, columns, weight,
                                    sigma2);
                if (need_x) {
                    multiply_chunk(&plan, of_mean.by_sample, outputs, chunk, count, weight, columns, sums);
                    multiply_chunk(&plan, of_variance.by_sample, outputs, chunk, count, sigma2, columns, square_sums);
                }
                for (int64_t o = 0; o < count; o += ROWS) {
                    const int64_t rows = at_most(ROWS, count - o), packed = (chunk + o) * samples;
                    for (int64_t r = o; r < o + rows; r++) {
                        fetch(by_theta + at + r * inputs, columns);
                        if (log_sigma2) fetch(by_rate + at + r * inputs, columns);
                    }
                    for (int64_t start = 0; start < columns; start += COLUMNS) {
                        const int64_t to = at + o * inputs + start, valid = at_most(COLUMNS, columns - start);
                        multiply_long(of_mean.by_output + packed, panels + start * samples, samples, tiles, COLUMNS);
                        multiply_long(of_variance.by_output + packed, squares + start * samples, samples,
                                      tiles + ROWS * COLUMNS, COLUMNS);
                        if (log_sigma2) {
                            put_gradients(theta + to, sigma2 + start * CHUNK + o * COLUMNS, limit, tiles, by_theta + to,
                                          by_rate + to, inputs, rows, valid);
                        } else {
                            put_rated_gradients(theta + to, tiles, by_theta + to, by_rate + first + start, inputs, rows,
                                                valid);
                        }
                    }
                }
            }
            for (int64_t s = 0; need_x && s < samples; s++) {
                const float *mean = sums + s * plan.width, *variance = square_sums + s * plan.width;
                const int64_t row = s * inputs + first;
                for (int64_t i = 0; i < columns; i++) {
                    by_x[row + i] = mean[i] + 2.0f * variance[i] * x[row + i] * (alpha ? alpha[first + i] : 1.0f);
                }
            }
        }
    }
    if (by_bias) sum_samples(grad, samples, outputs, by_bias);
}
