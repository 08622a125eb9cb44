/* The typed activations: each call runs its op, and each gradient is the slope of its activation
 * (by central differences in f64), away from kinks. Element by element they are tested in
 * tests/ops/. */
#include <math.h>

#include "tests/support/harness.h"

typedef fy_status_t (*forward_fn)(const fy_tensor_t *src, fy_tensor_t **out_dst);
typedef fy_status_t (*backward_fn)(const fy_tensor_t *dy, const fy_tensor_t *x,
                                   fy_tensor_t **out_dx);

static double at(ts_ctx_t *ctx, forward_fn forward, backward_fn backward, double x)
{
    fy_tensor_t *src, *one, *dst;
    ts_ok(fy_full(ctx->device, FY_DTYPE_F64, 0, NULL, x, &src));
    ts_ok(fy_full(ctx->device, FY_DTYPE_F64, 0, NULL, 1, &one));
    if (forward)
        ts_ok(forward(src, &dst));
    else
        ts_ok(backward(one, src, &dst));
    return ts_value(dst);
}

TS_DEVICE_TEST(activations_have_known_values)
{
    static const struct {
        forward_fn forward;
        double want; /* at 1.25 and 7 */
        double far;
    } rows[] = {
        { fy_relu6, 1.25, 6 },
        { fy_hardsigmoid, 4.25 / 6, 1 },
        { fy_hardswish, 1.25 * 4.25 / 6, 7 },
        { fy_silu, 0.971624826468, 6.993622641639 },
        { fy_gelu, 1.117937782916, 6.999999999991 },
        { fy_erf, 0.922900128256, 1 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (fabs(at(ctx, rows[i].forward, NULL, 1.25) - rows[i].want) > 1e-9)
            fail_msg("row %zu at 1.25: %.12f", i, at(ctx, rows[i].forward, NULL, 1.25));
        if (fabs(at(ctx, rows[i].forward, NULL, 7) - rows[i].far) > 1e-9)
            fail_msg("row %zu at 7: %.12f", i, at(ctx, rows[i].forward, NULL, 7));
    }
}

TS_DEVICE_TEST(gradients_are_slopes)
{
    static const struct {
        forward_fn forward;
        backward_fn backward;
    } rows[] = {
        { fy_relu, fy_relu_backward },
        { fy_relu6, fy_relu6_backward },
        { fy_hardsigmoid, fy_hardsigmoid_backward },
        { fy_hardswish, fy_hardswish_backward },
        { fy_silu, fy_silu_backward },
        { fy_gelu, fy_gelu_backward },
    };
    static const double places[] = { -5.5, -2.25, -0.5, 0.75, 2.5, 4.5, 7.25 };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (size_t k = 0; k < sizeof places / sizeof *places; k++) {
            const double h = 1e-5, x = places[k];
            const double slope =
                (at(ctx, rows[i].forward, NULL, x + h) - at(ctx, rows[i].forward, NULL, x - h)) /
                (2 * h);
            const double got = at(ctx, NULL, rows[i].backward, x);
            if (fabs(got - slope) > 1e-8)
                fail_msg("row %zu at %g: %.10f, the slope is %.10f", i, x, got, slope);
        }
    }
}
