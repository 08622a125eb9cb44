/* Ten ops at sizes that fill a card, each alone: what `ncu` looks at (scripts/gpu-check.sh), and
 * their times and rates by the wall clock.
 * Usage: ten_kernels DEVICE [MEBI [REPEATS]]: tensors of MEBI * 2^20 elements (16), each op once,
 * then REPEATS times (20) between two waits for the device; with 0 nothing is timed. An op that
 * fails is reported, and the others run. One JSON document on standard output, a table on standard
 * error. Exit 0; 1: an op failed; 2: usage. Not here: small requests (dispatch_floor.c), the
 * driver's own calls (cuda_probe.c). */
#include <ferry/ferry.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { WIDTH = 4096, IMAGE = 28, CHANNELS = 32, FILTERS = 64, FEATURES = 1024 };

typedef struct inputs {
    fy_device_t *device;
    int64_t n;
    fy_tensor_t *flat, *other, *rows, *one_row, *targets, *images, *filters, *half_images,
        *half_filters, *half_rows, *half_weights, *dense;
    fy_tensor_t *turned; /* a view of rows */
} inputs_t;

/* ---- the ops ---- */

static fy_status_t add(const inputs_t *in, fy_tensor_t **out)
{
    return fy_add(in->flat, in->other, out);
}
static fy_status_t softmax_rows(const inputs_t *in, fy_tensor_t **out)
{
    return fy_softmax(in->rows, 1, out);
}
static fy_status_t softmax_one_row(const inputs_t *in, fy_tensor_t **out)
{
    return fy_softmax(in->one_row, 1, out);
}
static fy_status_t sum_rows(const inputs_t *in, fy_tensor_t **out)
{
    return fy_sum(in->rows, FY_AXES(1), 0, out);
}
static fy_status_t sum_columns(const inputs_t *in, fy_tensor_t **out)
{
    return fy_sum(in->rows, FY_AXES(0), 0, out);
}
static fy_status_t transposed_copy(const inputs_t *in, fy_tensor_t **out)
{
    *out = NULL;
    return fy_copy(in->dense, in->turned);
}
static fy_status_t cross_entropy(const inputs_t *in, fy_tensor_t **out)
{
    return fy_cross_entropy(in->rows, in->targets, FY_REDUCTION_MEAN, out);
}
static fy_status_t conv2d_f32(const inputs_t *in, fy_tensor_t **out)
{
    const fy_conv2d_attrs_t attrs = FY_CONV2D_ATTRS_INIT;
    return fy_conv2d(in->images, in->filters, NULL, &attrs, out);
}
static fy_status_t conv2d_bf16(const inputs_t *in, fy_tensor_t **out)
{
    const fy_conv2d_attrs_t attrs = FY_CONV2D_ATTRS_INIT;
    return fy_conv2d(in->half_images, in->half_filters, NULL, &attrs, out);
}
static fy_status_t linear_gelu_bf16(const inputs_t *in, fy_tensor_t **out)
{
    return fy_linear(in->half_rows, in->half_weights, NULL, FY_ACTIVATION_GELU, out);
}

typedef struct kernel {
    const char *name;
    fy_status_t (*call)(const inputs_t *in, fy_tensor_t **out);
    double bytes, flops; /* an element of the large tensor */
} kernel_t;

/* Each pixel of an image is multiplied with 9 x FILTERS weights (a little fewer at the border). */
static const kernel_t kernels[] = {
    { "add", add, 12, 1 },
    { "softmax_rows", softmax_rows, 8, 0 },
    { "softmax_one_row", softmax_one_row, 8, 0 },
    { "sum_rows", sum_rows, 4, 0 },
    { "sum_columns", sum_columns, 4, 0 },
    { "transposed_copy", transposed_copy, 8, 0 },
    { "cross_entropy", cross_entropy, 4, 0 },
    { "conv2d_f32", conv2d_f32, 4 + 4.0 * FILTERS / CHANNELS, 2.0 * 9 * FILTERS },
    { "conv2d_bf16", conv2d_bf16, 2 + 2.0 * FILTERS / CHANNELS, 2.0 * 9 * FILTERS },
    { "linear_gelu_bf16", linear_gelu_bf16, 4, 2.0 * FEATURES },
};
enum { KERNELS = sizeof kernels / sizeof *kernels };

static fy_status_t make_inputs(inputs_t *in)
{
    const int64_t n = in->n, images = n / (IMAGE * IMAGE * CHANNELS);
    fy_tensor_t *rng, *weights, *rows;
    FY_TRY(fy_rng_create(in->device, 1, &rng));
    FY_TRY(fy_rand(rng, FY_DTYPE_F32, FY_DIMS(n), -1, 1, &in->flat));
    FY_TRY(fy_rand(rng, FY_DTYPE_F32, FY_DIMS(n), -1, 1, &in->other));
    FY_TRY(fy_reshape(in->flat, FY_DIMS(n / WIDTH, WIDTH), &in->rows));
    FY_TRY(fy_reshape(in->flat, FY_DIMS(1, n), &in->one_row));
    FY_TRY(fy_transpose(in->rows, (const int[]){ 1, 0 }, &in->turned));
    FY_TRY(fy_full(in->device, FY_DTYPE_F32, FY_DIMS(WIDTH, n / WIDTH), 0, &in->dense));
    FY_TRY(fy_full(in->device, FY_DTYPE_I64, FY_DIMS(n / WIDTH), 1, &in->targets));
    FY_TRY(fy_rand(rng, FY_DTYPE_F32, FY_DIMS(images, IMAGE, IMAGE, CHANNELS), -1, 1, &in->images));
    FY_TRY(fy_rand(rng, FY_DTYPE_F32, FY_DIMS(FILTERS, 3, 3, CHANNELS), -1, 1, &in->filters));
    FY_TRY(fy_cast(in->images, FY_DTYPE_BF16, &in->half_images));
    FY_TRY(fy_cast(in->filters, FY_DTYPE_BF16, &in->half_filters));
    FY_TRY(fy_reshape(in->flat, FY_DIMS(n / FEATURES, FEATURES), &rows));
    FY_TRY(fy_cast(rows, FY_DTYPE_BF16, &in->half_rows));
    FY_TRY(fy_rand(rng, FY_DTYPE_F32, FY_DIMS(FEATURES, FEATURES), -1, 1, &weights));
    FY_TRY(fy_cast(weights, FY_DTYPE_BF16, &in->half_weights));
    return fy_device_wait(in->device, FY_FOREVER);
}

static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static fy_status_t repeat(const inputs_t *in, const kernel_t *kernel, int count)
{
    for (int i = 0; i < count; i++) {
        fy_tensor_t *result;
        FY_TRY(kernel->call(in, &result));
        if (result != NULL) fy_tensor_destroy(result);
    }
    return fy_device_wait(in->device, FY_FOREVER);
}

static fy_status_t time_one(const inputs_t *in, const kernel_t *kernel, int repeats, double *out_ns)
{
    FY_TRY(repeat(in, kernel, 1));
    const double begin = now_ns();
    if (repeats > 0) FY_TRY(repeat(in, kernel, repeats));
    *out_ns = repeats > 0 ? (now_ns() - begin) / repeats : 0;
    return FY_STATUS_OK;
}

/* Zeros where nothing was timed. */
static void print_row(const kernel_t *kernel, double n, double ns, int is_last)
{
    const double gb = ns > 0 ? kernel->bytes * n / ns : 0,
                 gflop = ns > 0 ? kernel->flops * n / ns : 0;
    fprintf(stderr, "%-20s%14.0f%12.1f%14.1f\n", kernel->name, ns, gb, gflop);
    printf(
        "    { \"what\": \"%s\", \"ns\": %.0f, \"bytes_per_s\": %.0f, \"flop_per_s\": %.0f }%s\n",
        kernel->name, ns, gb * 1e9, gflop * 1e9, is_last ? "" : ",");
}

static fy_status_t run(const char *spec, int64_t mebi, int repeats)
{
    inputs_t in = { .n = mebi << 20 };
    FY_TRY(fy_device_open(spec, &in.device));
    FY_TRY(make_inputs(&in));
    printf("{\n  \"bench\": \"ten_kernels\",\n  \"clock\": \"wall\",\n  \"device\": \"%s\",\n  "
           "\"elements\": %lld,\n  \"repeats\": %d,\n  "
           "\"rows\": [\n",
           fy_device_name(in.device), (long long)in.n, repeats);
    fprintf(stderr, "%-20s%14s%12s%14s\n", fy_device_name(in.device), "ns", "GB/s", "GFLOP/s");
    fy_status_t first = FY_STATUS_OK;
    for (int i = 0; i < KERNELS; i++) {
        double ns = 0;
        const fy_status_t status = time_one(&in, &kernels[i], repeats, &ns);
        if (status != FY_STATUS_OK)
            fprintf(stderr, "ten_kernels: %s: %s\n", kernels[i].name, fy_error_get()->text);
        if (first == FY_STATUS_OK) first = status;
        print_row(&kernels[i], (double)in.n, ns, i == KERNELS - 1);
    }
    printf("  ]\n}\n");
    return first;
}

int main(int argc, char **argv)
{
    const long mebi = argc > 2 ? strtol(argv[2], NULL, 10) : 16,
               repeats = argc > 3 ? strtol(argv[3], NULL, 10) : 20;
    if (argc < 2 || argc > 4 || mebi < 1 || mebi > 256 || repeats < 0 || repeats > 10000) {
        fprintf(
            stderr,
            "usage: ten_kernels DEVICE [MEBI [REPEATS]]   (MEBI 1 to 256, REPEATS 0 to 10000)\n");
        return 2;
    }
    fy_scope_t scope = fy_scope_begin("ten_kernels");
    const fy_status_t status = run(argv[1], mebi, (int)repeats);
    if (status != FY_STATUS_OK) fprintf(stderr, "ten_kernels: %s\n", fy_error_get()->text);
    fy_scope_end(scope, 0, NULL);
    return status != FY_STATUS_OK;
}
