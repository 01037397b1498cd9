/* The functions of weights.c that other files use. */

#ifndef VBDROP_WEIGHTS_H
#define VBDROP_WEIGHTS_H

#include <stdint.h>

void vbdrop_sample(const float *mean, const float *variance, float *noise, float floor, int draw, uint64_t seed, float *out,
                   int64_t n, int threads);
double vbdrop_kl(const float *theta, const float *log_sigma2, float scale, float *by_theta, float *by_log_sigma2, int64_t n,
                 int threads);

#endif
