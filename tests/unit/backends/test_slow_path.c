/* No slow path is silent: the training step of a known model runs no convolution in the plain
 * loops, and a convolution that does is logged once, as is the first product that oneDNN refuses.
 * Not here: that both implementations give the same results (test_conv.c). */

#include <ferry/train/model.h>

#include "tests/support/harness.h"

#if FERRY_DNNL_MAJOR > 0
#include "backends/kernels/dnnl.h"
#endif
#include "backends/kernels/last_product.h"
#include "backends/kernels/slow_path.h"

static int nlines;
static char first_line[512];

static void count_lines(void *user, fy_log_level_t level, const char *text)
{
    (void)user;
    (void)level;
    if (!strstr(text, "plain loops")) return;
    if (nlines++ == 0) snprintf(first_line, sizeof first_line, "%s", text);
}

/* A build with -DFERRY_DNNL=OFF runs these convolutions in plain loops, and logs each of them. */
static int lacks_onednn(void)
{
    if (FERRY_DNNL_MAJOR == 0) print_message("           built without oneDNN: skipped\n");
    return FERRY_DNNL_MAJOR == 0;
}

static void begin(void)
{
    fy__slow_path_forget();
    nlines = 0;
    first_line[0] = 0;
    fy_log_set(count_lines, NULL);
}

static void end(void) { fy_log_set(NULL, NULL); }

/* ---- the known models ---- */

static void train_one_step(ts_ctx_t *ctx, const char *name, int64_t batch)
{
    fy_tensor_t *rng, *x, *y, *loss, *target;
    fy_tape_t *tape;
    fy_model_t *model;
    const int is_linear = strcmp(name, "linear") == 0;
    fy_scope_t scope = fy_scope_begin("step");
    ts_ok(fy_rng_create(ctx->device, 4, &rng));
    ts_ok(fy_model_open(ctx->device, name, NULL, &model));
    ts_ok(fy_tape_create(&tape));
    ts_ok(fy_model_watch(model, tape));
    ts_ok(is_linear ? fy_rand(rng, FY_DTYPE_F32, FY_DIMS(batch, 5), -1, 1, &x)
                    : fy_rand(rng, FY_DTYPE_F32, FY_DIMS(batch, 28, 28, 1), -1, 1, &x));
    ts_ok(fy_tape_begin(tape));
    ts_ok(fy_model_forward(model, x, &y));
    if (is_linear) {
        ts_ok(fy_mean(y, FY_AXES(0, 1), 0, &loss));
    } else {
        ts_ok(fy_zeros(ctx->device, FY_DTYPE_I64, FY_DIMS(batch), &target));
        ts_ok(fy_cross_entropy(y, target, FY_REDUCTION_MEAN, &loss));
    }
    ts_ok(fy_model_backward(model, tape, loss, NULL));
    fy_model_destroy(model);
    fy_scope_end(scope, 0, NULL);
}

TS_DEVICE_TEST(known_models_run_nothing_in_plain_loops)
{
    static const int64_t batches[] = { 1, 64, 256 };
    const char *name;
    if (lacks_onednn()) skip();
    begin();
    for (size_t i = 0; (name = fy_model_name_at(i)) && strcmp(name, "resnet18") != 0; i++) {
        for (size_t b = 0; b < sizeof batches / sizeof *batches; b++) {
            train_one_step(ctx, name, batches[b]);
            if (nlines)
                print_error("%s, batch %lld: %s\n", name, (long long)batches[b], first_line);
            assert_int_equal(nlines, 0);
        }
    }
    end();
}

/* ---- convolutions that run in the plain loops ---- */

static fy_tensor_t *convolve(ts_ctx_t *ctx, fy_dtype_t dtype, int64_t size, int is_strided)
{
    fy_tensor_t *x, *w, *y;
    const fy_conv2d_attrs_t attrs = FY_CONV2D_ATTRS_INIT;
    ts_ok(fy_zeros(ctx->device, dtype, FY_DIMS(2, size, size, 16), &x));
    ts_ok(fy_zeros(ctx->device, dtype, FY_DIMS(16, 3, 3, 16), &w));
    if (is_strided) ts_ok(fy_transpose(x, (const int[]){ 0, 2, 1, 3 }, &x));
    ts_ok(fy_conv2d(x, w, NULL, &attrs, &y));
    return y;
}

TS_DEVICE_TEST(a_strided_convolution_is_logged_once)
{
    if (lacks_onednn()) skip();
    begin();
    convolve(ctx, FY_DTYPE_F32, 12, 0);
    assert_int_equal(nlines, 0);
    convolve(ctx, FY_DTYPE_F32, 12, 1);
    convolve(ctx, FY_DTYPE_F32, 12, 1);
    assert_int_equal(nlines, 1);
    assert_non_null(strstr(
        first_line, "conv2d 3x3, 2 x [12x12x16] to [10x10x16], 1 groups, runs in plain loops"));
    assert_non_null(strstr(first_line, "strided"));
    convolve(ctx, FY_DTYPE_F32, 14, 1);
    assert_int_equal(nlines, 2);
    end();
}

TS_DEVICE_TEST(small_and_unusual_convolutions_are_not_logged)
{
    if (lacks_onednn()) skip();
    begin();
    convolve(ctx, FY_DTYPE_F64, 12, 1);
    convolve(ctx, FY_DTYPE_F16, 12, 0);
    convolve(ctx, FY_DTYPE_F32, 3, 1); /* 4,608 products */
    assert_int_equal(nlines, 0);
    end();
}

TS_DEVICE_TEST(lines_are_bounded)
{
    begin();
    for (int64_t size = 12; size < 12 + 2 * FY__SLOW_PATH_MOST; size++) {
        fy_scope_t scope = fy_scope_begin("one");
        convolve(ctx, FY_DTYPE_F32, size, 1);
        fy_scope_end(scope, 0, NULL);
    }
    assert_int_equal(nlines, FY__SLOW_PATH_MOST + 1);
    end();
}

/* ---- the description of the host ---- */

typedef struct facts {
    char onednn[64], threads[96], isa[64], last[64];
} facts_t;

static void note(void *user, const char *key, const char *value)
{
    facts_t *facts = user;
    if (strcmp(key, "onednn") == 0) snprintf(facts->onednn, sizeof facts->onednn, "%s", value);
    if (strcmp(key, "onednn_threads") == 0)
        snprintf(facts->threads, sizeof facts->threads, "%s", value);
    if (strcmp(key, "onednn_isa") == 0) snprintf(facts->isa, sizeof facts->isa, "%s", value);
    if (strcmp(key, "last_product") == 0) snprintf(facts->last, sizeof facts->last, "%s", value);
}

TS_DEVICE_TEST(the_host_reports_its_libraries)
{
    facts_t facts = { "", "", "", "" };
    fy_tensor_t *a, *c;
    if (!ctx->is_host || lacks_onednn()) skip();
    ts_ok(fy_zeros(ctx->device, FY_DTYPE_F32, FY_DIMS(128, 128), &a));
    ts_ok(fy_matmul(a, a, &c));
    ts_ok(fy_device_describe(ctx->device, note, &facts));
    assert_int_equal(facts.onednn[0], '0' + FERRY_DNNL_MAJOR);
    assert_int_equal(facts.onednn[1], '.');
    /* Debian's; another one is a reason to check */
    assert_non_null(strstr(facts.threads, "OpenMP, lib"));
    assert_true(facts.isa[0] != 0);
    assert_string_equal(facts.last, "oneDNN sgemm");
    convolve(ctx, FY_DTYPE_F32, 12, 0);
    ts_ok(fy_device_describe(ctx->device, note, &facts));
    print_message("           oneDNN %s, threads by %s, %s; a convolution by %s\n", facts.onednn,
                  facts.threads, facts.isa, facts.last);
    assert_null(strstr(facts.last, "ref"));
    assert_string_not_equal(facts.last, "plain loops");
    convolve(ctx, FY_DTYPE_F64, 12, 0);
    ts_ok(fy_device_describe(ctx->device, note, &facts));
    assert_string_equal(facts.last, "plain loops");
}

#if FERRY_DNNL_MAJOR > 0
/* As oneDNN does where its symbols are bound to another library. */
static dnnl_status_t refuse_sgemm(char ta, char tb, dnnl_dim_t m, dnnl_dim_t n, dnnl_dim_t k,
                                  float alpha, const float *a, dnnl_dim_t lda, const float *b,
                                  dnnl_dim_t ldb, float beta, float *c, dnnl_dim_t ldc)
{
    (void)ta, (void)tb, (void)m, (void)n, (void)k, (void)alpha, (void)a, (void)lda, (void)b;
    (void)ldb, (void)beta, (void)c, (void)ldc;
    return dnnl_unimplemented;
}

TS_DEVICE_TEST(a_refused_product_is_computed_and_logged_once)
{
    facts_t facts = { "", "", "", "" };
    fy_tensor_t *c;
    float values[96 * 80];
    if (!ctx->is_host) skip();
    fy_tensor_t *a = ts_full(ctx->device, FY_DIMS(96, 5000), 2),
                *b = ts_full(ctx->device, FY_DIMS(5000, 80), 0.5);
    begin();
    assert_true(fy__dnnl_open());
    fy__dnnl.sgemm = refuse_sgemm;
    for (int i = 0; i < 2; i++) {
        ts_ok(fy_matmul(a, b, &c));
        ts_read(c, values, sizeof values);
        for (size_t j = 0; j < sizeof values / sizeof *values; j++)
            assert_true(values[j] == 5000.0f);
    }
    assert_int_equal(nlines, 1);
    assert_non_null(strstr(first_line, "matmul 96 x 80 x 5000 ran in Ferry's plain loops"));
    ts_ok(fy_device_describe(ctx->device, note, &facts));
    assert_string_equal(facts.last, "plain loops");
    end();
}
#endif

/* In a build without it: the reason is in the facts and in the log. */
TS_DEVICE_TEST(missing_onednn_is_reported)
{
    facts_t facts = { "", "", "", "" };
    if (!ctx->is_host || FERRY_DNNL_MAJOR > 0) skip();
    begin();
    convolve(ctx, FY_DTYPE_F32, 12, 0);
    assert_int_equal(nlines, 1);
    assert_non_null(strstr(first_line, "built without oneDNN"));
    end();
    ts_ok(fy_device_describe(ctx->device, note, &facts));
    assert_int_equal(strncmp(facts.onednn, "none: built with FERRY_DNNL=OFF", 31), 0);
    assert_string_equal(facts.last, "plain loops");
}
