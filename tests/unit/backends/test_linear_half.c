/* linear of f16 and bf16 in f32: with every amount of scratch, from none (then plain loops run),
 * in one panel of rows or several, the results are those of the plain loops.
 * Values against an oracle: tests/ops/cases.def. */
#include "tests/unit/backends/kernel_fixture.h"

enum { A = 3, B = 11, IN = 40, OUT = 24 };

static void compare(int32_t dtype, uint16_t nsrc, int32_t activation)
{
    const int64_t x_dims[3] = { A, B, IN }, w_dims[2] = { OUT, IN }, y_dims[3] = { A, B, OUT };
    tensor_t x = make(dtype, 3, x_dims, NULL), w = make(dtype, 2, w_dims, NULL),
             bias = make(dtype, 1, y_dims + 2, NULL), y = make(dtype, 3, y_dims, NULL);
    const tensor_t *src[3] = { &x, &w, &bias };
    const fy_linear_attrs_t attrs = { .activation = activation };
    fill_noise(&x.desc, 1);
    fill_noise(&w.desc, 2);
    fill_noise(&bias.desc, 3);
    /* of 33 rows 33, 17, 9, ... */
    assert_true(check_amounts(FY_OP_LINEAR, &y, nsrc, src, &attrs, 0, 64, UINT64_MAX,
                              epsilon_of(dtype), 1e-4) >= 3);
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
