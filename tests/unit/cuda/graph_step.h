/* Shared by the tests of graphs on cuda: a step that is recorded, the same step called, and a
 * device over the fake driver for each test. */
#ifndef FERRY_TESTS_UNIT_CUDA_GRAPH_STEP_H_
#define FERRY_TESTS_UNIT_CUDA_GRAPH_STEP_H_

#include "tests/support/fake_driver.h"

static fy_device_t *device;
static int nlogged;
static char logged[512];

static inline void note_log(void *user, fy_log_level_t level, const char *text)
{
    (void)user, (void)level;
    nlogged++;
    snprintf(logged, sizeof logged, "%s", text);
}

/* ---- the recorded step ---- */

typedef struct step {
    fy_graph_t *graph;
    fy_tensor_t *x, *w, *indices, *out;
} step_t;

/* x += tanh(x @ w), and the sum of x. `gathers`: of rows selected by indices, so that it can meet
 * bad values. */
static inline void call(step_t *s, int gathers)
{
    fy_tensor_t *rows = s->x, *product, *t;
    if (gathers) ts_ok(fy_gather(s->x, s->indices, &rows));
    ts_ok(fy_matmul(rows, s->w, &product));
    ts_ok(fy_tanh(product, &t));
    ts_ok(fy_axpy(s->x, 1, t));
    ts_ok(fy_sum(s->x, FY_ALL_AXES, 0, &s->out));
}

static inline step_t record(int gathers)
{
    step_t s = { .x = ts_iota(device, FY_DIMS(4, 4), 1) };
    ts_ok(fy_full(device, FY_DTYPE_F32, FY_DIMS(4, 4), 0.01, &s.w));
    ts_ok(fy_arange(device, FY_DTYPE_I64, 0, 1, 4, &s.indices));
    ts_ok(fy_graph_begin(device));
    call(&s, gathers);
    ts_ok(fy_graph_end(&s.graph));
    return s;
}

/* Checks that `n` replays give the results of as many calls. */
static inline void expect_called(const step_t *s, int n)
{
    step_t called = { .x = ts_iota(device, FY_DIMS(4, 4), 1), .w = s->w, .indices = s->indices };
    float want[17], got[17];
    for (int i = 0; i < n; i++) call(&called, 1);
    ts_read(called.x, want, 64);
    ts_read(called.out, want + 16, 4);
    ts_read(s->x, got, 64);
    ts_read(s->out, got + 16, 4);
    assert_memory_equal(got, want, sizeof got);
}

static inline void expect_path(const step_t *s, fy_graph_path_t path, const char *reason)
{
    fy_graph_info_t info = FY_GRAPH_INFO_INIT;
    ts_ok(fy_graph_query(s->graph, &info));
    if (info.path != path || strstr(info.reason, reason) == NULL ||
        (info.path == FY_GRAPH_DEVICE) != (info.reason[0] == '\0'))
        fail_msg("path %d, reason '%s'; expected %d, '%s'", (int)info.path, info.reason, (int)path,
                 reason);
}

static inline void replay(const step_t *s, int n)
{
    for (int i = 0; i < n; i++) ts_ok(fy_graph_replay(s->graph, NULL));
}

/* ---- the program ---- */

static inline int prepare_logged(void)
{
    fake_driver_or_skip();
    fy_log_set(note_log, NULL);
    return 0;
}

static inline int setup(void **state)
{
    fy_scope_t *scope = malloc(sizeof *scope);
    ts_ok(fy_device_open("cuda:0", &device));
    *scope = fy_scope_begin("test");
    *state = scope;
    nlogged = 0;
    return 0;
}

static inline int teardown(void **state)
{
    driver.fake_cuda_fail(NULL, 0, 0);
    driver.fake_cuda_hold(0);
    fy_scope_end(*(fy_scope_t *)*state, 0, NULL);
    free(*state);
    fy_device_close(device);
    fake_driver_is_tidy("the end of a test");
    return 0;
}

#endif
