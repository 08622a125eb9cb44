/* The CUDA driver calls of a steady training step, called and replayed: launches and products; no
 * allocation, no wait, no creation of an event, a stream or a plan. The launches of a step of the
 * larger models are bounded. Over the fake driver. Not here: requests of a step
 * (test_launches.c). */
#include "tests/support/fake_driver.h"
#include "tests/unit/train/fixture.h"

/* Warm: plans and blocks exist, and the compute stream has its 16 events, which it reuses. */
enum { BATCH = 4, WARM_UP = 24, STEPS = 20 };

typedef struct session {
    fy_device_t *device;
    fy_model_t *model;
    fy_optimizer_t *optimizer;
    fy_tape_t *tape;
    fy_tensor_t *x, *y, *total;
} session_t;

static void open_session(session_t *s, const char *model)
{
    const fy_optimizer_options_t options = optimizer_defaults(FY_OPTIMIZER_ADAM);
    ts_ok(fy_device_open("cuda:0", &s->device));
    model_batch(s->device, model, BATCH, &s->x, &s->y);
    ts_ok(fy_zeros(s->device, FY_DTYPE_F32, 0, NULL, &s->total));
    s->model = known_model(s->device, model, NULL);
    const fy_model_info_t info = model_info(s->model);
    ts_ok(fy_optimizer_create(&options, 1, &info.values, &info.grads, &s->optimizer));
    s->tape = watch(s->model);
}

static void close_session(session_t *s, fy_scope_t scope)
{
    fy_optimizer_destroy(s->optimizer);
    fy_model_destroy(s->model);
    fy_scope_end(scope, 0, NULL);
    fy_device_close(s->device);
    fake_driver_is_tidy("after the steps");
}

static fy_status_t step(session_t *s)
{
    fy_tensor_t *logits, *loss;
    FY_TRY(fy_tape_begin(s->tape));
    FY_TRY(fy_model_forward(s->model, s->x, &logits));
    FY_TRY(fy_cross_entropy(logits, s->y, FY_REDUCTION_MEAN, &loss));
    FY_TRY(fy_model_backward(s->model, s->tape, loss, NULL));
    FY_TRY(fy_optimizer_step(s->optimizer));
    return fy_axpy(s->total, 1, loss);
}

static void called(session_t *s)
{
    fy_scope_t scope = fy_scope_begin("step");
    ts_ok(step(s));
    fy_scope_end(scope, 0, NULL);
}

/* ---- the trace of driver calls ---- */

typedef struct asked {
    char sequence[1 << 17]; /* the calls that are not counted below */
    int records, queries;   /* of events */
} asked_t;

/* Removes `name` from the trace and returns the number of its calls. */
static int take_out(char *trace, const char *name)
{
    const size_t length = strlen(name);
    int n = 0;
    for (char *at = trace; (at = strstr(at, name)) != NULL; n++)
        memmove(at, at + length, strlen(at + length) + 1);
    return n;
}

static void end_trace(asked_t *out_asked)
{
    driver.fake_cuda_trace(0);
    const char *trace = driver.fake_cuda_traced();
    assert_non_null(trace);
    assert_true(strlen(trace) < sizeof out_asked->sequence);
    memcpy(out_asked->sequence, trace, strlen(trace) + 1);
    /* reads and context switches do nothing on the device */
    assert_true(take_out(out_asked->sequence, "cuCtxGetCurrent ") > 0);
    out_asked->records = take_out(out_asked->sequence, "cuEventRecord ");
    out_asked->queries = take_out(out_asked->sequence, "cuEventQuery ");
}

static void assert_sequence(const char *got, const char *want, const char *what)
{
    if (strcmp(got, want) != 0) fail_msg("%s\n  %s\nand not\n  %s\n", what, got, want);
}

/* ---- steps ---- */

#define KERNEL  "cuLaunchKernel "
#define PRODUCT "cublasLtMatmul "
/* Ferry sets the bias address of this layer in the plan. */
#define BIASED "cublasLtMatmulDescSetAttribute cublasLtMatmul "

/* clang-format off */
static const char steady[] =
    BIASED KERNEL        /* linear, relu */
    BIASED               /* linear */
    KERNEL KERNEL        /* cross entropy, its mean */
    KERNEL               /* its gradient */
    BIASED               /* dw2 and db2: Ferry sets the address of db in the plan */
    PRODUCT KERNEL       /* dx2, relu's gradient */
    BIASED               /* dw1 and db1 */
    KERNEL KERNEL        /* Adam: step number, parameters */
    KERNEL;              /* total += loss */
/* clang-format on */

/* `now_and_then`: another sequence that some of the steps may have. */
static void run_steps(session_t *s, void (*one)(session_t *s), const char *sequence,
                      const char *now_and_then)
{
    static asked_t asked;
    int records = 0, queries = 0;
    for (int i = 0; i < WARM_UP; i++) one(s);
    for (int i = 0; i < STEPS; i++) {
        driver.fake_cuda_trace(1);
        one(s);
        end_trace(&asked);
        if (strcmp(asked.sequence, now_and_then) != 0)
            assert_sequence(asked.sequence, sequence, "a steady step asks the driver for");
        records += asked.records;
        queries += asked.queries;
    }
    /* Two requests of a step can meet a class out of range, and each leaves an event, so that a
     * wait for it ends as early as possible. Each event is polled once before it is recorded
     * again. */
    print_message("           %d events recorded and %d asked about in %d steps\n", records,
                  queries, STEPS);
    assert_in_range(records, 0, 3 * STEPS);
    assert_in_range(queries, 0, records + 32);
}

TS_TEST(a_called_step_only_launches)
{
    session_t s;
    fy_scope_t scope = fy_scope_begin("session");
    open_session(&s, "mlp");
    run_steps(&s, called, steady, steady);
    close_session(&s, scope);
}

static fy_graph_t *graph;
static void replayed(session_t *s)
{
    (void)s;
    ts_ok(fy_graph_replay(graph, NULL));
}

/* One request, and a small kernel that passes on its flags: a class out of range is reported. One
 * more clears the flags for reuse. */
TS_TEST(a_replayed_step_only_launches)
{
    session_t s;
    fy_scope_t scope = fy_scope_begin("session");
    open_session(&s, "mlp");
    called(&s); /* creates the optimizer's state */
    ts_ok(fy_graph_begin(s.device));
    ts_ok(step(&s));
    ts_ok(fy_graph_end(&graph));
    run_steps(&s, replayed, "cuGraphLaunch " KERNEL, "cuGraphLaunch " KERNEL KERNEL);
    close_session(&s, scope);
}

/* ---- larger models ---- */

/* The launches of a called step: at most `most`, and nothing but launches. */
static void count_launches(const char *model, int most)
{
    static asked_t asked;
    session_t s;
    fy_scope_t scope = fy_scope_begin("session");
    open_session(&s, model);
    for (int i = 0; i < WARM_UP; i++) called(&s);
    driver.fake_cuda_trace(1);
    called(&s);
    end_trace(&asked);
    const int products = take_out(asked.sequence, "cublasLtMatmul "),
              launches = products + take_out(asked.sequence, KERNEL);
    take_out(asked.sequence, "cublasLtMatmulDescSetAttribute ");
    print_message("           %s: %d launches, %d of them products\n", model, launches, products);
    assert_sequence(asked.sequence, "", "beside launches, a steady step asks the driver for");
    assert_in_range(launches, products + 1, most);
    close_session(&s, scope);
}

TS_TEST(steps_of_larger_models_have_few_launches)
{
    count_launches("resnet18:size=8", 230);
    count_launches("mobilenet_v3_large:classes=10,size=32", 700);
    count_launches("gpt:layers=2,heads=2,width=32,context=16,vocab=64", 130);
}

TS_SUITE(.prepare = fake_driver_or_skip);
