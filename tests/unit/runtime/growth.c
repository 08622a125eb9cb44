/* Works on N items in each container of the library, for test_growth.sh: callgrind counts between
 * the two client requests and writes one file a work and size, with "NAME N" in it.
 * Without callgrind it runs the works and counts nothing. Usage: growth [NAME|all [TIMES]]; TIMES
 * the usual sizes. */
#include <ferry/ferry.h>
#include <valgrind/callgrind.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char g_name[64]; /* of the count that has begun */

static void count_begin(void)
{
    CALLGRIND_START_INSTRUMENTATION;
    CALLGRIND_ZERO_STATS;
}

static void count_end(void)
{
    CALLGRIND_DUMP_STATS_AT(g_name);
    CALLGRIND_STOP_INSTRUMENTATION;
}

static fy_status_t new_tensor(fy_device_t *device, int64_t nelem, fy_tensor_t **out_tensor)
{
    return fy_tensor_create(device, FY_DTYPE_F32, 1, &nelem, out_tensor);
}

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* A chain of `count` ops; all results stay in the scope if `keeps`. */
static fy_status_t chain(fy_tensor_t *first, long count, bool keeps, fy_tensor_t **out_last)
{
    fy_tensor_t *now = first, *next;
    for (long i = 0; i < count; i++) {
        FY_TRY(fy_add(now, first, &next));
        if (!keeps && now != first) fy_tensor_destroy(now);
        now = next;
    }
    *out_last = now;
    return FY_STATUS_OK;
}

static fy_status_t record(long count, bool keeps)
{
    fy_tensor_t *x, *last;
    fy_graph_t *graph;
    FY_TRY(new_tensor(fy_device_host(), 4, &x));
    FY_TRY(fy_graph_begin(fy_device_host()));
    count_begin();
    FY_TRY(chain(x, count, keeps, &last));
    count_end();
    FY_TRY(fy_graph_end(&graph));
    fy_graph_destroy(graph);
    return FY_STATUS_OK;
}

static fy_status_t record_dropped(long count) { return record(count, false); }
static fy_status_t record_kept(long count) { return record(count, true); }

/* The end of a recording, a replay, and the graph's destruction. */
static fy_status_t replay(long count)
{
    fy_tensor_t *x, *last;
    fy_graph_t *graph;
    FY_TRY(new_tensor(fy_device_host(), 4, &x));
    FY_TRY(fy_graph_begin(fy_device_host()));
    FY_TRY(chain(x, count, false, &last));
    count_begin();
    FY_TRY(fy_graph_end(&graph));
    FY_TRY(fy_graph_replay(graph, NULL));
    fy_graph_destroy(graph);
    count_end();
    return FY_STATUS_OK;
}

static fy_status_t tape(long count)
{
    const float one[1] = { 1 };
    fy_tensor_t *x, *last;
    fy_tape_t *tape;
    FY_TRY(fy_tensor_wrap(fy_device_host(), FY_DTYPE_F32, 1, (int64_t[]){ 1 }, (void *)one, NULL,
                          NULL, &x));
    FY_TRY(fy_tape_create(&tape));
    FY_TRY(fy_tape_watch(tape, x, NULL));
    count_begin();
    FY_TRY(fy_tape_begin(tape));
    FY_TRY(chain(x, count, true, &last));
    FY_TRY(fy_tape_backward(tape, last, NULL));
    fy_tape_destroy(tape);
    count_end();
    return FY_STATUS_OK;
}

/* Tensors that the end of a scope destroys. */
static fy_status_t scope_tensors(long count)
{
    fy_tensor_t *tensor;
    count_begin();
    fy_scope_t scope = fy_scope_begin("tensors");
    for (long i = 0; i < count; i++) FY_TRY(new_tensor(fy_device_host(), 4, &tensor));
    fy_scope_end(scope, 0, NULL);
    count_end();
    return FY_STATUS_OK;
}

static void nothing(void *user, const char *path, const fy_ledger_totals_t *totals)
{
    (void)user;
    (void)path;
    (void)totals;
}

/* A node has at most 4,096 children by name. */
static void begin_paths(long count)
{
    char name[32];
    for (long i = 0; i < count; i++) {
        snprintf(name, sizeof name, "%ld of %ld", i / 4000, count);
        fy_scope_t outer = fy_scope_begin(name);
        snprintf(name, sizeof name, "step %ld", i % 4000);
        fy_scope_end(fy_scope_begin(name), 0, NULL);
        fy_scope_end(outer, 0, NULL);
    }
}

static fy_status_t scope_paths(long count)
{
    count_begin();
    begin_paths(count);
    count_end();
    return FY_STATUS_OK;
}

/* It runs before all other works with paths, from few to many: the walk also has the paths of
 * before. */
static fy_status_t ledger(long count)
{
    begin_paths(count);
    count_begin();
    fy_ledger_walk(nothing, NULL);
    count_end();
    return FY_STATUS_OK;
}

/* `count` live blocks of a device's pool, each replaced by one of another size, in random order. */
static fy_status_t blocks(long count)
{
    uint32_t random = 1;
    fy_device_t *device;
    FY_TRY(fy_device_open("sim:0?numerics=off", &device));
    fy_tensor_t **tensors = calloc((size_t)count, sizeof(fy_tensor_t *));
    if (!tensors) return FY_STATUS_OUT_OF_MEMORY;
    count_begin();
    fy_status_t status = FY_STATUS_OK;
    for (long i = 0; i < 2 * count && status == FY_STATUS_OK; i++) {
        fy_tensor_t **tensor = &tensors[i < count ? i : next_random(&random) % count];
        fy_tensor_destroy(*tensor);
        status = new_tensor(device, 64 + next_random(&random) % 4096, tensor);
    }
    count_end();
    for (long i = 0; i < count; i++) fy_tensor_destroy(tensors[i]);
    free(tensors);
    fy_device_close(device);
    return status;
}

static fy_status_t views(long count)
{
    fy_tensor_t *x, *view;
    FY_TRY(new_tensor(fy_device_host(), 8, &x));
    count_begin();
    fy_scope_t scope = fy_scope_begin("views");
    for (long i = 0; i < count; i++) FY_TRY(fy_slice(x, 0, i % 4, 8, &view));
    fy_scope_end(scope, 0, NULL);
    count_end();
    return FY_STATUS_OK;
}

static fy_status_t uploads(long count)
{
    fy_device_t *device;
    fy_tensor_t *x, *there;
    FY_TRY(fy_device_open("sim:0", &device));
    FY_TRY(new_tensor(fy_device_host(), 16, &x));
    fy_scope_t scope = fy_scope_begin("uploads");
    count_begin();
    for (long i = 0; i < count; i++) FY_TRY(fy_tensor_upload(x, device, NULL, &there));
    FY_TRY(fy_device_wait(device, FY_FOREVER));
    count_end();
    fy_scope_end(scope, 0, NULL);
    fy_device_close(device);
    return FY_STATUS_OK;
}

static const struct {
    const char *name;
    fy_status_t (*run)(long count);
    long most; /* items; past what the thread cache holds, where they cost little */
} works[] = {
    { "ledger", ledger, 100000 },
    { "scope_paths", scope_paths, 10000 },
    { "record", record_dropped, 10000 },
    { "record_kept", record_kept, 10000 },
    { "replay", replay, 10000 },
    { "tape", tape, 10000 },
    { "scope_tensors", scope_tensors, 100000 },
    { "views", views, 100000 },
    { "blocks", blocks, 10000 },
    { "uploads", uploads, 10000 },
};

int main(int argc, char **argv)
{
    const char *wanted = argc > 1 ? argv[1] : "all";
    const long times = argc > 2 ? strtol(argv[2], NULL, 10) : 1;
    for (size_t i = 0; i < sizeof works / sizeof *works; i++) {
        if (strcmp(wanted, "all") != 0 && strcmp(wanted, works[i].name) != 0) continue;
        const long most = works[i].most * times;
        /* the first makes what a process makes once */
        for (long first = 1, count = 100; count <= most; count *= first ? 1 : 10, first = 0) {
            snprintf(g_name, sizeof g_name, "%s %ld", first ? "first" : works[i].name, count);
            fy_scope_t scope = fy_scope_begin(works[i].name);
            const fy_status_t status = works[i].run(count);
            fy_scope_end(scope, 0, NULL);
            if (status == FY_STATUS_OK) continue;
            fprintf(stderr, "%s: %s\n", g_name, fy_error_get()->text);
            return 1;
        }
    }
    return 0;
}
