/* What weights.c has for the other files. */

#ifndef VBDROP_WEIGHTS_H
#define VBDROP_WEIGHTS_H

#include <stdint.h>

void vbdrop_sample(float *mean, const float *variance, float *noise, float floor, int draw, uint64_t seed, int64_t n,
                   int threads);
double vbdrop_kl(const float *theta, const float *log_sigma2, int64_t n, int threads);

#endif
