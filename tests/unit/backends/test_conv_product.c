/* Convolutions as products of windows (conv_product.c): results of the plain loops for kernels,
 * strides, paddings, dilations, several chunks, accumulation, bias; scratch to the byte. */
#include "backends/kernels/conv.h"
#include "tests/unit/backends/kernel_fixture.h"

enum { MOST = 1 << 17, SCRATCH = 3 << 20 };
static float x[MOST], w[MOST], y[MOST], bias[64], want[MOST], want_bias[64], scratch[SCRATCH];

static fy_desc_t describe(float *data, int rank, const int64_t *dims)
{
    fy_desc_t desc = { .data = data, .dtype = FY_DTYPE_F32, .rank = rank };
    int64_t stride = 1;
    for (int i = rank - 1; i >= 0; i--) {
        desc.dims[i] = dims[i];
        desc.strides[i] = stride;
        stride *= dims[i];
    }
    assert_true(stride <= MOST);
    return desc;
}

static void draw(float *to, int64_t n, uint32_t seed)
{
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        to[i] = (float)(seed >> 8) / (float)(1 << 23) - 1;
    }
}

static void compare(const char *what, const fy__conv_shape_t *s, const float *got,
                    const float *expected, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (fabsf(got[i] - expected[i]) > 2e-3f)
            fail_msg("%s of op %d, %lldx%lld kernel, accumulate %d: %lld is %g, not %g", what,
                     (int)s->op, (long long)s->kh, (long long)s->kw, (int)s->accumulate,
                     (long long)i, (double)got[i], (double)expected[i]);
}

static void run_case(fy__conv_shape_t s)
{
    const int is_weight = s.op == FY_OP_CONV2D_BACKWARD_WEIGHT;
    const fy_desc_t dx = describe(x, 4, (int64_t[]){ s.n, s.h, s.w, s.c }),
                    dw = describe(w, 4, (int64_t[]){ s.o, s.kh, s.kw, s.c }),
                    dy = describe(y, 4, (int64_t[]){ s.n, s.oh, s.ow, s.o }),
                    db = describe(bias, 1, &s.o);
    const fy__conv_t conv = { .shape = s,
                              .x = &dx,
                              .w = &dw,
                              .y = &dy,
                              .bias = s.has_bias ? &db : NULL,
                              .relu = s.has_bias && s.op == FY_OP_CONV2D,
                              .accumulate_bias = (int)s.accumulate };
    float *result = s.op == FY_OP_CONV2D ? y : is_weight ? w : x;
    assert_true(fy__conv_product_fits(&conv));
    const uint64_t nbytes = fy__conv_product_nbytes(&conv);
    assert_true(nbytes < sizeof scratch);
    for (int pass = 0; pass < 2; pass++) {
        draw(x, MOST, 1);
        draw(w, MOST, 2);
        draw(y, MOST, 3);
        draw(bias, 64, 4);
        if (pass == 0) {
            fy__conv_plain(fy__loops_get(), &conv);
            memcpy(want, result, sizeof want);
            memcpy(want_bias, bias, sizeof want_bias);
            continue;
        }
        if (nbytes)
            assert_int_equal(fy__conv_product_run(&api, &conv, scratch, nbytes - 1),
                             FY_STATUS_UNSUPPORTED);
        scratch[nbytes / sizeof *scratch] = 1234;
        ts_ok(fy__conv_product_run(&api, &conv, scratch, nbytes));
        assert_true(scratch[nbytes / sizeof *scratch] == 1234);
        compare("result", &s, result, want, MOST); /* what lies behind has not changed */
        compare("bias", &s, bias, want_bias, 64);
    }
}

TS_TEST(results_are_those_of_the_plain_loops)
{
    static const struct {
        int64_t n, h, w, c, o, kh, kw, stride[2], padding[2], dilation[2];
    } shapes[] = {
        { 2, 7, 6, 5, 9, 3, 3, { 1, 1 }, { 1, 1 }, { 1, 1 } },
        { 3, 5, 4, 8, 16, 1, 1, { 1, 1 }, { 0, 0 }, { 1, 1 } },
        { 2, 7, 9, 6, 8, 1, 1, { 2, 2 }, { 0, 0 }, { 1, 1 } },
        { 1, 12, 11, 3, 4, 5, 2, { 1, 2 }, { 2, 0 }, { 1, 1 } },
        { 2, 9, 9, 4, 5, 3, 3, { 1, 1 }, { 0, 0 }, { 2, 3 } },
        /* several chunks, the last of fewer images */
        { 7, 32, 32, 16, 8, 5, 5, { 1, 1 }, { 2, 2 }, { 1, 1 } },
    };
    static const int64_t ops[] = { FY_OP_CONV2D, FY_OP_CONV2D_BACKWARD_INPUT,
                                   FY_OP_CONV2D_BACKWARD_WEIGHT };
    for (size_t i = 0; i < COUNT_OF(shapes); i++)
        for (size_t k = 0; k < COUNT_OF(ops); k++)
            for (int accumulate = 0; accumulate <= (k > 0); accumulate++) {
                fy__conv_shape_t s = { .op = ops[k],
                                       .n = shapes[i].n,
                                       .h = shapes[i].h,
                                       .w = shapes[i].w,
                                       .c = shapes[i].c,
                                       .o = shapes[i].o,
                                       .kh = shapes[i].kh,
                                       .kw = shapes[i].kw,
                                       .groups = 1,
                                       .stride_h = shapes[i].stride[0],
                                       .stride_w = shapes[i].stride[1],
                                       .padding_h = shapes[i].padding[0],
                                       .padding_w = shapes[i].padding[1],
                                       .dilation_h = shapes[i].dilation[0],
                                       .dilation_w = shapes[i].dilation[1],
                                       .accumulate = accumulate };
                s.has_bias = s.op != FY_OP_CONV2D_BACKWARD_INPUT;
                s.oh = (s.h + 2 * s.padding_h - s.dilation_h * (s.kh - 1) - 1) / s.stride_h + 1;
                s.ow = (s.w + 2 * s.padding_w - s.dilation_w * (s.kw - 1) - 1) / s.stride_w + 1;
                run_case(s);
            }
}

TS_TEST(groups_are_left_to_others)
{
    const fy__conv_t conv = { .shape = { .op = FY_OP_CONV2D,
                                         .n = 1,
                                         .h = 3,
                                         .w = 3,
                                         .c = 4,
                                         .oh = 3,
                                         .ow = 3,
                                         .o = 4,
                                         .kh = 1,
                                         .kw = 1,
                                         .groups = 2 } };
    assert_false(fy__conv_product_fits(&conv));
    assert_int_equal(fy__conv_product_run(&api, &conv, scratch, sizeof scratch),
                     FY_STATUS_UNSUPPORTED);
}
