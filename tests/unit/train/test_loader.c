/* Loaders: the same batches in the same order, resident or streamed with any number of workers;
 * seeking; figures; guards; early destruction.
 * Not here: data sets (test_dataset.c). */
#include <math.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ferry/train/train.h>

#include "tests/support/harness.h"

enum { N = 53, PIXELS = 6, BATCH = 8, STEPS = 7 };

/* The pixels contain the index of their sample. */
static fy_dataset_t *make_set(void)
{
    static unsigned char data[N * PIXELS];
    static int32_t labels[N];
    fy_dataset_t *dataset;
    const fy_dataset_info_t info = { sizeof info, N, 2, { 2, 3 }, FY_DTYPE_U8, .classes = 10 };
    for (int i = 0; i < N * PIXELS; i++)
        data[i] = (unsigned char)(i % PIXELS ? i * 37 : i / PIXELS * 4);
    for (int i = 0; i < N; i++) labels[i] = i % 10;
    ts_ok(fy_dataset_create(&info, data, labels, &dataset));
    return dataset;
}

/* Each way to make the same batches. */
static const struct {
    int resident, workers, depth;
} ways[] = { { 1, 0, 2 },  { 0, 0, 2 }, { 0, 1, 1 }, { 0, 2, 2 },
             { 0, 3, 64 }, { 0, 4, 2 }, { 0, 16, 3 } };
enum { NWAYS = sizeof ways / sizeof *ways };

static fy_loader_options_t options_of(size_t way)
{
    fy_loader_options_t options = FY_LOADER_OPTIONS_INIT;
    options.batch = BATCH;
    options.seed = 5;
    options.resident = ways[way].resident;
    options.workers = ways[way].workers;
    options.depth = ways[way].depth;
    options.scale = 1.0 / 255;
    options.channels = 3;
    for (int c = 0; c < 3; c++) {
        options.mean[c] = 0.1 * (c + 1);
        options.std[c] = 0.3 + 0.1 * c;
    }
    return options;
}

static fy_loader_t *make(ts_ctx_t *ctx, const fy_loader_options_t *options)
{
    fy_dataset_t *dataset = make_set();
    fy_loader_t *loader;
    ts_ok(fy_loader_create(ctx->device, dataset, options, &loader));
    fy_dataset_destroy(dataset); /* the loader holds it */
    return loader;
}

static fy_loader_t *make_way(ts_ctx_t *ctx, size_t way)
{
    const fy_loader_options_t options = options_of(way);
    return make(ctx, &options);
}

typedef struct batch {
    int64_t rows;
    float x[BATCH * PIXELS];
    int32_t y[BATCH];
} batch_t;

/* rows 0: the end of the epoch. */
static batch_t next(fy_loader_t *loader)
{
    batch_t batch = { 0 };
    fy_tensor_t *x, *y;
    fy_scope_t scope = fy_scope_begin("step");
    ts_ok(fy_loader_next(loader, &x, &y));
    assert_true(!x == !y);
    if (x) {
        fy_tensor_info_t info = ts_info(x);
        batch.rows = info.dims[0];
        assert_int_equal(info.dtype, FY_DTYPE_F32);
        assert_int_equal(info.rank, 3);
        assert_int_equal(info.dims[1] * info.dims[2], PIXELS);
        assert_int_equal(ts_info(y).dtype, FY_DTYPE_I32);
        assert_int_equal(ts_info(y).dims[0], batch.rows);
        assert_true(batch.rows <= BATCH);
        ts_read(x, batch.x, (size_t)batch.rows * PIXELS * sizeof(float));
        ts_read(y, batch.y, (size_t)batch.rows * sizeof(int32_t));
    }
    fy_scope_end(scope, 0, NULL);
    return batch;
}

static void skip_batches(fy_loader_t *loader, int count)
{
    for (int i = 0; i < count; i++) (void)next(loader);
}

static void expect_same(const batch_t *got, const batch_t *want)
{
    assert_int_equal(got->rows, want->rows);
    assert_memory_equal(got->x, want->x, sizeof got->x); /* every bit */
    assert_memory_equal(got->y, want->y, sizeof got->y);
}

static fy_loader_info_t query(const fy_loader_t *loader)
{
    fy_loader_info_t info = FY_LOADER_INFO_INIT;
    ts_ok(fy_loader_query(loader, &info));
    return info;
}

/* The order is fy_randperm's: epoch e has the result of the e-th draw. The values follow the
 * formula. */
TS_DEVICE_TEST(order_and_values)
{
    fy_tensor_t *rng, *order;
    int64_t want[3][N];
    fy_loader_options_t options = options_of(0);
    fy_loader_t *loader = make(ctx, &options);
    ts_ok(fy_rng_create(fy_device_host(), options.seed, &rng));
    for (int e = 0; e < 3; e++) {
        ts_ok(fy_randperm(rng, N, &order));
        ts_read(order, want[e], sizeof want[e]);
    }
    assert_memory_not_equal(want[0], want[1], sizeof want[0]);
    for (int e = 0; e < 3; e++) {
        for (int s = 0; s < STEPS; s++) {
            assert_int_equal(query(loader).epoch, e);
            assert_int_equal(query(loader).step, s);
            batch_t batch = next(loader);
            assert_int_equal(batch.rows, s == STEPS - 1 ? N % BATCH : BATCH);
            for (int64_t i = 0; i < batch.rows; i++) {
                int64_t sample = want[e][s * BATCH + i];
                assert_int_equal(batch.y[i], sample % 10);
                for (int p = 0; p < PIXELS; p++) {
                    int at = (int)sample * PIXELS + p,
                        value = (unsigned char)(p ? at * 37 : sample * 4);
                    double x = (value / 255.0 - options.mean[p % 3]) / options.std[p % 3];
                    assert_true(fabs(batch.x[i * PIXELS + p] - x) <= 1e-6 * (1 + fabs(x)));
                }
            }
        }
        assert_int_equal(next(loader).rows, 0); /* the end, once */
    }
    fy_loader_destroy(loader);
}

TS_DEVICE_TEST(every_way_gives_the_same_batches)
{
    static batch_t want[3][STEPS];
    for (size_t w = 0; w < NWAYS; w++) {
        fy_loader_t *loader = make_way(ctx, w);
        assert_int_equal(query(loader).is_resident, ways[w].resident);
        assert_int_equal(query(loader).workers, ways[w].workers);
        assert_int_equal(query(loader).steps, STEPS);
        for (int e = 0; e < 3; e++) {
            for (int s = 0; s < STEPS; s++) {
                batch_t got = next(loader);
                if (w == 0) want[e][s] = got;
                expect_same(&got, &want[e][s]);
            }
            assert_int_equal(next(loader).rows, 0);
        }
        fy_loader_destroy(loader);
    }
}

TS_DEVICE_TEST(without_shuffling_samples_keep_their_order)
{
    for (size_t w = 0; w < NWAYS; w++) {
        fy_loader_options_t options = options_of(w);
        options.shuffle = 0;
        options.drop_last = 1;
        options.channels = 0;
        options.scale = 1;
        fy_loader_t *loader = make(ctx, &options);
        assert_int_equal(query(loader).steps, N / BATCH);
        for (int e = 0; e < 2; e++) {
            for (int s = 0; s < N / BATCH; s++) {
                batch_t batch = next(loader);
                assert_int_equal(batch.rows, BATCH);
                for (int i = 0; i < BATCH; i++)
                    assert_true(batch.x[i * PIXELS] == (float)((s * BATCH + i) * 4));
            }
            assert_int_equal(next(loader).rows, 0);
        }
        fy_loader_destroy(loader);
    }
}

TS_DEVICE_TEST(seeking_finds_the_same_batches)
{
    static const int places[][2] = { { 2, 3 },     { 0, 0 }, { 0, STEPS - 1 },
                                     { 1, STEPS }, { 7, 1 }, { 2, 0 } };
    fy_loader_options_t plain = options_of(0);
    for (size_t w = 0; w < NWAYS; w++) {
        fy_loader_t *loader = make_way(ctx, w);
        skip_batches(loader, 3);
        for (size_t p = 0; p < sizeof places / sizeof *places; p++) {
            ts_ok(fy_loader_seek(loader, places[p][0], places[p][1]));
            assert_int_equal(query(loader).epoch, places[p][0]);
            assert_int_equal(query(loader).step, places[p][1]);
            fy_loader_t *other = make(ctx, &plain); /* this loader steps to the position */
            skip_batches(other, places[p][0] * (STEPS + 1) + places[p][1]);
            for (int i = 0; i < 9; i++) { /* over the end of the epoch */
                batch_t got = next(loader), want = next(other);
                expect_same(&got, &want);
            }
            fy_loader_destroy(other);
        }
        ts_fails(fy_loader_seek(loader, 0, STEPS + 1), INVALID_ARGUMENT);
        ts_fails(fy_loader_seek(loader, -1, 0), INVALID_ARGUMENT);
        ts_fails(fy_loader_seek(loader, 0, -1), INVALID_ARGUMENT);
        assert_int_equal(query(loader).epoch, 3); /* the position before */
        fy_loader_destroy(loader);
    }
}

/* A resident set: one upload of samples and one of labels, and none after that. A streamed set: two
 * uploads a batch. */
TS_DEVICE_TEST(transfers_of_resident_and_streamed_sets)
{
    fy_loader_options_t options = options_of(0);
    fy_ledger_totals_t before = ts_ledger(NULL);
    fy_loader_t *loader = make(ctx, &options);
    fy_ledger_totals_t made = ts_ledger(NULL);
    assert_int_equal(made.upload.count - before.upload.count, 2);
    assert_int_equal(made.upload.nbytes - before.upload.nbytes, N * PIXELS + N * 4);
    fy_scope_t warm = fy_scope_begin("warm");
    fy_tensor_t *x, *y;
    for (int i = 0; i < 2 * (STEPS + 1); i++) ts_ok(fy_loader_next(loader, &x, &y));
    fy_scope_end(warm, 0, NULL);
    made = ts_ledger(NULL);
    fy_guard_options_t light = FY_GUARD_LIGHT_ONLY;
    for (int e = 0; e < 2; e++)
        for (int s = 0; s < STEPS + 1; s++) {
            fy_scope_t step = fy_scope_begin("step");
            ts_ok(fy_scope_guard(&light));
            ts_ok(fy_loader_next(loader, &x, &y));
            fy_scope_end(step, 0, NULL);
        }
    fy_ledger_totals_t after = ts_ledger(NULL);
    assert_int_equal(after.device_allocs, made.device_allocs);
    assert_int_equal(after.syncs, made.syncs);
    fy_loader_destroy(loader);

    options = options_of(1);
    loader = make(ctx, &options);
    skip_batches(loader, STEPS + 1);
    made = ts_ledger(NULL);
    fy_scope_t steps = fy_scope_begin("steps");
    for (int s = 0; s < STEPS; s++) {
        ts_ok(fy_loader_next(loader, &x, &y));
        fy_tensor_destroy(x);
        fy_tensor_destroy(y);
    }
    fy_scope_end(steps, 0, NULL);
    after = ts_ledger(NULL);
    assert_int_equal(after.upload.count - made.upload.count, 2 * STEPS);
    assert_int_equal(after.device_allocs, made.device_allocs);
    fy_loader_destroy(loader);
}

/* Tensors of a regression, f32 throughout: when streamed, they are exactly the uploaded bytes. */
TS_DEVICE_TEST(tables_give_f32_batches)
{
    double values[20 * 3];
    fy_table_t *table;
    fy_dataset_t *dataset, *train, *rest;
    for (int i = 0; i < 60; i++) values[i] = i;
    ts_ok(fy_table_create(20, 3, values, &table));
    ts_ok(fy_dataset_from_table(table, 1, &dataset));
    fy_table_destroy(table);
    ts_ok(fy_dataset_split(dataset, 12, 9, &train, &rest)); /* samples that are not contiguous */
    fy_dataset_destroy(dataset);
    for (int resident = 0; resident < 2; resident++)
        for (int scaled = 0; scaled < 2; scaled++) {
            fy_loader_options_t options = FY_LOADER_OPTIONS_INIT;
            fy_loader_t *loader;
            fy_tensor_t *x, *y;
            options.batch = 5;
            options.shuffle = 0;
            options.resident = resident;
            options.workers = resident ? 0 : 2;
            options.channels = scaled; /* one mean for all */
            options.mean[0] = 2;
            options.std[0] = 4;
            ts_ok(fy_loader_create(ctx->device, train, &options, &loader));
            for (int s = 0, at = 0; s < 3; s++) {
                float got_x[10], got_y[5], want[2], target;
                ts_ok(fy_loader_next(loader, &x, &y));
                const int rows = s == 2 ? 2 : 5;
                assert_int_equal(ts_info(y).rank, 2);
                assert_int_equal(ts_info(y).dims[1], 1);
                ts_read(x, got_x, (size_t)rows * 8);
                ts_read(y, got_y, (size_t)rows * 4);
                for (int i = 0; i < rows; i++, at++) {
                    ts_ok(fy_dataset_get(train, (uint64_t)at, want, &target));
                    assert_true(got_y[i] == target);
                    for (int c = 0; c < 2; c++)
                        assert_true(got_x[2 * i + c] == (scaled ? (want[c] - 2) / 4 : want[c]));
                }
                fy_tensor_destroy(x); /* separate handles, also while the loader has the bytes */
                fy_tensor_destroy(y);
            }
            fy_loader_destroy(loader);
        }
    fy_dataset_destroy(train);
    fy_dataset_destroy(rest);
}

/* Samples of one number have no separate axis: x is [n]. */
TS_DEVICE_TEST(samples_of_one_number_have_rank_one)
{
    static const float data[5] = { 1, 2, 3, 4, 5 }, targets[5] = { 6, 7, 8, 9, 10 };
    const fy_dataset_info_t info = { sizeof info, 5, .dtype = FY_DTYPE_F32, .targets = 1 };
    fy_dataset_t *dataset;
    ts_ok(fy_dataset_create(&info, data, targets, &dataset));
    for (int resident = 0; resident < 2; resident++) {
        fy_loader_options_t options = FY_LOADER_OPTIONS_INIT;
        fy_loader_t *loader;
        fy_tensor_t *x, *y;
        options.shuffle = 0;
        options.resident = resident;
        ts_ok(fy_loader_create(ctx->device, dataset, &options, &loader));
        ts_ok(fy_loader_next(loader, &x, &y));
        assert_int_equal(ts_info(x).rank, 1);
        ts_expect_f32(x, data, 5);
        ts_expect_f32(y, targets, 5);
        fy_tensor_destroy(x);
        fy_tensor_destroy(y);
        fy_loader_destroy(loader);
    }
    fy_dataset_destroy(dataset);
}

/* Loaders destroyed at any moment, with batches in flight. */
TS_DEVICE_TEST(a_loader_can_be_destroyed_at_any_moment)
{
    for (int taken = 0; taken < 12; taken++)
        for (size_t w = 0; w < NWAYS; w++) {
            fy_loader_t *loader = make_way(ctx, w);
            fy_scope_t scope = fy_scope_begin("steps");
            fy_tensor_t *x, *y;
            for (int i = 0; i < taken; i++) ts_ok(fy_loader_next(loader, &x, &y));
            if (taken % 2) fy_scope_end(scope, 0, NULL);
            fy_loader_destroy(loader);
            if (taken % 2 == 0) fy_scope_end(scope, 0, NULL); /* views of its batches outlive it */
        }
    fy_loader_destroy(NULL);
}

/* An error of a worker reaches the caller that requests that batch; the batches after it arrive. */
TS_DEVICE_TEST(guards_are_inherited)
{
    for (size_t w = 1; w < NWAYS; w++) {
        fy_loader_options_t options = options_of(w);
        fy_guard_options_t guard = FY_GUARD_OPTIONS_INIT;
        fy_tensor_t *x = (fy_tensor_t *)&guard, *y = x;
        guard.upload_nbytes = 3 * BATCH * (PIXELS + 4); /* three batches */
        fy_scope_t scope = fy_scope_begin("guarded");
        ts_ok(fy_scope_guard(&guard));
        fy_loader_t *loader = make(ctx, &options);
        for (int i = 0; i < 3; i++) ts_ok(fy_loader_next(loader, &x, &y));
        ts_fails(fy_loader_next(loader, &x, &y), REFUSED_BY_GUARD);
        assert_null(x);
        assert_null(y);
        assert_int_equal(query(loader).step, 4); /* that batch was skipped */
        fy_loader_destroy(loader);
        fy_scope_end(scope, 0, NULL);
    }
    fy_loader_options_t options = options_of(0);
    fy_guard_options_t guard = FY_GUARD_LIGHT_ONLY;
    fy_dataset_t *dataset = make_set();
    fy_loader_t *loader = (fy_loader_t *)&guard;
    fy_scope_t scope = fy_scope_begin("guarded");
    ts_ok(fy_scope_guard(&guard));
    ts_fails(fy_loader_create(ctx->device, dataset, &options, &loader), REFUSED_BY_GUARD);
    assert_null(loader);
    fy_scope_end(scope, 0, NULL);
    fy_dataset_destroy(dataset);
}

TS_DEVICE_TEST(a_recording_refuses_loaders)
{
    for (size_t w = 0; w < NWAYS; w += 3) {
        fy_loader_options_t options = options_of(w);
        fy_loader_t *loader = make(ctx, &options);
        fy_graph_t *graph;
        fy_tensor_t *x, *y;
        batch_t first, again;
        fy_loader_t *other = make(ctx, &options);
        first = next(other);
        ts_ok(fy_graph_begin(ctx->device));
        ts_fails(fy_loader_next(loader, &x, &y), UNSUPPORTED);
        assert_null(x);
        ts_fails(fy_graph_end(&graph), UNSUPPORTED);
        assert_int_equal(query(loader).step, 0);
        again = next(loader); /* no batch was lost */
        expect_same(&again, &first);
        fy_loader_destroy(loader);
        fy_loader_destroy(other);
    }
}

/* Returns the number of batches that were uploaded while `taken` were requested. The loader is
 * destroyed at the end, so no upload is pending any more. */
static int64_t uploaded(ts_ctx_t *ctx, size_t way, int64_t limit, int taken)
{
    fy_loader_options_t options = options_of(way);
    const fy_ledger_totals_t before = ts_ledger(NULL);
    fy_loader_t *loader = make(ctx, &options);
    ts_ok(fy_loader_limit(loader, limit));
    fy_scope_t scope = fy_scope_begin("steps");
    fy_tensor_t *x, *y;
    for (int i = 0; i < taken; i++) ts_ok(fy_loader_next(loader, &x, &y));
    fy_scope_end(scope, 0, NULL);
    fy_loader_destroy(loader); /* joins its threads */
    const fy_ledger_totals_t after = ts_ledger(NULL);
    assert_int_equal((after.upload.count - before.upload.count) % 2, 0);
    return (int64_t)(after.upload.count - before.upload.count) / 2;
}

/* A streamed loader uploads the requested batches and no batch more: to the end of the epoch, or up
 * to the limit. */
TS_DEVICE_TEST(no_unrequested_batch_is_uploaded)
{
    for (size_t w = 1; w < NWAYS; w++) {
        assert_int_equal(uploaded(ctx, w, 0, 0), 0);
        assert_int_equal(uploaded(ctx, w, 0, STEPS), STEPS);
        /* the end was reported, and the caller did not continue */
        assert_int_equal(uploaded(ctx, w, 0, STEPS + 1), STEPS);
        assert_int_equal(uploaded(ctx, w, 0, 2 * (STEPS + 1)), 2 * STEPS);
        assert_int_equal(uploaded(ctx, w, 3, 3), 3);
        assert_int_equal(uploaded(ctx, w, 3, 5), 5); /* a request for more batches is no failure */
        assert_int_equal(uploaded(ctx, w, STEPS + 2, STEPS + 1 + 2), STEPS + 2);
    }
    fy_loader_t *loader = make_way(ctx, 2);
    ts_ok(fy_loader_limit(loader, INT64_MAX));
    ts_fails(fy_loader_limit(loader, -1), INVALID_ARGUMENT);
    ts_fails(fy_loader_limit(NULL, 1), INVALID_ARGUMENT);
    ts_fails(fy_loader_seek(loader, INT64_MAX / 2, 0), INVALID_ARGUMENT);
    fy_loader_destroy(loader);
}

static void child(fy_loader_t *loader)
{
    fy_tensor_t *x, *y;
    alarm(240);
    if (fy_loader_next(loader, &x, &y) != FY_STATUS_UNAVAILABLE || x) _exit(1);
    if (fy_loader_seek(loader, 0, 0) != FY_STATUS_UNAVAILABLE) _exit(2);
    fy_loader_destroy(loader);
    _exit(0);
}

TS_DEVICE_TEST(a_forked_child_is_refused)
{
    for (size_t w = 1; w < 5; w++) {
        fy_loader_t *loader = make_way(ctx, w);
        skip_batches(loader, 1);
        fflush(NULL);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) child(loader);
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (!WIFEXITED(status) || WEXITSTATUS(status)) fail_msg("the child gave up: %x", status);
        assert_int_equal(next(loader).rows, BATCH); /* the parent continues */
        fy_loader_destroy(loader);
    }
}

TS_DEVICE_TEST(bad_options_are_refused)
{
    fy_dataset_t *dataset = make_set(), *none, *all;
    fy_loader_t *loader;
    fy_tensor_t *x, *y;
#define REFUSED(change)                                                                        \
    do {                                                                                       \
        fy_loader_options_t options = FY_LOADER_OPTIONS_INIT;                                  \
        change;                                                                                \
        loader = (fy_loader_t *)&options;                                                      \
        ts_fails(fy_loader_create(ctx->device, dataset, &options, &loader), INVALID_ARGUMENT); \
        assert_null(loader);                                                                   \
    } while (0)
    REFUSED(options.batch = 0);
    REFUSED(options.batch = N + 1; options.drop_last = 1);
    REFUSED(options.workers = 1); /* not for a resident set */
    REFUSED(options.resident = 0; options.workers = 17);
    REFUSED(options.workers = -1);
    REFUSED(options.depth = 0);
    REFUSED(options.depth = 65);
    REFUSED(options.scale = NAN);
    REFUSED(options.channels = 2);
    REFUSED(options.channels = 5);
    REFUSED(options.channels = 1; options.std[0] = 0);
    REFUSED(options.channels = 3; options.mean[2] = INFINITY);
    ts_ok(fy_dataset_split(dataset, 0, -1, &none, &all));
    ts_fails(fy_loader_create(ctx->device, none, NULL, &loader), INVALID_ARGUMENT);
    ts_fails(fy_loader_create(NULL, dataset, NULL, &loader), INVALID_ARGUMENT);
    ts_fails(fy_loader_create(ctx->device, NULL, NULL, &loader), INVALID_ARGUMENT);
    ts_fails(fy_loader_next(NULL, &x, &y), INVALID_ARGUMENT);
    ts_ok(fy_loader_create(ctx->device, all, NULL, &loader)); /* batches of 64, but there are 53 */
    assert_int_equal(query(loader).steps, 1);
    assert_int_equal(query(loader).batch, N);
    fy_loader_destroy(loader);
    fy_dataset_destroy(none);
    fy_dataset_destroy(all);
    fy_dataset_destroy(dataset);
}
