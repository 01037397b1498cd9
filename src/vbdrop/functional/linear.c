/* The training forward and backward of a noisy linear layer, each in one call: the passes of kernels.c with the matrix
   products of torch's own BLAS between them.

   x is [samples, inputs], theta and log_sigma2 are [outputs, inputs]; all row by row, in float32. In the BLAS's order,
   column by column, each of them is its own transpose. The work goes through the weights by blocks of rows: what is
   computed of a block's parameters is used while it is in the cache, and is never there for all weights at once. */

#include <stdint.h>
#include <string.h>

typedef void (*gemm)(const char *, const char *, const int *, const int *, const int *, const float *, const float *,
                     const int *, const float *, const int *, const float *, float *, const int *);

double vbdrop_posterior(const float *, const float *, float, float *, float *, int64_t, int);
void vbdrop_weights(const float *, const float *, float, float *, float *, int64_t, int);
void vbdrop_masked_mean(const float *, const float *, float, float *, int64_t, int);
void vbdrop_posterior_backward(const float *, const float *, float, float, float *, float *, int64_t, int);
void vbdrop_sample(float *, const float *, float *, float, int, uint64_t, int64_t, int);

static const float ONE = 1.0f, ZERO = 0.0f;

/* A product of a block: `rows` of all `outputs` of the layer. */
typedef struct {
    gemm sgemm;
    int samples, inputs, outputs, rows;
} product;

/* out[samples, rows] = x * weight^T, added to out with `add` */
static void forward_product(const product *p, const float *x, const float *weight, float *out, int add) {
    p->sgemm("T", "N", &p->rows, &p->samples, &p->inputs, &ONE, weight, &p->inputs, x, &p->inputs, add ? &ONE : &ZERO, out,
             &p->outputs);
}

/* by_x[samples, inputs] = grad * weight, added to by_x with `add` */
static void input_product(const product *p, const float *grad, const float *weight, float *by_x, int add) {
    p->sgemm("N", "N", &p->inputs, &p->samples, &p->rows, &ONE, weight, &p->inputs, grad, &p->outputs, add ? &ONE : &ZERO,
             by_x, &p->inputs);
}

/* by_weight[rows, inputs] = grad^T * x */
static void weight_product(const product *p, const float *grad, const float *x, float *by_weight) {
    p->sgemm("N", "T", &p->inputs, &p->rows, &p->samples, &ONE, x, &p->inputs, grad, &p->outputs, &ZERO, by_weight,
             &p->inputs);
}

static int rows_from(int64_t first, int64_t outputs, int64_t block) {
    return (int)(outputs - first < block ? outputs - first : block);
}

/* A sample of the output, and noise_over_deviation, for the backward. `weight` and `sigma2` are room for the parameters of
   `block` rows, `square` and `variance` for x and out. Returns twice the KL of the hierarchical prior. */
double vbdrop_linear(gemm sgemm, const float *x, const float *theta, const float *log_sigma2, const float *bias,
                     float limit, float floor, int draw, uint64_t seed, float *weight, float *sigma2, float *square,
                     float *variance, float *out, float *noise_over_deviation, int64_t samples, int64_t inputs,
                     int64_t outputs, int64_t block, int threads) {
    double total = 0.0;
    for (int64_t i = 0; i < samples * inputs; i++) square[i] = x[i] * x[i];
    if (bias) {
        for (int64_t s = 0; s < samples; s++) memcpy(out + s * outputs, bias, (size_t)outputs * sizeof(float));
    }
    for (int64_t first = 0; first < outputs; first += block) {
        const product p = {sgemm, (int)samples, (int)inputs, (int)outputs, rows_from(first, outputs, block)};
        const int64_t at = first * inputs;
        total += vbdrop_posterior(theta + at, log_sigma2 + at, limit, weight, sigma2, p.rows * inputs, threads);
        forward_product(&p, x, weight, out + first, bias != 0);
        forward_product(&p, square, sigma2, variance + first, 0);
    }
    vbdrop_sample(out, variance, noise_over_deviation, floor, draw, seed, samples * outputs, threads);
    return total;
}

/* The gradients of vbdrop_linear towards x (or not, if by_x is NULL), theta, log_sigma2 and bias (or not), with `scale`
   times those of the hierarchical KL added. `sigma2` holds the variances of a layer of one block, which were `kept`; else
   it is room as above, as `weight` is. `noisy`, `square` and `by_square` are room of the sizes of grad, x and x. */
void vbdrop_linear_backward(gemm sgemm, const float *grad, const float *x, const float *theta, const float *log_sigma2,
                            const float *noise_over_deviation, float limit, float scale, int kept, float *weight,
                            float *sigma2, float *noisy, float *square, float *by_square, float *by_x, float *by_theta,
                            float *by_log_sigma2, float *by_bias, int64_t samples, int64_t inputs, int64_t outputs,
                            int64_t block, int threads) {
    /* d out / d variance = noise / (2 deviation); the half goes to the square */
    for (int64_t i = 0; i < samples * outputs; i++) noisy[i] = grad[i] * noise_over_deviation[i];
    for (int64_t i = 0; i < samples * inputs; i++) square[i] = 0.5f * x[i] * x[i];
    for (int64_t first = 0; first < outputs; first += block) {
        const product p = {sgemm, (int)samples, (int)inputs, (int)outputs, rows_from(first, outputs, block)};
        const int64_t at = first * inputs, count = p.rows * inputs;
        if (!kept) {
            vbdrop_weights(theta + at, log_sigma2 + at, limit, weight, sigma2, count, threads);
        } else if (by_x) {
            vbdrop_masked_mean(theta + at, sigma2, limit, weight, count, threads);
        }
        if (by_x) {
            input_product(&p, grad + first, weight, by_x, first > 0);
            input_product(&p, noisy + first, sigma2, by_square, first > 0);
        }
        weight_product(&p, grad + first, x, by_theta + at);
        weight_product(&p, noisy + first, square, by_log_sigma2 + at);
        vbdrop_posterior_backward(theta + at, sigma2, limit, scale, by_theta + at, by_log_sigma2 + at, count, threads);
    }
    if (by_x) {
        for (int64_t i = 0; i < samples * inputs; i++) by_x[i] += by_square[i] * x[i];
    }
    if (by_bias) {
        memset(by_bias, 0, (size_t)outputs * sizeof(float));
        for (int64_t s = 0; s < samples; s++) {
            for (int64_t o = 0; o < outputs; o++) by_bias[o] += grad[s * outputs + o];
        }
    }
}
