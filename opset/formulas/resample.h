/* Which pixels of a source make a pixel of a result, along one axis, and their weights: bilinear
 * resizing, pooling over as many bins as the result has pixels, and the gradients of both.
 * Positions are fractions of integers, so every backend finds the same pixels and weights.
 * Sizes are 1 .. 2^31 - 1. Next: backends/kernels/resample.c. */
#ifndef FERRY_OPSET_FORMULAS_RESAMPLE_H_
#define FERRY_OPSET_FORMULAS_RESAMPLE_H_

#include "opset/formulas/formula.h"

typedef struct fy__taps {
    int64_t in, out; /* sizes of the image that the op reads, and of the one that it makes */
    int pools;       /* 1: means of bins; 0: linear interpolation */
    int backward;    /* 1: the result has size `in`, and the source `out` */
} fy__taps_t;

/* Pixels first .. end - 1. */
typedef struct fy__span {
    int64_t first, end;
} fy__span_t;

FY_FORMULA int64_t fy__divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* Pixel o of the result of a resize is at (o + 1/2) in / out - 1/2: this is 2 out times that, or 0
 * if it is negative. */
FY_FORMULA int64_t fy__taps_position(const fy__taps_t *taps, int64_t o)
{
    const int64_t position = (2 * o + 1) * taps->in - taps->out;
    return position < 0 ? 0 : position;
}

/* The first pixel of the result that is at `i` or later. */
FY_FORMULA int64_t fy__taps_first_at(const fy__taps_t *taps, int64_t i)
{
    return i <= 0 ? 0 : fy__divide_up((2 * i + 1) * taps->out, taps->in) / 2;
}

/* The bin of pixel `at` of `to`, of `from` pixels. */
FY_FORMULA fy__span_t fy__taps_bin(int64_t at, int64_t from, int64_t to)
{
    fy__span_t span;
    span.first = at * from / to;
    span.end = fy__divide_up((at + 1) * from, to);
    return span;
}

/* The pixels of the source that can make pixel `at` of the result. */
FY_FORMULA fy__span_t fy__taps_span(const fy__taps_t *taps, int64_t at)
{
    fy__span_t span;
    /* the bins that contain a pixel are the bins of the reverse */
    if (taps->pools)
        return taps->backward ? fy__taps_bin(at, taps->out, taps->in)
                              : fy__taps_bin(at, taps->in, taps->out);
    if (taps->backward) {
        span.first = fy__taps_first_at(taps, at - 1);
        span.end = at + 1 < taps->in ? fy__taps_first_at(taps, at + 1) : taps->out;
    } else {
        span.first = fy__taps_position(taps, at) / (2 * taps->out);
        span.end = span.first + (span.first + 1 < taps->in ? 2 : 1);
    }
    return span;
}

/* The weight of pixel `from` of the source in pixel `at` of the result; `from` is in the span. */
FY_FORMULA double fy__taps_weight(const fy__taps_t *taps, int64_t at, int64_t from)
{
    const int64_t o = taps->backward ? from : at, i = taps->backward ? at : from;
    if (taps->pools) {
        const fy__span_t bin = fy__taps_bin(o, taps->in, taps->out);
        return 1.0 / (double)(bin.end - bin.first);
    }
    const int64_t position = fy__taps_position(taps, o), first = position / (2 * taps->out),
                  rest = position - first * 2 * taps->out;
    if (first == taps->in - 1) return i == first ? 1.0 : 0.0;
    if (i != first && i != first + 1) return 0.0;
    return (double)(i == first ? 2 * taps->out - rest : rest) / (double)(2 * taps->out);
}

#endif
