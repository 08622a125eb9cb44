/* The price of one light request at its smallest: N times `add` (two f32[4] on the host, a new
 * result) or `matmul` (16x16x16, a new result), the same add in a guarded scope (`guarded`), or the
 * bare `sgemm` of oneDNN of the same size. `step` is 20 such adds, each of the last one's result;
 * `recorded` the same with a tape looking on, `replay` as a graph.
 * N is an argument, so that two runs under an instruction counter give instructions per request by
 * difference (instructions.sh).
 * Not here: comparisons in time (peers_torch.cpp, `ferry bench dispatch`). */
#include <dnnl.h>
#include <ferry/ferry.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SIZE = 16, STEP = 20 };

typedef fy_status_t (*work_fn)(fy_tensor_t *a, fy_tensor_t *b, long count);

static fy_status_t run_add(fy_tensor_t *a, fy_tensor_t *b, long count)
{
    for (long i = 0; i < count; i++) {
        fy_tensor_t *sum;
        FY_TRY(fy_add(a, b, &sum));
        fy_tensor_destroy(sum);
    }
    return FY_STATUS_OK;
}

/* The same in a scope that allows no transfer and no sync. */
static fy_status_t run_guarded(fy_tensor_t *a, fy_tensor_t *b, long count)
{
    const fy_guard_options_t guard = FY_GUARD_LIGHT_ONLY;
    fy_scope_t scope = fy_scope_begin("guarded");
    fy_status_t status = fy_scope_guard(&guard);
    if (status == FY_STATUS_OK) status = run_add(a, b, count);
    fy_scope_end(scope, 0, NULL);
    return status;
}

static fy_status_t one_step(fy_tensor_t *a, fy_tensor_t *b)
{
    fy_tensor_t *sum = NULL, *next;
    for (int i = 0; i < STEP; i++) {
        FY_TRY(fy_add(i ? sum : a, b, &next));
        fy_tensor_destroy(sum);
        sum = next;
    }
    fy_tensor_destroy(sum);
    return FY_STATUS_OK;
}

static fy_status_t run_step(fy_tensor_t *a, fy_tensor_t *b, long count)
{
    for (long i = 0; i < count; i++) FY_TRY(one_step(a, b));
    return FY_STATUS_OK;
}

/* The same with a tape looking on that never goes back. */
static fy_status_t run_recorded(fy_tensor_t *a, fy_tensor_t *b, long count)
{
    fy_tape_t *tape;
    FY_TRY(fy_tape_create(&tape));
    FY_TRY(fy_tape_watch(tape, a, NULL));
    for (long i = 0; i < count; i++) {
        FY_TRY(fy_tape_begin(tape));
        FY_TRY(one_step(a, b));
    }
    fy_tape_destroy(tape);
    return FY_STATUS_OK;
}

static fy_status_t run_replay(fy_tensor_t *a, fy_tensor_t *b, long count)
{
    fy_graph_t *graph;
    FY_TRY(fy_graph_begin(fy_device_host()));
    FY_TRY(one_step(a, b));
    FY_TRY(fy_graph_end(&graph));
    for (long i = 0; i < count; i++) FY_TRY(fy_graph_replay(graph, NULL));
    fy_graph_destroy(graph);
    return FY_STATUS_OK;
}

static fy_status_t run_matmul(fy_tensor_t *a, fy_tensor_t *b, long count)
{
    for (long i = 0; i < count; i++) {
        fy_tensor_t *product;
        FY_TRY(fy_matmul(a, b, &product));
        fy_tensor_destroy(product);
    }
    return FY_STATUS_OK;
}

static fy_status_t run_sgemm(fy_tensor_t *a, fy_tensor_t *b, long count)
{
    void *raw_a, *raw_b;
    float c[SIZE * SIZE];
    FY_TRY(fy_tensor_map(a, FY_ACCESS_READ, &raw_a));
    FY_TRY(fy_tensor_map(b, FY_ACCESS_READ, &raw_b));
    for (long i = 0; i < count; i++)
        if (dnnl_sgemm('N', 'N', SIZE, SIZE, SIZE, 1, raw_a, SIZE, raw_b, SIZE, 0, c, SIZE) !=
            dnnl_success)
            return fy_error_set(FY_STATUS_INTERNAL, __FILE__, __LINE__, "dnnl_sgemm failed");
    return FY_STATUS_OK;
}

static const struct {
    const char *name;
    work_fn work;
    int rank;
    int64_t dims[2];
} works[] = {
    { "add", run_add, 1, { 4 } },
    { "guarded", run_guarded, 1, { 4 } },
    { "matmul", run_matmul, 2, { SIZE, SIZE } },
    { "sgemm", run_sgemm, 2, { SIZE, SIZE } },
    { "step", run_step, 1, { 4 } },
    { "recorded", run_recorded, 1, { 4 } },
    { "replay", run_replay, 1, { 4 } },
};
enum { WORK_COUNT = sizeof works / sizeof *works };

static fy_status_t run(int which, long count, double *out_ns)
{
    fy_tensor_t *a, *b;
    struct timespec begin, end;
    FY_TRY(fy_full(fy_device_host(), FY_DTYPE_F32, works[which].rank, works[which].dims, 1, &a));
    FY_TRY(fy_full(fy_device_host(), FY_DTYPE_F32, works[which].rank, works[which].dims, 2, &b));
    /* warm: free lists are filled, symbols are bound, kernels are made */
    FY_TRY(works[which].work(a, b, 1000));
    clock_gettime(CLOCK_MONOTONIC, &begin);
    FY_TRY(works[which].work(a, b, count));
    clock_gettime(CLOCK_MONOTONIC, &end);
    *out_ns = (double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec);
    return FY_STATUS_OK;
}

int main(int argc, char **argv)
{
    char *rest = NULL;
    int which = 0;
    long count = argc > 1 ? strtol(argv[1], &rest, 10) : 1000000;
    if (argc > 2)
        while (which < WORK_COUNT && strcmp(argv[2], works[which].name) != 0) which++;
    if (argc > 3 || count < 0 || (rest && *rest) || which == WORK_COUNT) {
        fprintf(stderr, "usage: %s [TIMES [add|guarded|matmul|sgemm|step|recorded|replay]]\n",
                argv[0]);
        return 2;
    }
    double ns = 0;
    fy_scope_t scope = fy_scope_begin("dispatch_floor");
    fy_status_t status = run(which, count, &ns);
    fy_scope_end(scope, 0, NULL);
    if (status != FY_STATUS_OK) {
        fprintf(stderr, "%s: %s\n", fy_status_name(status), fy_error_get()->text);
        return 1;
    }
    if (count)
        printf("%s: %ld times, %.1f ns each\n", works[which].name, count, ns / (double)count);
    return 0;
}
