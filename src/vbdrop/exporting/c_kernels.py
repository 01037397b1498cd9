"""The C functions that an exported network calls; its source contains only those that it needs.

`{index}` stands for the type of a table of positions, which is as narrow as the layer allows. Inner loops run over
contiguous memory and never reorder a sum, so that a compiler can vectorise them without relaxed floating-point rules.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class _Kernel:
    source: str
    needs: tuple[str, ...] = ()


_COPY = """
/* Blocks of `block` floats from the offsets `starts`, one after the other. */
static void gather_{index}(const float *restrict x, float *restrict y, const {index} *starts, int count, int block)
{
    for (int i = 0; i < count; ++i, y += block) {
        for (int j = 0; j < block; ++j) {
            y[j] = x[starts[i] + j];
        }
    }
}
"""

_ADD_AT = """
/* y[starts[i] ...] += the blocks of `block` floats of x, one after the other. */
static void add_at_{index}(const float *restrict x, float *restrict y, const {index} *starts, int count, int block)
{
    for (int i = 0; i < count; ++i, x += block) {
        for (int j = 0; j < block; ++j) {
            y[starts[i] + j] += x[j];
        }
    }
}
"""

_JOIN = """
/* `count` blocks of `block` floats, each `stride` floats after the one before. */
static void spread(const float *restrict x, float *restrict y, int count, int block, int stride)
{
    for (int i = 0; i < count; ++i, x += block, y += stride) {
        for (int j = 0; j < block; ++j) {
            y[j] = x[j];
        }
    }
}
"""

_DENSE_COLUMNS = """
/* y[p][o] = bias[o] + the sum over i of weight[i][o] * x[i][p]. An input that is zero costs nothing. */
static void dense_columns(const float *restrict x, float *restrict y, const float *restrict weight,
                          const float *restrict bias, int inputs, int outputs, int pixels)
{
    for (int p = 0; p < pixels; ++p) {
        for (int o = 0; o < outputs; ++o) {
            y[p * outputs + o] = bias[o];
        }
    }
    for (int i = 0; i < inputs; ++i, x += pixels, weight += outputs) {
        for (int p = 0; p < pixels; ++p) {
            const float value = x[p];
            if (value != 0.0f) {
                float *restrict row = y + p * outputs;
                for (int o = 0; o < outputs; ++o) {
                    row[o] += weight[o] * value;
                }
            }
        }
    }
}
"""

_SPARSE_COLUMNS = """
/* y[p][o] = bias[o] + the sum over i of weight * x[i][p], with the weights that are not zero only: counts[i] of them
   for input i, at the outputs `at`. An input that is zero costs nothing. */
static void sparse_columns_{index}(const float *restrict x, float *restrict y, const float *restrict weight,
                                   const {index} *restrict at, const uint16_t *restrict counts,
                                   const float *restrict bias, int inputs, int outputs, int pixels)
{
    for (int p = 0; p < pixels; ++p) {
        for (int o = 0; o < outputs; ++o) {
            y[p * outputs + o] = bias[o];
        }
    }
    for (int i = 0; i < inputs; ++i, x += pixels) {
        const int count = counts[i];
        for (int p = 0; p < pixels; ++p) {
            const float value = x[p];
            if (value != 0.0f) {
                float *restrict row = y + p * outputs;
                for (int k = 0; k < count; ++k) {
                    row[at[k]] += weight[k] * value;
                }
            }
        }
        weight += count;
        at += count;
    }
}
"""

_GEOMETRY = """
/* A window that moves over planes. */
typedef struct {
    int channels, height, width, kernel_height, kernel_width, stride_y, stride_x, padding_y, padding_x;
    int dilation_y, dilation_x, out_width;
} geometry;

/* The values under each position of the kernel, for `rows` output rows from `top` on: [channel, position, pixel]. */
static void unfold(const float *restrict x, float *restrict patches, const geometry *g, int top, int rows)
{
    for (int c = 0; c < g->channels; ++c, x += g->height * g->width) {
        for (int k = 0; k < g->kernel_height * g->kernel_width; ++k) {
            const int dy = k / g->kernel_width * g->dilation_y - g->padding_y;
            const int dx = k % g->kernel_width * g->dilation_x - g->padding_x;
            int first = 0, last = g->out_width;
            while (first < last && first * g->stride_x + dx < 0) {
                ++first;
            }
            while (last > first && (last - 1) * g->stride_x + dx >= g->width) {
                --last;
            }
            for (int r = top; r < top + rows; ++r, patches += g->out_width) {
                const int y = r * g->stride_y + dy;
                const int inside = y >= 0 && y < g->height;
                const int from = inside ? first : 0, to = inside ? last : 0;
                for (int i = 0; i < from; ++i) {
                    patches[i] = 0.0f;
                }
                for (int i = from; i < to; ++i) {
                    patches[i] = x[y * g->width + i * g->stride_x + dx];
                }
                for (int i = to; i < g->out_width; ++i) {
                    patches[i] = 0.0f;
                }
            }
        }
    }
}
"""

_PLANES = """
/* y[p] += w[0] * a[p] + w[1] * b[p] + w[2] * c[p] + w[3] * d[p] */
static void add_four(float *restrict y, const float *restrict a, const float *restrict b, const float *restrict c,
                     const float *restrict d, const float *w, int pixels)
{
    const float wa = w[0], wb = w[1], wc = w[2], wd = w[3];
    for (int p = 0; p < pixels; ++p) {
        y[p] += wa * a[p] + wb * b[p] + wc * c[p] + wd * d[p];
    }
}

/* y[p] += w * a[p] */
static void add_one(float *restrict y, const float *restrict a, float w, int pixels)
{
    for (int p = 0; p < pixels; ++p) {
        y[p] += w * a[p];
    }
}
"""

_DENSE_PLANES = """
/* y[o][p] = bias[o] + the sum over i of weight[o][i] * x[i][p]; planes of y are `plane` floats apart. */
static void dense_planes(const float *restrict x, float *restrict y, const float *restrict weight,
                         const float *restrict bias, int inputs, int outputs, int pixels, int plane)
{
    for (int o = 0; o < outputs; ++o, y += plane, weight += inputs) {
        for (int p = 0; p < pixels; ++p) {
            y[p] = bias[o];
        }
        const float *a = x;
        int i = 0;
        for (; i + 4 <= inputs; i += 4, a += 4 * pixels) {
            add_four(y, a, a + pixels, a + 2 * pixels, a + 3 * pixels, weight + i, pixels);
        }
        for (; i < inputs; ++i, a += pixels) {
            add_one(y, a, weight[i], pixels);
        }
    }
}
"""

_SPARSE_PLANES = """
/* y[o][p] = bias[o] + the sum over i of weight * x[i][p], with the weights that are not zero only: counts[o] of them
   for output o, at the inputs `at`; planes of y are `plane` floats apart. */
static void sparse_planes_{index}(const float *restrict x, float *restrict y, const float *restrict weight,
                                  const {index} *restrict at, const uint16_t *restrict counts,
                                  const float *restrict bias, int outputs, int pixels, int plane)
{
    for (int o = 0; o < outputs; ++o, y += plane) {
        const int count = counts[o];
        for (int p = 0; p < pixels; ++p) {
            y[p] = bias[o];
        }
        int k = 0;
        for (; k + 4 <= count; k += 4) {
            add_four(y, x + at[k] * pixels, x + at[k + 1] * pixels, x + at[k + 2] * pixels, x + at[k + 3] * pixels,
                     weight + k, pixels);
        }
        for (; k < count; ++k) {
            add_one(y, x + at[k] * pixels, weight[k], pixels);
        }
        weight += count;
        at += count;
    }
}
"""

_TURN = """
/* From [pixel, channel] to planes that are `plane` floats apart. */
static void turn(const float *restrict x, float *restrict y, int channels, int pixels, int plane)
{
    for (int c = 0; c < channels; ++c, y += plane) {
        for (int p = 0; p < pixels; ++p) {
            y[p] = x[p * channels + c];
        }
    }
}
"""

_WINDOWS = """
/* The windows of a pool along one axis: [start, stop) by `step` for each output, and the factor of a mean. */
typedef struct {
    const int *starts, *stops;
    const float *factors;
    int size, count, step;
} windows;
"""

_MAX_POOL = """
/* The largest value of each window; NaN, which is not equal to itself, if there is one in it. */
static void max_pool(const float *restrict x, float *restrict y, float *restrict row, int channels,
                     const windows *v, const windows *h)
{
    for (int c = 0; c < channels; ++c, x += v->size * h->size) {
        for (int i = 0; i < v->count; ++i) {
            for (int j = 0; j < h->size; ++j) {
                row[j] = -INFINITY;
            }
            for (int r = v->starts[i]; r < v->stops[i]; r += v->step) {
                const float *restrict line = x + r * h->size;
                for (int j = 0; j < h->size; ++j) {
                    row[j] = line[j] > row[j] || line[j] != line[j] ? line[j] : row[j];
                }
            }
            for (int j = 0; j < h->count; ++j) {
                float largest = -INFINITY;
                for (int k = h->starts[j]; k < h->stops[j]; k += h->step) {
                    largest = row[k] > largest || row[k] != row[k] ? row[k] : largest;
                }
                *y++ = largest;
            }
        }
    }
}
"""

_MEAN_POOL = """
static void mean_pool(const float *restrict x, float *restrict y, float *restrict row, int channels,
                      const windows *v, const windows *h)
{
    for (int c = 0; c < channels; ++c, x += v->size * h->size) {
        for (int i = 0; i < v->count; ++i) {
            for (int j = 0; j < h->size; ++j) {
                row[j] = 0.0f;
            }
            for (int r = v->starts[i]; r < v->stops[i]; r += v->step) {
                const float *restrict line = x + r * h->size;
                for (int j = 0; j < h->size; ++j) {
                    row[j] += line[j];
                }
            }
            for (int j = 0; j < h->count; ++j) {
                float sum = 0.0f;
                for (int k = h->starts[j]; k < h->stops[j]; k += h->step) {
                    sum += row[k];
                }
                *y++ = sum * v->factors[i] * h->factors[j];
            }
        }
    }
}
"""

_AFFINE = """
/* x = x * scale[c] + shift[c], for `outer` times `channels` runs of `inner` values. */
static void affine(float *restrict x, const float *restrict scale, const float *restrict shift, int outer,
                   int channels, int inner)
{
    for (int i = 0; i < outer * channels; ++i, x += inner) {
        const float a = scale[i % channels], b = shift[i % channels];
        for (int j = 0; j < inner; ++j) {
            x[j] = x[j] * a + b;
        }
    }
}
"""

_SOFTMAX = """
/* Over `count` values that lie `inner` apart, for `outer` times `inner` such groups; its logarithm if `logarithm`. */
static void softmax(float *x, int outer, int count, int inner, int logarithm)
{
    for (int group = 0; group < outer * inner; ++group) {
        float *first = x + group / inner * count * inner + group % inner;
        float largest = -INFINITY, sum = 0.0f;
        for (int i = 0; i < count; ++i) {
            largest = first[i * inner] > largest ? first[i * inner] : largest;
        }
        for (int i = 0; i < count; ++i) {
            sum += expf(first[i * inner] - largest);
        }
        const float log_sum = logf(sum);
        for (int i = 0; i < count; ++i) {
            const float value = first[i * inner] - largest - log_sum;
            first[i * inner] = logarithm ? value : expf(value);
        }
    }
}
"""

# In the order in which they are written: a kernel comes after those that it needs.
_KERNELS: dict[str, _Kernel] = {
    "gather": _Kernel(_COPY),
    "add_at": _Kernel(_ADD_AT),
    "spread": _Kernel(_JOIN),
    "dense_columns": _Kernel(_DENSE_COLUMNS),
    "sparse_columns": _Kernel(_SPARSE_COLUMNS),
    "unfold": _Kernel(_GEOMETRY),
    "add_planes": _Kernel(_PLANES),
    "dense_planes": _Kernel(_DENSE_PLANES, needs=("add_planes",)),
    "sparse_planes": _Kernel(_SPARSE_PLANES, needs=("add_planes",)),
    "turn": _Kernel(_TURN),
    "windows": _Kernel(_WINDOWS),
    "max_pool": _Kernel(_MAX_POOL, needs=("windows",)),
    "mean_pool": _Kernel(_MEAN_POOL, needs=("windows",)),
    "affine": _Kernel(_AFFINE),
    "softmax": _Kernel(_SOFTMAX),
}


def kernel_sources(calls: set[tuple[str, str]]) -> list[str]:
    """The C functions for `calls`, pairs of a kernel and the type of its index table ("" if it has none)."""
    wanted = set(calls)
    for name, _ in calls:
        wanted |= {(needed, "") for needed in _KERNELS[name].needs}
    return [
        kernel.source.strip().replace("{index}", index)
        for name, kernel in _KERNELS.items()
        for index in sorted(index for wanted_name, index in wanted if wanted_name == name)
    ]
