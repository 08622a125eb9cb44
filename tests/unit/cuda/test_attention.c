/* Attention of the CUDA plugin: which kernel takes which heads, and that each gives the results of
 * the portable kernels: widths, lengths that no tile divides, causal and other masks, rows that
 * attend to no key, heads that are parts of one projection. */
#include "op_case.h"

typedef struct shape {
    int64_t batch, rows, keys, heads, width;
    fy_attention_attrs_t attrs;
} shape_t;

/* Parts of [B, T, 3, H, D], or whole tensors. */
static fy_desc_t heads_of(const shape_t *s, int32_t dtype, int64_t length, int is_packed)
{
    const int64_t pitch = s->heads * s->width * (is_packed ? 3 : 1);
    return describe(dtype, 4, (const int64_t[]){ s->batch, length, s->heads, s->width },
                    (const int64_t[]){ length * pitch, pitch, s->width, 1 });
}

static op_case_t case_of(const shape_t *s, int32_t dtype, int is_packed)
{
    op_case_t c = OP_CASE(FY_OP_SCALED_DOT_PRODUCT_ATTENTION, 2, 3, .attrs = &s->attrs,
                          .attrs_nbytes = sizeof s->attrs, .close = CLOSE);
    c.src[0] = heads_of(s, dtype, s->rows, is_packed);
    c.src[1] = c.src[2] = heads_of(s, dtype, s->keys, is_packed);
    c.dst[0] = heads_of(s, dtype, s->rows, 0);
    c.dst[1] = DENSE(F32, s->batch, s->heads, s->rows);
    return c;
}

static const char *kernel_for(const shape_t *s, int32_t dtype)
{
    if (s->width > 64)
        return dtype == FY_DTYPE_F16 ? "fy_attention_tensor128_f16" : "fy_attention_tensor128_bf16";
    return dtype == FY_DTYPE_F16 ? "fy_attention_tensor64_f16" : "fy_attention_tensor64_bf16";
}

static const char *gradient_kernel_for(const shape_t *s, int32_t dtype)
{
    static char name[64];
    snprintf(name, sizeof name, "fy_attention_tensor_gradient%s",
             kernel_for(s, dtype) + strlen("fy_attention_tensor"));
    return name;
}

/* Random elements of f16 times 2^shift, or the smallest one. */
static void *elements_of(const fy_desc_t *desc, int shift)
{
    const uint64_t size = dtype_nbytes[desc->dtype], n = span_of(desc);
    char *bytes = malloc(n * size);
    for (uint64_t k = 0; k < n; k++) {
        random_element(bytes + k * size, desc->dtype);
        if (shift == 0) continue;
        uint16_t *half = (uint16_t *)(void *)bytes + k;
        *half = *half + shift * 1024 > 0 ? (uint16_t)(*half + shift * 1024) : 1;
    }
    return bytes;
}

/* The gradient of a call of `forward`. shifts: of dy, q, k, v. */
static void run_gradient(op_case_t forward, const int *shifts, unsigned shifted, const char *kernel)
{
    op_case_t c = OP_CASE(FY_OP_SCALED_DOT_PRODUCT_ATTENTION_BACKWARD, 3, forward.nsrc + 3,
                          .attrs = forward.attrs, .attrs_nbytes = forward.attrs_nbytes,
                          .close = CLOSE, .shifted = shifted);
    void *given[7] = { NULL };
    c.src[0] = c.src[4] = forward.dst[0];
    c.src[5] = forward.dst[1];
    for (unsigned i = 0; i < forward.nsrc; i++) {
        const unsigned at = i < 3 ? i + 1 : 6;
        c.src[at] = forward.src[i];
        if (i < 3) c.dst[i] = forward.src[i];
        given[at] = elements_of(&c.src[at], i < 3 && shifts != NULL ? shifts[i + 1] : 0);
        if (forward.given[i] != NULL)
            memcpy(given[at], forward.given[i],
                   span_of(&c.src[at]) * dtype_nbytes[c.src[at].dtype]);
        forward.src[i].data = given[at];
    }
    given[0] = elements_of(&c.src[0], shifts != NULL ? shifts[0] : 0);
    for (int i = 0; i < 2; i++) forward.dst[i].data = given[4 + i] = elements_of(&c.src[4 + i], 0);
    fy_launch_t launch = { .struct_size = sizeof launch,
                           .op = forward.op,
                           .nsrc = (uint16_t)forward.nsrc,
                           .ndst = 2,
                           .dst = forward.dst,
                           .src = forward.src,
                           .attrs = forward.attrs,
                           .attrs_nbytes = forward.attrs_nbytes,
                           .nelem = nelem_of(&forward.dst[0]) };
    assert_ok(host_run(&launch));
    for (int i = 0; i < 7; i++) c.given[i] = given[i];
    run_by(&c, kernel);
    for (int i = 0; i < 7; i++) free(given[i]);
}

static const int32_t halves[] = { FY_DTYPE_F16, FY_DTYPE_BF16 };

TS_TEST_WITH(halves_run_on_tensor_cores, open_device, close_device)
{
    static const shape_t shapes[] = {
        { 1, 1, 1, 1, 16, { 0, 0 } },       { 2, 63, 65, 2, 64, { 0, 0 } },
        { 1, 130, 130, 1, 64, { 0, 1 } },   { 1, 65, 63, 2, 128, { 0, 1 } },
        { 1, 63, 130, 1, 80, { -0.1, 1 } }, { 1, 130, 33, 1, 128, { 0.2, 0 } },
        { 1, 70, 65, 3, 8, { 0, 1 } },      { 2, 64, 64, 1, 72, { 0, 0 } },
    };
    for (size_t i = 0; i < LENGTH(shapes) * LENGTH(halves); i++) {
        const shape_t *s = &shapes[i / LENGTH(halves)];
        const int32_t dtype = halves[i % LENGTH(halves)];
        op_case_t whole = case_of(s, dtype, 0), packed = case_of(s, dtype, 1);
        run_by(&whole, kernel_for(s, dtype));
        run_by(&packed, kernel_for(s, dtype));
        run_gradient(whole, NULL, 0, gradient_kernel_for(s, dtype));
        run_gradient(packed, NULL, 0, gradient_kernel_for(s, dtype));
    }
}

/* Slopes of scores above the largest f16, and slopes near the smallest one, times large keys. */
TS_TEST_WITH(slopes_outside_f16_are_exact, open_device, close_device)
{
    static const shape_t large = { 1, 3, 2, 1, 64, { 0, 0 } }, wide = { 1, 3, 2, 1, 128, { 0, 0 } },
                         small = { 1, 70, 65, 1, 64, { 1024, 0 } };
    static const int up[] = { 13, -14, -14, 3 }, down[] = { -14, -24, 8, 0 };
    run_gradient(case_of(&large, FY_DTYPE_F16, 0), up, 0, "fy_attention_tensor_gradient64_f16");
    run_gradient(case_of(&wide, FY_DTYPE_F16, 0), up, 0, "fy_attention_tensor_gradient128_f16");
    run_gradient(case_of(&small, FY_DTYPE_F16, 0), down, 0, "fy_attention_tensor_gradient64_f16");
}

/* With scores near 2^40 and one key, each row is that key's value. */
TS_TEST_WITH(large_scores_keep_their_values, open_device, close_device)
{
    static const shape_t shapes[] = { { 1, 9, 1, 2, 64, { 1e12, 0 } },
                                      { 1, 9, 1, 2, 128, { -1e12, 0 } } };
    for (size_t i = 0; i < LENGTH(shapes) * LENGTH(halves); i++) {
        const shape_t *s = &shapes[i / LENGTH(halves)];
        op_case_t c = case_of(s, halves[i % LENGTH(halves)], 0);
        run_by(&c, kernel_for(s, c.src[0].dtype));
    }
}

/* Half of the keys, for each head or for all; keys of a whole sample; no key of some rows. */
TS_TEST_WITH(masks_hide_keys, open_device, close_device)
{
    static const shape_t shapes[] = { { 2, 65, 70, 2, 64, { 0, 0 } },
                                      { 2, 65, 70, 2, 128, { 0, 1 } } };
    static uint8_t none[2 * 2 * 65 * 70]; /* 20 rows attend to no key, the others to all */
    for (size_t k = 20 * 70; k < sizeof none; k++) none[k] = 1;
    for (size_t i = 0; i < LENGTH(shapes) * LENGTH(halves); i++) {
        const shape_t *s = &shapes[i / LENGTH(halves)];
        op_case_t c = case_of(s, halves[i % LENGTH(halves)], 0);
        c.nsrc = 4;
        const fy_desc_t masks[] = { DENSE(BOOL, 2, 2, 65, 70), DENSE(BOOL, 65, 70),
                                    DENSE(BOOL, 2, 1, 1, 70) };
        for (size_t m = 0; m < LENGTH(masks); m++) {
            c.src[3] = masks[m];
            run_by(&c, kernel_for(s, c.src[0].dtype));
            run_gradient(c, NULL, 0, gradient_kernel_for(s, c.src[0].dtype));
        }
        c.src[3] = masks[0];
        c.given[3] = none;
        run_by(&c, kernel_for(s, c.src[0].dtype));
        run_gradient(c, NULL, 0, gradient_kernel_for(s, c.src[0].dtype));
    }
}

TS_TEST_WITH(other_heads_have_a_warp_a_row, open_device, close_device)
{
    static const shape_t fits = { 1, 9, 7, 2, 64, { 0, 1 } }, odd = { 1, 9, 7, 2, 20, { 0, 1 } },
                         wide = { 1, 9, 7, 2, 136, { 0, 0 } },
                         single = { 1, 9, 1, 1, 64, { 0, 0 } };
    for (size_t i = 0; i < LENGTH(halves); i++) {
        op_case_t c = case_of(&odd, halves[i], 0);
        run_by(&c, "fy_attention_f32");
        run_gradient(c, NULL, 0, "fy_attention_keys_f32");
        c = case_of(&wide, halves[i], 0);
        run_by(&c, "fy_attention_f32");
        run_gradient(c, NULL, 0, "fy_attention_keys_f32");
        for (int operand = 0; operand < 5; operand += operand == 0 ? 2 : 1) { /* y, q, k, v */
            c = case_of(&fits, halves[i], 0);
            c.shifted = 1u << operand;
            run_by(&c, "fy_attention_f32");
        }
        for (unsigned operand = 0; operand < 8; operand++) /* dq, dk, dv, dy, q, k, v, y */
            run_gradient(case_of(&fits, halves[i], 0), NULL, 1u << operand,
                         "fy_attention_keys_f32");
        c = case_of(&fits, halves[i], 0);
        for (int axis = 0; axis < 4; axis++) c.src[1].strides[axis] *= 2;
        run_by(&c, "fy_attention_f32");
        c = case_of(&single, halves[i], 0);
        c.src[1].strides[1] += 1; /* of one key: no address of another one is made */
        run_by(&c, "fy_attention_f32");
    }
    op_case_t c = case_of(&fits, FY_DTYPE_F32, 0);
    run_by(&c, "fy_attention_f32");
    c = case_of(&fits, FY_DTYPE_F64, 0);
    c.dst[1].dtype = FY_DTYPE_F64;
    run_by(&c, "fy_attention_f64");
}

TS_SUITE(.prepare = load_or_skip);
