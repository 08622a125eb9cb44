/* The gradient of attention: heads together, which the host computes one head a task, and each head
 * alone, which it computes in blocks of keys and then of rows. Both are the same bits. Every dtype
 * and layout, element by element, is tested in tests/ops/. */
#include "tests/support/harness.h"

enum { SAMPLES = 8, HEADS = 3, MOST = 150, WIDTH = 40 };

/* Elements of the gradients of q, k and v. */
typedef float grads_t[3][SAMPLES * HEADS * MOST * WIDTH];

static void gradients(fy_tensor_t *const *in, const fy_attention_attrs_t *attrs, fy_tensor_t **out)
{
    fy_tensor_t *y, *lse;
    ts_ok(fy_scaled_dot_product_attention(in[1], in[2], in[3], NULL, attrs, &y, &lse));
    ts_ok(fy_scaled_dot_product_attention_backward(in[0], in[1], in[2], in[3], y, lse, NULL, attrs,
                                                   &out[0], &out[1], &out[2]));
}

/* Head `head` of sample `sample`: a view of [B, T, H, D]. */
static fy_tensor_t *one_head(fy_tensor_t *x, int64_t sample, int64_t head)
{
    fy_tensor_t *slice;
    ts_ok(fy_slice(x, 0, sample, sample + 1, &slice));
    ts_ok(fy_slice(slice, 2, head, head + 1, &slice));
    return slice;
}

TS_DEVICE_TEST(heads_alone_are_the_same_bits)
{
    static const struct {
        int64_t rows, keys;
        int is_causal;
    } cases[] = { { 128, 128, 1 }, { 150, 150, 1 }, { 70, 130, 0 },
                  { 64, 150, 1 },  { 100, 150, 1 }, { 150, 70, 1 } };
    static grads_t together, alone;
    fy_tensor_t *rng, *in[4], *part[4], *out[3];
    ts_ok(fy_rng_create(ctx->device, 5, &rng));
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const fy_attention_attrs_t attrs = { 0, cases[c].is_causal };
        for (int i = 0; i < 4; i++) /* dy, q, k, v */
            ts_ok(fy_randn(rng, FY_DTYPE_F32,
                           FY_DIMS(SAMPLES, i < 2 ? cases[c].rows : cases[c].keys, HEADS, WIDTH), 0,
                           1, &in[i]));
        gradients(in, &attrs, out);
        for (int i = 0; i < 3; i++) ts_read(out[i], together[i], ts_info(out[i]).nbytes);
        for (int64_t pair = 0; pair < SAMPLES * HEADS; pair++) {
            const int64_t sample = pair / HEADS, head = pair % HEADS;
            for (int i = 0; i < 4; i++) part[i] = one_head(in[i], sample, head);
            gradients(part, &attrs, out);
            for (int i = 0; i < 3; i++) {
                const int64_t rows = i ? cases[c].keys : cases[c].rows;
                ts_read(out[i], alone[i], ts_info(out[i]).nbytes);
                for (int64_t r = 0; r < rows; r++)
                    assert_memory_equal(alone[i] + r * WIDTH,
                                        together[i] + ((sample * rows + r) * HEADS + head) * WIDTH,
                                        WIDTH * sizeof(float));
            }
        }
    }
}
