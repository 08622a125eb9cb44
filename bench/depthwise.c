/* The depthwise convolutions of MobileNetV3-Large at 224 x 224, each alone, on the host: forward,
 * with respect to the image, with respect to the weights.
 * Usage: depthwise [BATCH [REPEATS]]: images (16), timed calls of each (15). Medians, one JSON
 * document on standard output. Exit 0; 1: an op failed; 2: usage.
 * Not here: PyTorch beside it (depthwise_torch.py), whole steps (`ferry bench train`). */
#include <ferry/ferry.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MOST_REPEATS = 1000, PASSES = 3 };

typedef struct layer {
    int image, channels, kernel, stride, times; /* times: in the network */
} layer_t;

static const layer_t k_layers[] = {
    { 112, 16, 3, 1, 1 }, { 112, 64, 3, 2, 1 }, { 56, 72, 3, 1, 1 },  { 56, 72, 5, 2, 1 },
    { 28, 120, 5, 1, 2 }, { 28, 240, 3, 2, 1 }, { 14, 200, 3, 1, 1 }, { 14, 184, 3, 1, 2 },
    { 14, 480, 3, 1, 1 }, { 14, 672, 3, 1, 1 }, { 14, 672, 5, 2, 1 }, { 7, 960, 5, 1, 2 },
};
enum { LAYERS = sizeof k_layers / sizeof *k_layers };

typedef struct operands {
    fy_tensor_t *x, *w, *y;
    fy_conv2d_attrs_t attrs;
    int image, kernel;
} operands_t;

static fy_status_t call(const operands_t *in, int pass, fy_tensor_t **out)
{
    if (pass == 0) return fy_conv2d(in->x, in->w, NULL, &in->attrs, out);
    if (pass == 1)
        return fy_conv2d_backward_input(in->y, in->w, &in->attrs, in->image, in->image, out);
    return fy_conv2d_backward_weight(in->y, in->x, &in->attrs, in->kernel, in->kernel, out);
}

static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static fy_status_t time_pass(const operands_t *in, int pass, int repeats, double *out_ns)
{
    double times[MOST_REPEATS];
    fy_tensor_t *result;
    FY_TRY(call(in, pass, &result)); /* makes the primitive, touches the memory */
    fy_tensor_destroy(result);
    for (int i = 0; i < repeats; i++) {
        const double begin = now_ns();
        FY_TRY(call(in, pass, &result));
        times[i] = now_ns() - begin;
        fy_tensor_destroy(result);
    }
    qsort(times, (size_t)repeats, sizeof *times, compare);
    *out_ns = times[repeats / 2];
    return FY_STATUS_OK;
}

static fy_status_t run_layer(const layer_t *layer, int batch, int repeats, int is_last)
{
    static const char *const names[PASSES] = { "forward", "input", "weight" };
    const int out = (layer->image - 1) / layer->stride + 1;
    operands_t in = { .attrs = FY_CONV2D_ATTRS_INIT,
                      .image = layer->image,
                      .kernel = layer->kernel };
    fy_device_t *host = fy_device_host();
    fy_tensor_t *rng;
    in.attrs.stride_h = in.attrs.stride_w = layer->stride;
    in.attrs.padding_h = in.attrs.padding_w = layer->kernel / 2;
    in.attrs.groups = layer->channels;
    FY_TRY(fy_rng_create(host, 1, &rng));
    FY_TRY(fy_rand(rng, FY_DTYPE_F32, FY_DIMS(batch, layer->image, layer->image, layer->channels),
                   -1, 1, &in.x));
    FY_TRY(fy_rand(rng, FY_DTYPE_F32, FY_DIMS(layer->channels, layer->kernel, layer->kernel, 1), -1,
                   1, &in.w));
    FY_TRY(fy_rand(rng, FY_DTYPE_F32, FY_DIMS(batch, out, out, layer->channels), -1, 1, &in.y));
    printf("    { \"image\": %d, \"channels\": %d, \"kernel\": %d, \"stride\": %d, \"times\": %d",
           layer->image, layer->channels, layer->kernel, layer->stride, layer->times);
    for (int pass = 0; pass < PASSES; pass++) {
        double ns;
        FY_TRY(time_pass(&in, pass, repeats, &ns));
        printf(", \"%s_ns\": %.0f", names[pass], ns);
    }
    printf(" }%s\n", is_last ? "" : ",");
    return FY_STATUS_OK;
}

int main(int argc, char **argv)
{
    const long batch = argc > 1 ? strtol(argv[1], NULL, 10) : 16,
               repeats = argc > 2 ? strtol(argv[2], NULL, 10) : 15;
    fy_status_t status = FY_STATUS_OK;
    if (argc > 3 || batch < 1 || batch > 1024 || repeats < 1 || repeats > MOST_REPEATS) {
        fprintf(stderr, "usage: depthwise [BATCH [REPEATS]]   (1 to 1024, 1 to %d)\n",
                MOST_REPEATS);
        return 2;
    }
    printf("{\n  \"bench\": \"depthwise\",\n  \"clock\": \"wall\",\n  \"batch\": %ld,\n  "
           "\"repeats\": %ld,\n  \"rows\": [\n",
           batch, repeats);
    for (int i = 0; i < LAYERS && status == FY_STATUS_OK; i++) {
        fy_scope_t scope = fy_scope_begin("depthwise");
        status = run_layer(&k_layers[i], (int)batch, (int)repeats, i == LAYERS - 1);
        fy_scope_end(scope, 0, NULL);
    }
    printf("  ]\n}\n");
    if (status != FY_STATUS_OK) fprintf(stderr, "depthwise: %s\n", fy_error_get()->text);
    return status != FY_STATUS_OK;
}
