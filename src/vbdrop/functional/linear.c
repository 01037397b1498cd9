/* The training forward and backward of a noisy linear layer, each in one call: the passes of kernels.c with the matrix
   products of torch's own BLAS between them.

   x is [samples, inputs], theta and log_sigma2 are [outputs, inputs]; all row by row, in float32. In the BLAS's order,
   column by column, each of them is its own transpose. */

#include <stdint.h>
#include <string.h>

typedef void (*gemm)(const char *, const char *, const int *, const int *, const int *, const float *, const float *,
                     const int *, const float *, const int *, const float *, float *, const int *);

double vbdrop_posterior(const float *, const float *, float, float *, float *, int64_t, int);
void vbdrop_posterior_backward(const float *, const float *, float, float, float *, float *, int64_t, int);
void vbdrop_masked_mean(const float *, const float *, float, float *, int64_t, int);
void vbdrop_sample(float *, const float *, float *, float, int, uint64_t, int64_t, int);

static const float ONE = 1.0f, ZERO = 0.0f;

/* out[samples, outputs] = x * weight^T, added to out with `add` */
static void forward_product(gemm sgemm, const float *x, const float *weight, float *out, int samples, int inputs,
                            int outputs, int add) {
    sgemm("T", "N", &outputs, &samples, &inputs, &ONE, weight, &inputs, x, &inputs, add ? &ONE : &ZERO, out, &outputs);
}

/* by_x[samples, inputs] = grad * weight */
static void input_product(gemm sgemm, const float *grad, const float *weight, float *by_x, int samples, int inputs,
                          int outputs) {
    sgemm("N", "N", &inputs, &samples, &outputs, &ONE, weight, &inputs, grad, &outputs, &ZERO, by_x, &inputs);
}

/* by_weight[outputs, inputs] = grad^T * x */
static void weight_product(gemm sgemm, const float *grad, const float *x, float *by_weight, int samples, int inputs,
                           int outputs) {
    sgemm("N", "T", &inputs, &outputs, &samples, &ONE, x, &inputs, grad, &outputs, &ZERO, by_weight, &inputs);
}

/* A sample of the output; noise_over_deviation, for the backward; sigma2. `weight`, `square` and `variance` are room for
   what is only needed here. Returns twice the KL of the hierarchical prior. */
double vbdrop_linear(gemm sgemm, const float *x, const float *theta, const float *log_sigma2, const float *bias,
                     float limit, float floor, int draw, uint64_t seed, float *weight, float *sigma2, float *square,
                     float *variance, float *out, float *noise_over_deviation, int64_t samples, int64_t inputs,
                     int64_t outputs, int threads) {
    const int n = (int)samples, in = (int)inputs, to = (int)outputs;
    const double total = vbdrop_posterior(theta, log_sigma2, limit, weight, sigma2, inputs * outputs, threads);
    if (bias) {
        for (int64_t s = 0; s < samples; s++) memcpy(out + s * outputs, bias, (size_t)outputs * sizeof(float));
    }
    forward_product(sgemm, x, weight, out, n, in, to, bias != 0);
    for (int64_t i = 0; i < samples * inputs; i++) square[i] = x[i] * x[i];
    forward_product(sgemm, square, sigma2, variance, n, in, to, 0);
    vbdrop_sample(out, variance, noise_over_deviation, floor, draw, seed, samples * outputs, threads);
    return total;
}

/* The gradients of vbdrop_linear towards x (or not, if by_x is NULL), theta, log_sigma2 and bias (or not), with `scale`
   times those of the hierarchical KL added. `noisy`, `square` and `by_square` are room of grad's size, x's and x's. */
void vbdrop_linear_backward(gemm sgemm, const float *grad, const float *x, const float *theta, const float *sigma2,
                            const float *noise_over_deviation, float limit, float scale, float *noisy, float *square,
                            float *by_square, float *by_x, float *by_theta, float *by_log_sigma2, float *by_bias,
                            int64_t samples, int64_t inputs, int64_t outputs, int threads) {
    const int n = (int)samples, in = (int)inputs, to = (int)outputs;
    const int64_t taken = samples * inputs, given = samples * outputs;
    /* d out / d variance = noise / (2 deviation); the half goes to the square */
    for (int64_t i = 0; i < given; i++) noisy[i] = grad[i] * noise_over_deviation[i];
    for (int64_t i = 0; i < taken; i++) square[i] = 0.5f * x[i] * x[i];
    if (by_x) {
        float *weight = by_theta; /* is free until its own product */
        vbdrop_masked_mean(theta, sigma2, limit, weight, inputs * outputs, threads);
        input_product(sgemm, grad, weight, by_x, n, in, to);
        input_product(sgemm, noisy, sigma2, by_square, n, in, to);
        for (int64_t i = 0; i < taken; i++) by_x[i] += by_square[i] * x[i];
    }
    weight_product(sgemm, grad, x, by_theta, n, in, to);
    weight_product(sgemm, noisy, square, by_log_sigma2, n, in, to);
    vbdrop_posterior_backward(theta, sigma2, limit, scale, by_theta, by_log_sigma2, inputs * outputs, threads);
    if (by_bias) {
        memset(by_bias, 0, (size_t)outputs * sizeof(float));
        for (int64_t s = 0; s < samples; s++) {
            for (int64_t o = 0; o < outputs; o++) by_bias[o] += grad[s * outputs + o];
        }
    }
}
