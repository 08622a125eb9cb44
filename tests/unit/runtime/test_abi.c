/* runtime/base/abi: structs of callers that were built with another version of a header. First on
 * a struct with two versions, then each struct of the public headers through the call that takes
 * it. */
#include "runtime/base/abi.h"

#include "runtime/base/abi_structs.h"
#include "tests/support/abi_sweep.h"
#include "tests/support/harness.h"

/* ---- one struct in two versions ---- */

typedef struct fy_sample_old {
    size_t struct_size;
    int depth;
    uint64_t limit;
} fy_sample_old_t;
typedef struct fy_sample {
    size_t struct_size;
    int depth;
    uint64_t limit;
    double scale; /* new */
    int is_new;
} fy_sample_t;
static const fy_sample_t sample_defaults = { sizeof sample_defaults, 3, 7, 0.5, 1 };
static const fy__abi_t fy__abi_sample = { "fy_sample_t", "FY_SAMPLE_INIT",
                                          FY__ABI_SIZE(fy_sample_t, limit), sizeof(fy_sample_t),
                                          &sample_defaults };

TS_TEST(sizes_are_those_of_the_compiler)
{
    assert_int_equal(FY__ABI_SIZE(fy_sample_t, limit), sizeof(fy_sample_old_t));
    assert_int_equal(FY__ABI_SIZE(fy_sample_t, is_new), sizeof(fy_sample_t));
}

TS_TEST(an_older_caller_gets_the_defaults_of_new_fields)
{
    fy_sample_t own;
    const fy_sample_old_t old = { sizeof old, 5, 6 };
    const fy_sample_t *given = (const void *)&old;
    ts_ok(FY__READ(sample, "test", given, &own));
    assert_int_equal(own.struct_size, sizeof own);
    assert_int_equal(own.depth, 5);
    assert_int_equal(own.limit, 6);
    assert_true(own.scale == 0.5 && own.is_new == 1);
    given = NULL;
    ts_ok(FY__READ(sample, "test", given, &own));
    assert_memory_equal(&own, &sample_defaults, sizeof own);
    ts_fails_with(FY__READ_GIVEN(sample, "test", given, &own), INVALID_ARGUMENT,
                  "test: given is NULL; start from FY_SAMPLE_INIT");
}

TS_TEST(facts_fill_what_the_caller_has_room_for)
{
    const fy_sample_t facts = { sizeof facts, 1, 2, 3.5, 4 };
    struct {
        fy_sample_old_t old;
        uint64_t guard;
    } small = { { sizeof small.old, 0, 0 }, 77 };
    struct {
        fy_sample_t own;
        uint64_t newer[2];
    } large = { { .struct_size = sizeof large }, { 8, 9 } };
    fy_sample_t *out = (void *)&small;
    FY__WRITE(out, &facts);
    assert_int_equal(small.old.struct_size, sizeof small.old);
    assert_true(small.old.depth == 1 && small.old.limit == 2 && small.guard == 77);
    FY__WRITE(&large.own, &facts);
    assert_int_equal(large.own.struct_size, sizeof large);
    assert_true(large.own.scale == 3.5 && large.own.is_new == 4);
    assert_true(large.newer[0] == 0 && large.newer[1] == 0);
}

TS_TEST(init_writes_what_the_caller_has_room_for)
{
    fy_pool_options_t options, same = FY_POOL_OPTIONS_INIT;
    struct {
        fy_stream_options_t own;
        uint64_t newer;
    } large = { .newer = 5 };
    size_t only = 9;
    memset(&options, 0xAB, sizeof options);
    fy_pool_options_init(&options, sizeof options);
    assert_int_equal(options.struct_size, sizeof options);
    assert_true(options.alignment == same.alignment && options.limit == same.limit &&
                options.keeps_segments == 0);
    fy_stream_options_init(&large.own, sizeof large);
    assert_int_equal(large.own.struct_size, sizeof large);
    assert_int_equal(large.newer, 0);
    fy_pool_options_init((fy_pool_options_t *)(void *)&only, sizeof only);
    assert_int_equal(only, sizeof only);
    fy_pool_options_init(NULL, 100);
}

/* ---- all of them ---- */

static fy_device_t *sim;

static fy_tensor_t *ones(fy_device_t *device, fy_dtype_t dtype)
{
    fy_tensor_t *x;
    ts_ok(fy_full(device, dtype, FY_DIMS(2), 1, &x));
    return x;
}

static fy_status_t device_open_with(void *given)
{
    fy_device_t *device;
    const fy_status_t status = fy_device_open_with("sim:1", given, &device);
    fy_device_close(device);
    return status;
}
static fy_status_t stream_create(void *given)
{
    fy_stream_t *stream;
    const fy_status_t status = fy_stream_create(sim, given, &stream);
    fy_stream_destroy(stream);
    return status;
}
static fy_status_t tensor_upload(void *given)
{
    fy_tensor_t *x = ones(fy_device_host(), FY_DTYPE_F32), *y;
    return fy_tensor_upload(x, sim, given, &y);
}
static fy_status_t tensor_upload_into(void *given)
{
    fy_tensor_t *x = ones(fy_device_host(), FY_DTYPE_F32);
    return fy_tensor_upload_into(ones(sim, FY_DTYPE_F32), x, given, NULL);
}
static fy_status_t tensor_download(void *given)
{
    fy_download_t *download;
    return fy_tensor_download(ones(sim, FY_DTYPE_F32), given, &download);
}
static fy_status_t scope_guard(void *given)
{
    const fy_scope_t scope = fy_scope_begin("guarded");
    const fy_status_t status = fy_scope_guard(given);
    fy_scope_end(scope, 0, NULL);
    return status;
}
static fy_status_t plan_of(fy_device_t *device, int64_t batch, void *user)
{
    (void)user;
    fy_tensor_t *x;
    return fy_zeros(device, FY_DTYPE_F32, FY_DIMS(batch), &x);
}
static fy_status_t plan_step(void *given)
{
    fy_plan_t plan = FY_PLAN_INIT;
    return fy_plan_step("sim", plan_of, NULL, 1, given, &plan);
}
static fy_status_t plan_out(void *given)
{
    return fy_plan_step("sim", plan_of, NULL, 1, NULL, given);
}
static fy_status_t plan_fit(void *given)
{
    int64_t batch;
    return fy_plan_fit("sim", plan_of, NULL, 4, &batch, given);
}
static fy_status_t pool_create(void *given)
{
    fy_pool_t *pool;
    const fy_status_t status = fy_pool_create(given, &pool);
    fy_pool_destroy(pool);
    return status;
}
static fy_status_t fill(void *user, fy_batch_t *batch)
{
    (void)user;
    batch->is_end = 1;
    return FY_STATUS_OK;
}
static fy_status_t prefetch_create(void *given)
{
    const fy_batch_spec_t spec = { FY_DTYPE_F32, 1, { 2 } };
    fy_prefetch_t *prefetch;
    const fy_status_t status = fy_prefetch_create(sim, 1, &spec, fill, NULL, given, &prefetch);
    fy_prefetch_destroy(prefetch);
    return status;
}
static fy_status_t tape_backward(void *given)
{
    fy_tape_t *tape;
    fy_tensor_t *x = ones(sim, FY_DTYPE_F32), *loss;
    ts_ok(fy_tape_create(&tape));
    ts_ok(fy_tape_watch(tape, x, NULL));
    ts_ok(fy_tape_begin(tape));
    ts_ok(fy_sum(x, FY_ALL_AXES, 0, &loss));
    return fy_tape_backward(tape, loss, given);
}
static fy_status_t squares(void *user, size_t count, fy_tensor_t *const *inputs,
                           fy_tensor_t **out_result)
{
    (void)user, (void)count;
    return fy_mul(inputs[0], inputs[0], out_result);
}
static fy_status_t tape_recompute(void *given)
{
    fy_tensor_t *x = ones(sim, FY_DTYPE_F32), *y;
    return fy_tape_recompute(squares, NULL, 1, &x, given, &y);
}
static fy_status_t no_gradient(const fy_op_backward_t *call, fy_tensor_t **src_grad)
{
    (void)call, (void)src_grad;
    return FY_STATUS_OK;
}
static fy_status_t tape_attach(void *given)
{
    fy_tensor_t *x = ones(sim, FY_DTYPE_F32), *y = ones(sim, FY_DTYPE_F32);
    return fy_tape_attach(no_gradient, NULL, 1, &x, y, given);
}
/* The defaults lack the id, which is found after the struct has been read. */
static fy_status_t communicator_open(void *given)
{
    fy_communicator_t *none;
    const fy_status_t status = fy_communicator_open(sim, given, &none);
    return strstr(fy_error_get()->text, "id is NULL") ? FY_STATUS_OK : status;
}
static fy_status_t gradcheck(void *given)
{
    fy_gradcheck_result_t result = FY_GRADCHECK_RESULT_INIT;
    fy_tensor_t *x = ones(fy_device_host(), FY_DTYPE_F64);
    return fy_gradcheck(squares, NULL, 1, &x, given, &result);
}
static fy_status_t gradcheck_out(void *given)
{
    fy_tensor_t *x = ones(fy_device_host(), FY_DTYPE_F64);
    return fy_gradcheck(squares, NULL, 1, &x, NULL, given);
}
static fy_status_t device_query(void *given) { return fy_device_query(sim, given); }
static fy_status_t device_clock_query(void *given) { return fy_device_clock_query(sim, given); }
static fy_status_t plugin_query(void *given)
{
    return fy_plugin_query(0, given) ? FY_STATUS_OK : fy_error_get()->status;
}
static fy_status_t tensor_query(void *given)
{
    return fy_tensor_query(ones(sim, FY_DTYPE_F32), given);
}
static fy_status_t graph_query(void *given)
{
    fy_tensor_t *x = ones(sim, FY_DTYPE_F32), *y;
    ts_ok(fy_graph_begin(sim));
    ts_ok(fy_neg(x, &y));
    fy_graph_t *graph = ts_graph_end();
    return fy_graph_query(graph, given);
}
static fy_status_t ledger_query(void *given) { return fy_ledger_query(NULL, given); }
static fy_status_t memory_query(void *given) { return fy_memory_query(sim, NULL, given); }
static fy_status_t memory_of_scope(void *given) { return fy_memory_query(sim, "a", given); }
static fy_status_t memory_peek(void *given) { return fy_memory_peek(sim, given); }
static fy_status_t memory_pinned(void *given) { return fy_memory_query_pinned(sim, given); }
static fy_status_t memory_allocs(void *given) { return fy_memory_query_alloc_stats(sim, given); }
static fy_status_t pool_query(void *given)
{
    fy_pool_t *pool;
    ts_ok(fy_pool_create(NULL, &pool));
    const fy_status_t status = fy_pool_query(pool, given);
    fy_pool_destroy(pool);
    return status;
}
static fy_status_t tape_query(void *given)
{
    fy_tape_t *tape;
    ts_ok(fy_tape_create(&tape));
    return fy_tape_query(tape, given);
}
static fy_status_t autocast_query(void *given) { return fy_autocast_query(given); }
static fy_status_t no_kernel(const fy_launch_t *launch, void *stream)
{
    return (void)launch, (void)stream, FY_STATUS_OK;
}
/* Registers an op with the fields of the first versions of both structs. */
static fy_status_t op_register_with(fy_op_def_t *def, fy_op_info_t *info)
{
    static int count;
    char name[32];
    const fy_op_kernel_t kernel = { "host", no_kernel, NULL };
    fy_op_t op;
    snprintf(name, sizeof name, "test.abi%d", count++);
    info->name = name;
    info->nsrc_min = info->nsrc_max = info->ndst = 1;
    info->flags = FY_OP_ELEMENTWISE;
    info->dtypes = FY_DTYPE_BIT(FY_DTYPE_F32);
    def->info = info;
    def->nkernels = 1;
    def->kernels = &kernel;
    return fy_op_register(def, &op);
}
static fy_status_t op_register(void *given)
{
    fy_op_info_t info = FY_OP_INFO_INIT;
    return op_register_with(given, &info);
}
static fy_status_t op_register_info(void *given)
{
    fy_op_def_t def = FY_OP_DEF_INIT;
    return op_register_with(&def, given);
}

static const ts_abi_case_t cases[] = {
    TS_ABI_OPTIONS(device_options, device_open_with),
    TS_ABI_OPTIONS(stream_options, stream_create),
    TS_ABI_OPTIONS(transfer_options, tensor_upload),
    TS_ABI_OPTIONS(transfer_options, tensor_upload_into),
    TS_ABI_OPTIONS(transfer_options, tensor_download),
    TS_ABI_OPTIONS(guard_options, scope_guard),
    TS_ABI_OPTIONS(plan_options, plan_step),
    TS_ABI_OPTIONS(pool_options, pool_create),
    TS_ABI_OPTIONS(prefetch_options, prefetch_create),
    TS_ABI_OPTIONS(communicator_options, communicator_open),
    TS_ABI_OPTIONS(backward_options, tape_backward),
    TS_ABI_OPTIONS(attach_options, tape_attach),
    TS_ABI_OPTIONS(recompute_options, tape_recompute),
    TS_ABI_OPTIONS(gradcheck_options, gradcheck),
    TS_ABI_OPTIONS(op_def, op_register),
    TS_ABI_OPTIONS(op_info, op_register_info),
    TS_ABI_FACTS(device_info, device_query),
    TS_ABI_FACTS(device_clock, device_clock_query),
    TS_ABI_FACTS(plugin_info, plugin_query),
    TS_ABI_FACTS(tensor_info, tensor_query),
    TS_ABI_FACTS(graph_info, graph_query),
    TS_ABI_FACTS(ledger_totals, ledger_query),
    TS_ABI_FACTS(memory_stats, memory_query),
    TS_ABI_FACTS(memory_stats, memory_of_scope),
    TS_ABI_FACTS(memory_stats, memory_peek),
    TS_ABI_FACTS(memory_stats, memory_pinned),
    TS_ABI_FACTS(memory_stats, pool_query),
    TS_ABI_FACTS(memory_alloc_stats, memory_allocs),
    TS_ABI_FACTS(plan, plan_out),
    TS_ABI_FACTS(plan, plan_fit),
    TS_ABI_FACTS(tape_info, tape_query),
    TS_ABI_FACTS(autocast_info, autocast_query),
    TS_ABI_FACTS(gradcheck_result, gradcheck_out),
};
enum { CASES = sizeof cases / sizeof *cases };

TS_TEST(every_size_of_every_struct)
{
    ts_ok(fy_device_open("sim:0", &sim));
    for (size_t i = 0; i < CASES; i++) {
        const fy_scope_t scope = fy_scope_begin("sweep");
        ts_abi_sweep(&cases[i]);
        fy_scope_end(scope, 0, NULL);
    }
    fy_device_close(sim);
}

/* Seeds, priorities; switches, which are on if they are not 0. */
static const ts_abi_signed_t may_be_negative[] = {
    { "fy_gradcheck_options.seed", INT64_MIN },
    { "fy_stream_options.priority", INT64_MIN },
    { "fy_transfer_options.priority", INT64_MIN },
    { "fy_transfer_options.convert", INT64_MIN },
    { "fy_backward_options.accumulate", INT64_MIN },
    { "fy_pool_options.release_eagerly", INT64_MIN },
    { "fy_pool_options.keeps_segments", INT64_MIN },
    { NULL, 0 },
};

TS_TEST(negative_numbers_are_refused)
{
    ts_ok(fy_device_open("sim:0", &sim));
    ts_abi_refuse_negative("tests/abi/libferry.abi", cases, CASES, may_be_negative);
    fy_device_close(sim);
}

/* A struct without a call above would be one that this test does not look at. */
TS_TEST(no_struct_is_left_out)
{
#define X(name, NAME, last) &fy__abi_##name,
    const fy__abi_t *const structs[] = { FY__ABI_OPTIONS(X) FY__ABI_FACTS(X) };
#undef X
    for (size_t i = 0; i < sizeof structs / sizeof *structs; i++) {
        size_t n = 0;
        while (n < CASES && cases[n].abi != structs[i]) n++;
        if (n == CASES) fail_msg("no call with %s", structs[i]->name);
    }
}
