/* Each driver call of a training fails in turn, once and from then on, with a transient code and
 * with one that loses the device. The training runs from opening the device to closing it, with
 * uploads of each kind, steps with an optimizer, a graph, downloads. After each failure the status
 * is a documented one, the device continues (or is lost permanently), and after its close the
 * driver holds no resource of Ferry.
 * Not here: the slots one by one (tests/unit/cuda/test_driver.c, test_codes.c). */
#include <ferry/train/model.h>
#include <ferry/train/optimizer.h>

#include "tests/support/fake_driver.h"

enum { BATCH = 4, IN = 6, HIDDEN = 8, OUT = 3 };

typedef struct session {
    fy_device_t *device;
    fy_model_t *model;
    fy_optimizer_t *optimizer;
    fy_tape_t *tape;
} session_t;

static fy_status_t make_model(session_t *s)
{
    fy_layer_t *first, *act, *second, *all;
    fy_model_info_t info = FY_MODEL_INFO_INIT;
    FY_TRY(fy_layer_linear(IN, HIDDEN, NULL, &first));
    FY_TRY(fy_layer_op("relu", &act));
    FY_TRY(fy_layer_linear(HIDDEN, OUT, NULL, &second));
    FY_TRY(fy_layer_sequential(
        3, (fy_layer_child_t[]){ { "a", first }, { "b", act }, { "c", second } }, &all));
    fy_status_t status = fy_model_create(s->device, all, FY_DIMS(IN), NULL, &s->model);
    if (status != FY_STATUS_OK) {
        fy_layer_destroy(all);
        return status;
    }
    FY_TRY(fy_model_query(s->model, &info));
    FY_TRY(fy_tape_create(&s->tape));
    FY_TRY(fy_model_watch(s->model, s->tape));
    fy_optimizer_options_t options;
    fy_optimizer_defaults(FY_OPTIMIZER_ADAM, &options, sizeof options);
    return fy_optimizer_create(&options, 1, &info.values, &info.grads, &s->optimizer);
}

static fy_status_t step(session_t *s, fy_tensor_t *x, fy_tensor_t *y, fy_tensor_t *total)
{
    fy_tensor_t *logits, *loss;
    FY_TRY(fy_tape_begin(s->tape));
    FY_TRY(fy_model_forward(s->model, x, &logits));
    FY_TRY(fy_cross_entropy(logits, y, FY_REDUCTION_MEAN, &loss));
    FY_TRY(fy_model_backward(s->model, s->tape, loss, NULL));
    FY_TRY(fy_optimizer_step(s->optimizer));
    return fy_axpy(total, 1, loss);
}

static fy_status_t scoped_step(session_t *s, fy_tensor_t *x, fy_tensor_t *y, fy_tensor_t *total)
{
    fy_scope_t scope = fy_scope_begin("step");
    const fy_status_t status = step(s, x, y, total);
    fy_scope_end(scope, 0, NULL);
    return status;
}

static fy_status_t graph_steps(session_t *s, fy_tensor_t *x, fy_tensor_t *y, fy_tensor_t *total)
{
    fy_graph_t *graph;
    FY_TRY(fy_graph_begin(s->device));
    const fy_status_t status = step(s, x, y, total), end = fy_graph_end(&graph);
    FY_TRY(status);
    FY_TRY(end);
    for (int i = 0; i < 3; i++) FY_TRY(fy_graph_replay(graph, NULL));
    return FY_STATUS_OK;
}

/* Data: x by COPY, a pinned tensor by BORROW, two small ones packed. */
static fy_status_t upload(session_t *s, fy_tensor_t **out_x, fy_tensor_t **out_y)
{
    static const int64_t classes[BATCH] = { 0, 1, 2, 1 };
    static float values[BATCH * IN] = { 1, 2, 3, 4, 5, 6 };
    fy_tensor_t *host, *pinned, *few[2], *sum;
    fy_transfer_options_t borrow = FY_TRANSFER_OPTIONS_INIT;
    void *data;
    borrow.contract = FY_HOST_BORROW;
    FY_TRY(fy_tensor_create(fy_device_host(), FY_DTYPE_I64, FY_DIMS(BATCH), &host));
    FY_TRY(fy_tensor_map(host, FY_ACCESS_WRITE, &data));
    memcpy(data, classes, sizeof classes);
    FY_TRY(fy_tensor_upload(host, s->device, NULL, out_y));
    FY_TRY(fy_tensor_create_pinned(s->device, FY_DTYPE_F32, FY_DIMS(BATCH, IN), &pinned));
    FY_TRY(fy_tensor_map(pinned, FY_ACCESS_WRITE, &data));
    memcpy(data, values, sizeof values);
    FY_TRY(fy_tensor_upload(pinned, s->device, &borrow, out_x));
    FY_TRY(fy_tensor_upload_many(2, (fy_tensor_t *[]){ pinned, pinned }, s->device, NULL, few));
    FY_TRY(fy_add(few[0], few[1], &sum));
    return fy_axpy(*out_x, 0.5, sum);
}

/* A second stream, which waits for the first; the first then waits for it. */
static fy_status_t side(session_t *s, fy_tensor_t *total)
{
    fy_stream_t *stream;
    fy_tensor_t *twice;
    fy_ticket_t ticket;
    FY_TRY(fy_stream_create(s->device, NULL, &stream));
    fy_scope_t scope = fy_scope_begin("side");
    fy_status_t status = fy_stream_set_current(stream);
    if (status == FY_STATUS_OK) status = fy_affine(total, 2, 0, &twice);
    if (status == FY_STATUS_OK) status = fy_stream_record(stream, &ticket);
    fy_scope_end(scope, status == FY_STATUS_OK, &twice);
    FY_TRY(status);
    FY_TRY(fy_ticket_wait(ticket, FY_FOREVER));
    return fy_axpy(total, -0.25, twice); /* total / 2 */
}

static fy_status_t train(session_t *s, double *out_loss)
{
    fy_tensor_t *x, *y, *total, *rng, *noise;
    fy_download_t *download;
    FY_TRY(fy_zeros(s->device, FY_DTYPE_F32, 0, NULL, &total));
    FY_TRY(upload(s, &x, &y));
    FY_TRY(fy_rng_create(s->device, 3, &rng));
    FY_TRY(fy_randn(rng, FY_DTYPE_F32, FY_DIMS(BATCH, IN), 0, 0.01, &noise));
    FY_TRY(fy_axpy(x, 1, noise));
    FY_TRY(make_model(s));
    for (int i = 0; i < 2; i++) FY_TRY(scoped_step(s, x, y, total));
    FY_TRY(graph_steps(s, x, y, total));
    FY_TRY(side(s, total));
    FY_TRY(fy_tensor_download(total, NULL, &download));
    return fy_download_wait_f64(download, FY_FOREVER, out_loss);
}

static double right;    /* the result without a failure */
static int64_t longest; /* the number of calls of a training without a failure */

/* A complete training on an open device. */
static fy_status_t visit(fy_device_t *device)
{
    session_t s = { .device = device };
    double loss = -1;
    fy_scope_t scope = fy_scope_begin("visit");
    const fy_status_t status = train(&s, &loss);
    if (status == FY_STATUS_OK && right != 0 && loss != right)
        fail_msg("the loss is %.9g instead of %.9g", loss, right);
    if (status == FY_STATUS_OK) right = loss;
    fy_optimizer_destroy(s.optimizer);
    fy_scope_end(scope, 0, NULL);
    if (s.model) fy_model_destroy(s.model);
    return status;
}

typedef struct plan {
    const char *what;
    int code, for_ever;
    fy_status_t status, or_this;
} plan_t;

/* The n-th call since the attempt began and those around it. */
static void print_call(int64_t n)
{
    const char *at = driver.fake_cuda_traced(), *end;
    for (int64_t i = 1; at && (end = strchr(at, ' ')); i++, at = end + 1)
        if (i >= n - 2 && i <= n + 2)
            print_message("%s call %lld: %.*s\n", i == n ? "-->" : "   ", (long long)i,
                          (int)(end - at), at);
}

/* Returns whether the n-th call submits work. Its failure must be reported. A captured call is
 * different: without its graph the calls are submitted one by one, and the loss is the same. */
static int is_work(int64_t n)
{
    static const char *const work[] = { "cuLaunchKernel ", "cublasLtMatmul ",    "cuMemcpy",
                                        "cuMemset",        "cuStreamWaitEvent ", "cuGraphLaunch " };
    const char *at = driver.fake_cuda_traced(), *end;
    int captures = 0;
    for (int64_t i = 1; at && i < n && (end = strchr(at, ' ')); i++) {
        if (strncmp(at, "cuStreamBeginCapture ", 21) == 0) captures = 1;
        if (strncmp(at, "cuStreamEndCapture ", 19) == 0) captures = 0;
        at = end + 1;
    }
    for (size_t i = 0; at && !captures && i < sizeof work / sizeof *work; i++)
        if (strncmp(at, work[i], strlen(work[i])) == 0) return 1;
    return 0;
}

/* Returns whether the status of the attempt is an allowed one. */
static void check_status(const plan_t *plan, int64_t n, fy_status_t status)
{
    if (status == FY_STATUS_OK || status == plan->status || status == plan->or_this) return;
    print_call(n);
    fail_msg("call %lld, %s: %s: %s", (long long)n, plan->what, fy_status_name(status),
             fy_error_get()->text);
}

/* The n-th call fails; returns whether there was an n-th. */
static int attempt(const plan_t *plan, int64_t n, int *out_told)
{
    char what[96];
    fy_device_t *device;
    const int is_fatal = plan->status == FY_STATUS_DEVICE_LOST;
    fy_tensor_t *host = ts_iota(fy_device_host(), FY_DIMS(3), 1); /* stays readable */
    snprintf(what, sizeof what, "call %lld, %s", (long long)n, plan->what);
    const int64_t before = driver.fake_cuda_all_calls();
    driver.fake_cuda_trace(1);
    (plan->for_ever ? driver.fake_cuda_fail_from : driver.fake_cuda_fail)(NULL, n, plan->code);
    fy_status_t status = fy_device_open("cuda:0", &device);
    check_status(plan, n, status);
    if (status == FY_STATUS_OK) {
        status = visit(device);
        check_status(plan, n, status);
        if (status != FY_STATUS_OK) assert_true(strlen(fy_error_get()->text) > 20);
        if (!plan->for_ever && !is_fatal &&
            /* otherwise the failure comes when the device closes */
            driver.fake_cuda_all_calls() - before >= n) {
            driver.fake_cuda_fail(NULL, 0, 0);
            const fy_status_t again = visit(device);
            if (again != FY_STATUS_OK)
                fail_msg("%s, then none: %s: %s", what, fy_status_name(again),
                         fy_error_get()->text);
        } else if (status == FY_STATUS_DEVICE_LOST) {
            const int64_t calls = driver.fake_cuda_all_calls();
            fy_tensor_t *none;
            if (fy_full(device, FY_DTYPE_F32, FY_DIMS(3), 1, &none) != FY_STATUS_DEVICE_LOST)
                fail_msg("%s: it lives again", what);
            ts_text_has("First failure: ");
            if (driver.fake_cuda_all_calls() != calls)
                fail_msg("%s: a lost device's driver is asked again", what);
        }
        fy_device_close(device);
    }
    *out_told += status != FY_STATUS_OK;
    if (status == FY_STATUS_OK && is_work(n)) {
        print_call(n);
        fail_msg("%s: the failure was not reported", what);
    }
    const int reached = driver.fake_cuda_all_calls() - before >= n && n <= longest;
    driver.fake_cuda_fail(NULL, 0, 0);
    fake_driver_is_tidy(what);
    ts_expect_f32(host, (float[]){ 1, 2, 3 }, 3);
    return reached;
}

/* A process loads the driver once, here (failures of loading: tests/unit/cuda/test_driver.c). */
static void clean_visit(const char *what)
{
    fy_device_t *device;
    const int64_t before = driver.fake_cuda_all_calls();
    ts_ok(fy_device_open("cuda:0", &device));
    ts_ok(visit(device));
    fy_device_close(device);
    longest = driver.fake_cuda_all_calls() - before;
    fake_driver_is_tidy(what);
}

static void sweep(const plan_t *plan)
{
    int points = 0, told = 0;
    clean_visit("before"); /* twice: the first one loads */
    clean_visit("before");
    for (int64_t n = 1;; n++, points++) {
        fy_scope_t scope = fy_scope_begin("attempt");
        const int reached = attempt(plan, n, &told);
        fy_scope_end(scope, 0, NULL);
        if (!reached) break;
        assert_in_range(n, 1, 20000);
    }
    clean_visit("after all");
    print_message("           %s: %d points, %d told\n", plan->what, points, told);
    assert_true(points > 150 && told > points / 3);
}

#define SWEEP(name, ...) \
    TS_TEST(name) { sweep(&(plan_t){ __VA_ARGS__ }); }
SWEEP(no_memory_once, "out of memory, once", 2, 0, FY_STATUS_OUT_OF_MEMORY, FY_STATUS_PINNED_LIMIT)
SWEEP(no_memory_permanently, "out of memory, for ever", 2, 1, FY_STATUS_OUT_OF_MEMORY,
      FY_STATUS_PINNED_LIMIT)
SWEEP(unknown_once, "an unknown error, once", 999, 0, FY_STATUS_INTERNAL, FY_STATUS_OUT_OF_MEMORY)
SWEEP(lost_once, "a failed launch, once", 719, 0, FY_STATUS_DEVICE_LOST, FY_STATUS_DEVICE_LOST)
SWEEP(lost_permanently, "a failed launch, for ever", 719, 1, FY_STATUS_DEVICE_LOST,
      FY_STATUS_DEVICE_LOST)

TS_SUITE(.prepare = fake_driver_or_skip);
