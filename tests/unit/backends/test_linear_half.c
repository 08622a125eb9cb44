/* linear of f16 and bf16 in f32: with every amount of scratch, from none (then plain loops run),
 * in one panel of rows or several, the results are those of the plain loops.
 * Values against an oracle: tests/ops/cases.def. */
#include "tests/unit/backends/kernel_fixture.h"

enum { A = 3, B = 11, IN = 40, OUT = 24 };

static uint64_t scratch_of(const tensor_t *dst, const tensor_t *const *src, uint16_t nsrc,
                           const fy_linear_attrs_t *attrs, uint64_t limit)
{
    fy_desc_t out = dst->desc, in[3] = { src[0]->desc, src[1]->desc, src[2]->desc };
    const fy_launch_t launch = launch_of(FY_OP_LINEAR, 1, &out, nsrc, in, attrs);
    return fy__kernels_workspace(&launch, limit);
}

static void compare(int32_t dtype, uint16_t nsrc, int32_t activation)
{
    const int64_t x_dims[3] = { A, B, IN }, w_dims[2] = { OUT, IN }, y_dims[3] = { A, B, OUT };
    tensor_t x = make(dtype, 3, x_dims, NULL), w = make(dtype, 2, w_dims, NULL),
             bias = make(dtype, 1, y_dims + 2, NULL), y = make(dtype, 3, y_dims, NULL);
    const tensor_t *src[3] = { &x, &w, &bias };
    const fy_linear_attrs_t attrs = { .activation = activation };
    double want[A * B * OUT];
    uint64_t amounts = 0, last = 0;
    fill_noise(&x.desc, 1);
    fill_noise(&w.desc, 2);
    fill_noise(&bias.desc, 3);
    assert_int_equal(run(FY_OP_LINEAR, &y, nsrc, src, &attrs, 0, 0), FY_STATUS_OK);
    for (int64_t i = 0; i < A * B * OUT; i++) want[i] = get(&y.desc, i);
    const uint64_t all = scratch_of(&y, src, nsrc, &attrs, 1 << 24);
    assert_true(all > 0);
    for (uint64_t limit = 0; limit <= all + 512; limit += 64) {
        const uint64_t nbytes = scratch_of(&y, src, nsrc, &attrs, limit);
        assert_true(nbytes <= limit);
        if (nbytes == last) continue;
        amounts++;
        last = nbytes;
        fill_noise(&y.desc, 9);
        assert_int_equal(run(FY_OP_LINEAR, &y, nsrc, src, &attrs, 0, limit), FY_STATUS_OK);
        for (int64_t i = 0; i < A * B * OUT; i++)
            if (fabs(get(&y.desc, i) - want[i]) > epsilon_of(dtype) * fabs(want[i]) + 1e-4)
                fail_msg("dtype %d limit %llu: %lld is %g, not %g", (int)dtype,
                         (unsigned long long)limit, (long long)i, get(&y.desc, i), want[i]);
    }
    assert_int_equal(last, all);
    assert_true(amounts >= 3); /* of 33 rows 33, 17, 9, ... */
    DROP(&x, &w, &bias, &y);
}

TS_TEST(any_scratch)
{
    static const int32_t halves[] = { FY_DTYPE_F16, FY_DTYPE_BF16 };
    for (int i = 0; i < 2; i++) {
        for (uint16_t nsrc = 2; nsrc <= 3; nsrc++) {
            compare(halves[i], nsrc, FY_ACTIVATION_NONE);
            compare(halves[i], nsrc, FY_ACTIVATION_GELU);
        }
    }
}
