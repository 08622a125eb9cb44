/* Kernels of a training step at sizes that fill a card, each alone: their times and rates by the
 * wall clock. scripts/gpu-check.sh runs it under `ncu`, and with cuDNN's log of declined
 * convolutions; gpu_torch.py has the same calls of PyTorch.
 * Usage: kernels DEVICE [MEBI [REPEATS [NAME...]]]: tensors of MEBI * 2^20 elements (16), each call
 * once, then REPEATS times (20), fewer if these take more than 0.2 s, between two waits for the
 * device; with 0 nothing is timed, and MEBI may be 1/2 to 1/16, with shorter sequences. NAME: only
 * these. A call that fails is reported, and the others run. One JSON document on standard output, a
 * table on standard error, whose lines ptx_cost.py needs: one behind the inputs, one behind a call.
 * Exit 0; 1: a call failed; 2: usage. Not here: small requests (dispatch_floor.c), the driver's own
 * calls (cuda_probe.c). */
#include <ferry/ferry.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Those of gpu_torch.py. */
enum {
    WIDTH = 1024,
    CLASSES = 50257,
    IMAGE = 32,
    CHANNELS = 64,
    ROWS = 1024,
    HEADS = 8,
    HEAD = 64,
    WIDE_HEAD = 128
};

typedef struct inputs {
    fy_device_t *device;
    int64_t n;
    fy_tensor_t *flat, *other, *matrix, *turned, *dense; /* f32; turned is a view of matrix */
    fy_tensor_t *param, *exp_avg, *exp_avg_sq, *step_number, *lr;
    fy_tensor_t *images, *filters; /* f32 */
    /* bf16 from here, but for statistics and parameters of norms */
    fy_tensor_t *half, *half_rows, *half_images, *half_filters, *half_depthwise, *half_pooled,
        *half_weights, *half_heads, *half_wide_heads;
    fy_tensor_t *scores, *targets, *slope;
    fy_tensor_t *gain, *shift, *row_mean, *row_rstd, *row_rms, *channel_gain, *channel_shift,
        *channel_mean, *channel_rstd, *running_mean, *running_var, *normed;
    fy_tensor_t *attended, *lse, *wide_attended, *wide_lse;
} inputs_t;

static const fy_attention_attrs_t causal = { .is_causal = 1 };
static const fy_pool2d_attrs_t pooling = {
    .kernel_h = 3, .kernel_w = 3, .stride_h = 2, .stride_w = 2, .padding_h = 1, .padding_w = 1
};
static const fy_batch_norm_attrs_t norming = { 0.1, 1e-5, FY_ACTIVATION_RELU };
/* Images keep their size. */
static const fy_conv2d_attrs_t same = { 1, 1, 1, 1, 1, 1, 1, FY_ACTIVATION_NONE },
                               same_depthwise = { 1, 1, 1, 1, 1, 1, CHANNELS, FY_ACTIVATION_NONE };

/* ---- the calls: X(name, bytes and flops an element of the large tensor, call); what they return
 * belongs to the scope around them ---- */

#define KERNEL_LIST(X)                                                                             \
    X(add, 12, 1, fy_add(in->flat, in->other, &a))                                                 \
    X(add_bf16, 6, 1, fy_add(in->half, in->half, &a))                                              \
    X(relu, 4, 0, fy_relu(in->half, &a))                                                           \
    X(softmax, 8, 0, fy_softmax(in->matrix, 1, &a))                                                \
    X(sum_columns, 4, 0, fy_sum(in->matrix, FY_AXES(0), 0, &a))                                    \
    X(transposed_copy, 8, 0, fy_copy(in->dense, in->turned))                                       \
    X(adam_step, 28, 0,                                                                            \
      fy_adam_step(in->param, in->other, in->exp_avg, in->exp_avg_sq, in->step_number, in->lr,     \
                   NULL))                                                                          \
    X(gelu_tanh, 4, 0, fy_gelu_tanh(in->half, &a))                                                 \
    X(gelu_tanh_backward, 6, 0, fy_gelu_tanh_backward(in->half, in->half, &a))                     \
    X(cross_entropy, 2, 0, fy_cross_entropy(in->scores, in->targets, FY_REDUCTION_MEAN, &a))       \
    X(cross_entropy_backward, 4, 0,                                                                \
      fy_cross_entropy_backward(in->slope, in->scores, in->targets, FY_REDUCTION_MEAN, &a))        \
    X(layer_norm, 4, 0, fy_layer_norm(in->half_rows, in->gain, in->shift, 1e-5, &a, &b, &c))       \
    X(layer_norm_backward, 6, 0,                                                                   \
      fy_layer_norm_backward(in->half_rows, in->half_rows, in->row_mean, in->row_rstd, in->gain,   \
                             &a, &b, &c))                                                          \
    X(rms_norm, 4, 0, fy_rms_norm(in->half_rows, in->gain, 1e-5, &a, &b))                          \
    X(rms_norm_backward, 6, 0,                                                                     \
      fy_rms_norm_backward(in->half_rows, in->half_rows, in->row_rms, in->gain, &a, &b))           \
    X(batch_norm, 6, 0,                                                                            \
      fy_batch_norm(in->half_images, in->channel_gain, in->channel_shift, NULL, in->running_mean,  \
                    in->running_var, &norming, &a, &b, &c))                                        \
    X(batch_norm_backward, 14, 0,                                                                  \
      fy_batch_norm_backward(in->half_images, in->half_images, in->channel_gain, in->channel_mean, \
                             in->channel_rstd, in->normed, &a, &b, &c))                            \
    X(max_pool, 2.5, 0, fy_max_pool2d(in->half_images, &pooling, &a))                              \
    X(max_pool_backward, 4.5, 0,                                                                   \
      fy_max_pool2d_backward(in->half_pooled, in->half_images, &pooling, &a))                      \
    X(depthwise, 4, 18, fy_conv2d(in->half_images, in->half_depthwise, NULL, &same_depthwise, &a)) \
    X(depthwise_input, 4, 18,                                                                      \
      fy_conv2d_backward_input(in->half_images, in->half_depthwise, &same_depthwise, IMAGE, IMAGE, \
                               &a))                                                                \
    X(depthwise_weight, 4, 18,                                                                     \
      fy_conv2d_backward_weight(in->half_images, in->half_images, &same_depthwise, 3, 3, &a))      \
    X(conv2d_f32, 8, 18.0 * CHANNELS, fy_conv2d(in->images, in->filters, NULL, &same, &a))         \
    X(conv2d, 4, 18.0 * CHANNELS, fy_conv2d(in->half_images, in->half_filters, NULL, &same, &a))   \
    X(conv2d_input, 4, 18.0 * CHANNELS,                                                            \
      fy_conv2d_backward_input(in->half_images, in->half_filters, &same, IMAGE, IMAGE, &a))        \
    X(conv2d_weight, 4, 18.0 * CHANNELS,                                                           \
      fy_conv2d_backward_weight(in->half_images, in->half_images, &same, 3, 3, &a))                \
    X(linear_gelu, 4, 2.0 * WIDTH,                                                                 \
      fy_linear(in->half_rows, in->half_weights, NULL, FY_ACTIVATION_GELU, &a))                    \
    X(attention, 8, 2.0 * ROWS,                                                                    \
      fy_scaled_dot_product_attention(in->half_heads, in->half_heads, in->half_heads, NULL,        \
                                      &causal, &a, &b))                                            \
    X(attention_backward, 16, 5.0 * ROWS,                                                          \
      fy_scaled_dot_product_attention_backward(in->half_heads, in->half_heads, in->half_heads,     \
                                               in->half_heads, in->attended, in->lse, NULL,        \
                                               &causal, &a, &b, &c))                               \
    X(attention_128, 8, 2.0 * ROWS,                                                                \
      fy_scaled_dot_product_attention(in->half_wide_heads, in->half_wide_heads,                    \
                                      in->half_wide_heads, NULL, &causal, &a, &b))                 \
    X(attention_128_backward, 16, 5.0 * ROWS,                                                      \
      fy_scaled_dot_product_attention_backward(                                                    \
          in->half_wide_heads, in->half_wide_heads, in->half_wide_heads, in->half_wide_heads,      \
          in->wide_attended, in->wide_lse, NULL, &causal, &a, &b, &c))

#define X(name, bytes, flops, call)                    \
    static fy_status_t call_##name(const inputs_t *in) \
    {                                                  \
        fy_tensor_t *a, *b, *c;                        \
        (void)a, (void)b, (void)c;                     \
        return call;                                   \
    }
KERNEL_LIST(X)
#undef X

typedef struct kernel {
    const char *name;
    double bytes, flops;
    fy_status_t (*call)(const inputs_t *in);
} kernel_t;
#define X(name, bytes, flops, call) { #name, bytes, flops, call_##name },
static const kernel_t kernels[] = { KERNEL_LIST(X) };
#undef X
enum { KERNELS = sizeof kernels / sizeof *kernels };

/* ---- what they work on ---- */

static fy_status_t make_f32(inputs_t *in, fy_tensor_t *rng)
{
    const int64_t n = in->n, images = n / (IMAGE * IMAGE * CHANNELS);
    FY_TRY(fy_rand(rng, FY_DTYPE_F32, FY_DIMS(n), -1, 1, &in->flat));
    FY_TRY(fy_rand(rng, FY_DTYPE_F32, FY_DIMS(n), -1, 1, &in->other));
    FY_TRY(fy_rand(rng, FY_DTYPE_F32, FY_DIMS(n), -1, 1, &in->param));
    FY_TRY(fy_full(in->device, FY_DTYPE_F32, FY_DIMS(n), 0, &in->exp_avg));
    FY_TRY(fy_full(in->device, FY_DTYPE_F32, FY_DIMS(n), 0, &in->exp_avg_sq));
    FY_TRY(fy_full(in->device, FY_DTYPE_I64, 0, NULL, 0, &in->step_number));
    FY_TRY(fy_full(in->device, FY_DTYPE_F32, 0, NULL, 1e-3, &in->lr));
    FY_TRY(fy_reshape(in->flat, FY_DIMS(n / WIDTH, WIDTH), &in->matrix));
    FY_TRY(fy_transpose(in->matrix, (const int[]){ 1, 0 }, &in->turned));
    FY_TRY(fy_full(in->device, FY_DTYPE_F32, FY_DIMS(WIDTH, n / WIDTH), 0, &in->dense));
    FY_TRY(fy_reshape(in->flat, FY_DIMS(images, IMAGE, IMAGE, CHANNELS), &in->images));
    return fy_rand(rng, FY_DTYPE_F32, FY_DIMS(CHANNELS, 3, 3, CHANNELS), -1, 1, &in->filters);
}

static fy_status_t make_half(inputs_t *in, fy_tensor_t *rng)
{
    const int64_t n = in->n, rows = n / CLASSES, width = HEADS * HEAD,
                  sequence = n < ROWS * width ? n / width : ROWS;
    fy_tensor_t *weights, *depthwise, *scores;
    FY_TRY(fy_cast(in->flat, FY_DTYPE_BF16, &in->half));
    FY_TRY(fy_reshape(in->half, FY_DIMS(n / WIDTH, WIDTH), &in->half_rows));
    FY_TRY(fy_reshape(in->half, FY_DIMS(n / (IMAGE * IMAGE * CHANNELS), IMAGE, IMAGE, CHANNELS),
                      &in->half_images));
    FY_TRY(fy_reshape(in->half, FY_DIMS(n / (sequence * width), sequence, HEADS, HEAD),
                      &in->half_heads));
    FY_TRY(fy_reshape(in->half,
                      FY_DIMS(n / (sequence * width), sequence, width / WIDE_HEAD, WIDE_HEAD),
                      &in->half_wide_heads));
    FY_TRY(fy_cast(in->filters, FY_DTYPE_BF16, &in->half_filters));
    FY_TRY(fy_rand(rng, FY_DTYPE_F32, FY_DIMS(CHANNELS, 3, 3, 1), -1, 1, &depthwise));
    FY_TRY(fy_cast(depthwise, FY_DTYPE_BF16, &in->half_depthwise));
    FY_TRY(fy_rand(rng, FY_DTYPE_F32, FY_DIMS(WIDTH, WIDTH), -1, 1, &weights));
    FY_TRY(fy_cast(weights, FY_DTYPE_BF16, &in->half_weights));
    FY_TRY(fy_rand(rng, FY_DTYPE_F32, FY_DIMS(rows, CLASSES), -1, 1, &scores));
    FY_TRY(fy_cast(scores, FY_DTYPE_BF16, &in->scores));
    FY_TRY(fy_full(in->device, FY_DTYPE_I64, FY_DIMS(rows), 1, &in->targets));
    return fy_full(in->device, FY_DTYPE_BF16, 0, NULL, 1, &in->slope);
}

/* What the gradients need of the calls before them. */
static fy_status_t make_results(inputs_t *in)
{
    fy_tensor_t *rows;
    FY_TRY(fy_full(in->device, FY_DTYPE_BF16, FY_DIMS(WIDTH), 1, &in->gain));
    FY_TRY(fy_full(in->device, FY_DTYPE_BF16, FY_DIMS(WIDTH), 0, &in->shift));
    FY_TRY(fy_full(in->device, FY_DTYPE_F32, FY_DIMS(CHANNELS), 1, &in->channel_gain));
    FY_TRY(fy_full(in->device, FY_DTYPE_F32, FY_DIMS(CHANNELS), 0, &in->channel_shift));
    FY_TRY(fy_full(in->device, FY_DTYPE_F32, FY_DIMS(CHANNELS), 0, &in->running_mean));
    FY_TRY(fy_full(in->device, FY_DTYPE_F32, FY_DIMS(CHANNELS), 1, &in->running_var));
    FY_TRY(fy_layer_norm(in->half_rows, in->gain, in->shift, 1e-5, &rows, &in->row_mean,
                         &in->row_rstd));
    FY_TRY(fy_rms_norm(in->half_rows, in->gain, 1e-5, &rows, &in->row_rms));
    FY_TRY(fy_batch_norm(in->half_images, in->channel_gain, in->channel_shift, NULL,
                         in->running_mean, in->running_var, &norming, &in->normed,
                         &in->channel_mean, &in->channel_rstd));
    FY_TRY(fy_max_pool2d(in->half_images, &pooling, &in->half_pooled));
    FY_TRY(fy_scaled_dot_product_attention(in->half_heads, in->half_heads, in->half_heads, NULL,
                                           &causal, &in->attended, &in->lse));
    return fy_scaled_dot_product_attention(in->half_wide_heads, in->half_wide_heads,
                                           in->half_wide_heads, NULL, &causal, &in->wide_attended,
                                           &in->wide_lse);
}

/* ---- their times ---- */

static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static fy_status_t repeat(const inputs_t *in, const kernel_t *kernel, int count, double *out_ns)
{
    const double begin = now_ns();
    for (int i = 0; i < count; i++) {
        fy_scope_t scope = fy_scope_begin(kernel->name);
        const fy_status_t status = kernel->call(in);
        fy_scope_end(scope, 0, NULL);
        FY_TRY(status);
    }
    FY_TRY(fy_device_wait(in->device, FY_FOREVER));
    *out_ns = count > 0 ? (now_ns() - begin) / count : 0;
    return FY_STATUS_OK;
}

static fy_status_t time_one(const inputs_t *in, const kernel_t *kernel, int repeats, double *out_ns)
{
    FY_TRY(repeat(in, kernel, 1, out_ns));
    FY_TRY(repeat(in, kernel, repeats > 0, out_ns));
    if (*out_ns * repeats > 2e8) repeats = *out_ns > 1e8 ? 1 : (int)(2e8 / *out_ns);
    return repeat(in, kernel, repeats, out_ns);
}

/* Zeros where nothing was timed. */
static void print_row(const kernel_t *kernel, double n, double ns, int is_first)
{
    const double gb = ns > 0 ? kernel->bytes * n / ns : 0,
                 gflop = ns > 0 ? kernel->flops * n / ns : 0;
    fprintf(stderr, "%-24s%14.0f%12.1f%14.1f\n", kernel->name, ns, gb, gflop);
    printf("%s\n    { \"what\": \"%s\", \"ns\": %.0f, \"bytes_per_s\": %.0f, \"flop_per_s\": %.0f, "
           "\"bytes_per_element\": %g }",
           is_first ? "" : ",", kernel->name, ns, gb * 1e9, gflop * 1e9, kernel->bytes);
    fflush(stdout);
}

static int is_asked(const char *name, char **names, int count)
{
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0) return 1;
    return count == 0;
}

static fy_status_t run(const char *spec, int64_t n, int repeats, char **names, int count)
{
    inputs_t in = { .n = n };
    fy_tensor_t *rng;
    FY_TRY(fy_device_open(spec, &in.device));
    FY_TRY(fy_rng_create(in.device, 1, &rng));
    FY_TRY(make_f32(&in, rng));
    FY_TRY(make_half(&in, rng));
    FY_TRY(make_results(&in));
    FY_TRY(fy_device_wait(in.device, FY_FOREVER));
    printf("{\n  \"bench\": \"kernels\",\n  \"clock\": \"wall\",\n  \"device\": \"%s\",\n  "
           "\"elements\": %lld,\n  \"repeats\": %d,\n  \"rows\": [",
           fy_device_name(in.device), (long long)in.n, repeats);
    fprintf(stderr, "%-24s%14s%12s%14s\n", fy_device_name(in.device), "ns", "GB/s", "GFLOP/s");
    fy_status_t first = FY_STATUS_OK;
    for (int i = 0, printed = 0; i < KERNELS; i++) {
        double ns = 0;
        if (!is_asked(kernels[i].name, names, count)) continue;
        const fy_status_t status = time_one(&in, &kernels[i], repeats, &ns);
        if (status != FY_STATUS_OK)
            fprintf(stderr, "kernels: %s: %s\n", kernels[i].name, fy_error_get()->text);
        if (first == FY_STATUS_OK) first = status;
        print_row(&kernels[i], (double)in.n, ns, printed++ == 0);
    }
    printf("\n  ]\n}\n");
    return first;
}

int main(int argc, char **argv)
{
    const char *const part = argc > 2 ? strchr(argv[2], '/') : NULL;
    const long mebi = argc > 2 ? strtol(argv[2], NULL, 10) : 16,
               parts = part != NULL ? strtol(part + 1, NULL, 10) : 1,
               repeats = argc > 3 ? strtol(argv[3], NULL, 10) : 20;
    const int is_part = mebi == 1 && repeats == 0 &&
                        (parts == 2 || parts == 4 || parts == 8 || parts == 16);
    int known = argc > 1;
    for (int i = 4, k; i < argc; i++) {
        for (k = 0; k < KERNELS && strcmp(kernels[k].name, argv[i]) != 0; k++) {}
        known &= k < KERNELS;
    }
    if (!known || mebi < 1 || mebi > 256 || repeats < 0 || repeats > 10000 ||
        (parts != 1 && !is_part)) {
        fprintf(stderr,
                "usage: kernels DEVICE [MEBI [REPEATS [NAME...]]]   (MEBI 1 to 256, or with "
                "REPEATS 0 1/2, 1/4, 1/8, 1/16; REPEATS 0 to 10000)\n");
        return 2;
    }
    fy_scope_t scope = fy_scope_begin("kernels");
    const fy_status_t status = run(argv[1], ((int64_t)mebi << 20) / parts, (int)repeats, argv + 4,
                                   argc > 4 ? argc - 4 : 0);
    if (status != FY_STATUS_OK) fprintf(stderr, "kernels: %s\n", fy_error_get()->text);
    fy_scope_end(scope, 0, NULL);
    return status != FY_STATUS_OK;
}
