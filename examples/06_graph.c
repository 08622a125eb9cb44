/* The same linear regression in minibatches, twice: called step by step, and as a graph that is
 * recorded once and replayed. The bits are the same; the replays are a seventh of the requests and
 * make nothing: no tensor, no shape check, no allocation.
 * Usage: 06_graph [device], by default sim:0. Next: docs/graphs.md. */
#include <ferry/ferry.h>

#include <string.h>

#include "example.h"

enum { SAMPLES = 256, FEATURES = 3, BATCH = 32, STEPS = 200 };

typedef struct model {
    fy_tensor_t *x, *y, *w; /* [samples, features], [samples, 1], [features, 1] */
    fy_tensor_t *rng;       /* on the device, so that a replay draws new numbers */
} model_t;

/* y = x (2, -3, 0.5). Everything is made where it is used. */
static fy_status_t create(fy_device_t *device, model_t *m)
{
    fy_tensor_t *init, *truth, *column;
    FY_TRY(fy_rng_create(device, 1, &init));
    FY_TRY(fy_rand(init, FY_DTYPE_F32, FY_DIMS(SAMPLES, FEATURES), -1, 1, &m->x));
    FY_TRY(fy_zeros(device, FY_DTYPE_F32, FY_DIMS(FEATURES, 1), &truth));
    for (int i = 0; i < FEATURES; i++) {
        const double weights[FEATURES] = { 2, -3, 0.5 };
        FY_TRY(fy_slice(truth, 0, i, i + 1, &column));
        FY_TRY(fy_fill(column, weights[i]));
    }
    FY_TRY(fy_matmul(m->x, truth, &m->y));
    FY_TRY(fy_zeros(device, FY_DTYPE_F32, FY_DIMS(FEATURES, 1), &m->w));
    return fy_rng_create(device, 2, &m->rng);
}

/* One step. It is written once, and does not know whether it is being recorded. */
static fy_status_t step(model_t *m)
{
    fy_scope_t scope = fy_scope_begin("step");
    fy_tensor_t *order, *some, *x, *y, *pred, *error, *xt, *grad;
    FY_TRY(fy_randperm(m->rng, SAMPLES, &order));
    FY_TRY(fy_slice(order, 0, 0, BATCH, &some));
    FY_TRY(fy_gather(m->x, some, &x));
    FY_TRY(fy_gather(m->y, some, &y));
    FY_TRY(fy_matmul(x, m->w, &pred));
    FY_TRY(fy_sub(pred, y, &error));
    FY_TRY(fy_transpose(x, NULL, &xt));
    FY_TRY(fy_matmul(xt, error, &grad));
    FY_TRY(fy_axpy(m->w, -0.2 * 2.0 / BATCH, grad));
    fy_scope_end(scope, 0, NULL);
    return FY_STATUS_OK;
}

static fy_status_t weights_of(const model_t *m, float out[FEATURES])
{
    fy_download_t *download;
    fy_tensor_t *host;
    void *bytes;
    FY_TRY(fy_tensor_download(m->w, NULL, &download));
    FY_TRY(fy_download_wait(download, FY_FOREVER, &host));
    FY_TRY(fy_tensor_map(host, FY_ACCESS_READ, &bytes));
    memcpy(out, bytes, FEATURES * sizeof *out);
    return FY_STATUS_OK;
}

static fy_status_t requests_so_far(uint64_t *out_requests)
{
    fy_ledger_totals_t all = FY_LEDGER_TOTALS_INIT;
    FY_TRY(fy_ledger_query(NULL, &all));
    *out_requests = all.requests;
    return FY_STATUS_OK;
}

static fy_status_t train(fy_device_t *device)
{
    model_t called, replayed;
    fy_graph_t *graph;
    fy_graph_info_t info = FY_GRAPH_INFO_INIT;
    float weights[2][FEATURES];
    uint64_t requests[3];
    FY_TRY(create(device, &called));
    FY_TRY(create(device, &replayed));
    FY_TRY(requests_so_far(&requests[0]));
    for (int i = 0; i < STEPS; i++) FY_TRY(step(&called));
    FY_TRY(requests_so_far(&requests[1]));

    FY_TRY(fy_graph_begin(device)); /* from here on nothing runs ... */
    FY_TRY(step(&replayed));
    FY_TRY(fy_graph_end(&graph)); /* ... until it is replayed */
    for (int i = 0; i < STEPS; i++) FY_TRY(fy_graph_replay(graph, NULL));
    FY_TRY(requests_so_far(&requests[2]));

    FY_TRY(weights_of(&called, weights[0]));
    FY_TRY(weights_of(&replayed, weights[1]));
    FY_TRY(fy_graph_query(graph, &info));
    printf("%d steps called:   w = %.6f %.6f %.6f  %6" PRIu64 " requests\n", STEPS, weights[0][0],
           weights[0][1], weights[0][2], requests[1] - requests[0]);
    printf("%d steps replayed: w = %.6f %.6f %.6f  %6" PRIu64 " requests; the graph has %" PRIu64
           " calls and a pool of %" PRIu64 " bytes\n",
           STEPS, weights[1][0], weights[1][1], weights[1][2], requests[2] - requests[1],
           info.requests, info.pool_nbytes);
    if (info.path == FY_GRAPH_DEVICE) /* cuda */
        printf("each replay is one request for the device, too\n");
    else
        printf("each replay submits its calls one by one: %s\n", info.reason);
    if (memcmp(weights[0], weights[1], sizeof weights[0]) != 0)
        return fy_error_set(FY_STATUS_INTERNAL, __FILE__, __LINE__, "the replays have other bits");
    return FY_STATUS_OK;
}

static fy_status_t run(const char *spec)
{
    fy_device_t *device;
    FY_TRY(fy_device_open(spec, &device));
    fy_scope_t scope = fy_scope_begin("train");
    fy_status_t status = train(device);
    fy_scope_end(scope, 0, NULL);
    fy_device_close(device);
    return status;
}

int main(int argc, char **argv)
{
    return example_finish(argv[0], run(argc > 1 ? argv[1] : "sim:0"));
}
