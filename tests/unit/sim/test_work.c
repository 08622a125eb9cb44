/* Tests of backends/sim/work.c: bytes arrive where they are sent, kernels see the bytes of their
 * operands, refusals cost nothing, wire bytes add up, and numerics=off touches no bytes. */
#include "tests/unit/sim/fixture.h"

#include "backends/sim/clock.h"

static world_t begin(int index)
{
    world_t w = MAKE_WORLD(index, 65536, NULL, 0, "capacity=1048576");
    memset(wire_nbytes, 0, sizeof(wire_nbytes));
    return w;
}

static void put(world_t *w, uint64_t at, const void *src, uint64_t nbytes)
{
    sim_ok(copy(w->dev, w->stream[0], FY_COPY_UPLOAD, 0, w->block + at, src, nbytes));
}

static void get(world_t *w, void *dst, uint64_t at, uint64_t nbytes)
{
    sim_ok(copy(w->dev, w->stream[0], FY_COPY_DOWNLOAD, 0, dst, w->block + at, nbytes));
}

TS_TEST(copies_and_wire_bytes)
{
    world_t a = begin(0), b = begin(1);
    char back[16] = "";
    put(&a, 100, "hello, device", 14);
    sim_ok(copy(a.dev, a.stream[0], FY_COPY_LOCAL, 0, a.block + 300, a.block + 100, 14));
    sim_ok(copy(b.dev, b.stream[0], FY_COPY_PEER, 0, b.block + 7, a.block + 300, 14));
    sim_ok(sim->fill(b.dev, b.stream[0], b.block + 12, '-', 2));
    get(&b, back, 7, 14);
    assert_string_equal(back, "hello--device");
    get(&a, back, 300, 14);
    assert_string_equal(back, "hello, device");
    assert_int_equal(wire_nbytes[FY_COPY_UPLOAD], 14);
    assert_int_equal(wire_nbytes[FY_COPY_DOWNLOAD], 28);
    assert_int_equal(wire_nbytes[FY_COPY_PEER], 14);
    assert_int_equal(wire_nbytes[FY_COPY_LOCAL], 0);
}

TS_TEST(refused_copies_cost_nothing)
{
    world_t a = begin(0), b = begin(1), c = begin(2);
    uint64_t start = fy__sim_clock_now();
    char on_host[8] = "";
    sim_fails(copy(a.dev, a.stream[0], FY_COPY_PEER, 0, a.block, a.block + 8, 8), INVALID_ARGUMENT);
    sim_fails_with(copy(a.dev, a.stream[0], FY_COPY_PEER, 0, b.block, c.block, 8), INVALID_ARGUMENT,
                   "from sim:2 to sim:1");
    sim_fails_with(copy(a.dev, a.stream[0], FY_COPY_PEER, 0, b.block, on_host, 8), INVALID_ARGUMENT,
                   "not an address of any simulated device");
    sim_fails(copy(a.dev, a.stream[0], FY_COPY_LOCAL, 0, a.block, b.block, 8), INVALID_ARGUMENT);
    sim_fails(copy(a.dev, a.stream[0], FY_COPY_UPLOAD, 0, a.block + 65535, on_host, 2),
              INVALID_ARGUMENT);
    sim_fails(copy(a.dev, a.stream[0], (fy_copy_kind_t)9, 0, a.block, on_host, 2),
              INVALID_ARGUMENT);
    assert_int_equal(fy__sim_clock_now(), start);
    for (int kind = 0; kind < 4; kind++) assert_int_equal(wire_nbytes[kind], 0);
}

TS_TEST(built_in_ops_run_the_host_kernels)
{
    world_t w = begin(0);
    const float x[4] = { 1, 2, 3, 4 }, y[4] = { 10, 20, 30, 40 };
    float z[4] = { 0 };
    put(&w, 0, x, sizeof(x));
    put(&w, 256, y, sizeof(y));
    fy_desc_t src[2] = { dense_f32(w.block, 4), dense_f32(w.block + 256, 4) },
              dst = dense_f32(w.block + 512, 4);
    fy_launch_t record = launch_into(&dst, FY_OP_ADD, NULL);
    record.flags = FY_LAUNCH_DENSE;
    record.nsrc = 2;
    record.src = src;
    record.nelem = record.flops = 4;
    record.nbytes = 48;
    assert_int_equal(sim->supports(w.dev, &record), 1);
    assert_in_range(sim->workspace(w.dev, &record, 1024), 0, 1024);
    sim_ok(sim->launch(w.dev, w.stream[0], &record));
    assert_ptr_equal(dst.data, w.block + 512); /* the caller's record is untouched */
    assert_ptr_equal(src[1].data, w.block + 256);
    get(&w, z, 512, sizeof(z));
    for (int i = 0; i < 4; i++) assert_true(z[i] == x[i] + y[i]);
}

TS_TEST(unsupported_ops_are_refused)
{
    world_t w = begin(0);
    fy_desc_t dst = dense_f32(w.block, 4);
    fy_launch_t record = launch_into(&dst, FY_OP_BUILTIN_COUNT + 3, NULL);
    uint64_t start = fy__sim_clock_now();
    assert_int_equal(sim->supports(w.dev, &record), 0);
    sim_fails_with(sim->launch(w.dev, w.stream[0], &record), UNSUPPORTED,
                   "sim:0: no kernel for a registered op");
    assert_int_equal(fy__sim_clock_now(), start);
}

/* ---- registered kernels get all arguments ---- */

/* Sums all elements of all sources, which are vectors of i32, into dst[0], and sets the fault word;
 * uses its workspace. */
static fy_status_t sum_all(const fy_launch_t *launch, void *stream)
{
    int32_t *dst = launch->dst[0].data;
    assert_null(stream);
    *dst = 0;
    for (int i = 0; i < launch->nsrc; i++)
        for (int64_t k = 0; k < launch->src[i].dims[0]; k++)
            *dst += *((int32_t *)launch->src[i].data + k * launch->src[i].strides[0]);
    if (launch->workspace_nbytes > 0) memset(launch->workspace, 0x55, launch->workspace_nbytes);
    if (launch->fault) *launch->fault = 1;
    return *(const fy_status_t *)launch->user;
}

static fy_launch_t sum_record(fy_desc_t *dst, uint16_t nsrc, fy_desc_t *src, fy_status_t *verdict)
{
    fy_launch_t record = launch_into(dst, FY_OP_BUILTIN_COUNT, sum_all);
    record.nsrc = nsrc;
    record.src = src;
    record.user = verdict;
    return record;
}

static fy_desc_t i32s(void *data, int64_t n, int64_t stride)
{
    return (fy_desc_t){
        .data = data, .dtype = FY_DTYPE_I32, .rank = 1, .dims = { n }, .strides = { stride }
    };
}

TS_TEST(kernels_get_every_pointer)
{
    world_t w = begin(0);
    int32_t words[64], sum = 0;
    fy_status_t verdict = FY_STATUS_OK;
    uint32_t fault = 0;
    for (int i = 0; i < 64; i++) words[i] = i;
    put(&w, 0, words, sizeof(words));
    fy_desc_t dst = i32s(w.block + 4096, 1, 1), src[20];
    /* more operands than fit on the stack */
    for (int i = 0; i < 20; i++) src[i] = i32s(w.block + 4 * i, 1, 1);
    src[3] = i32s(w.block + 4 * 40, 4, -10);  /* 40 30 20 10 */
    src[4] = i32s(w.block + 65536 - 4, 0, 1); /* nothing: 0 elements */
    src[5] = i32s(NULL, 0, 1);
    src[6] = i32s(w.block + 4, 3, 0); /* 1 1 1 */
    fy_launch_t record = sum_record(&dst, 20, src, &verdict);
    record.fault = &fault;
    record.workspace = w.block + 8192;
    record.workspace_nbytes = 65536 - 8192;
    assert_int_equal(sim->supports(w.dev, &record), 1);
    assert_int_equal(sim->workspace(w.dev, &record, 4096), 0);
    sim_ok(sim->launch(w.dev, w.stream[0], &record));
    get(&w, &sum, 4096, 4);
    assert_int_equal(sum, 190 - (3 + 4 + 5 + 6) + 100 + 3);
    assert_int_equal(fault, 1);
    unsigned char last = 0;
    get(&w, &last, 65535, 1);
    assert_int_equal(last, 0x55);

    verdict = FY_STATUS_BAD_VALUE;
    sim_fails(sim->launch(w.dev, w.stream[0], &record), BAD_VALUE);
}

TS_TEST(operands_outside_are_refused)
{
    world_t w = begin(0);
    int32_t on_host = 5, sum = 0;
    fy_status_t verdict = FY_STATUS_OK;
    uint64_t start = fy__sim_clock_now();
    fy_desc_t dst = i32s(w.block, 1, 1), src[2] = { i32s(w.block, 1, 1), i32s(&on_host, 1, 1) };
    fy_launch_t record = sum_record(&dst, 2, src, &verdict);
    sim_fails_with(sim->launch(w.dev, w.stream[0], &record), INVALID_ARGUMENT,
                   "a registered op: src[1] at 0x");
    assert_non_null(strstr(said, "(4 bytes) is not an address of sim:0"));
    src[1] = i32s(w.block + 65536 - 8, 3, 1);
    sim_fails_with(sim->launch(w.dev, w.stream[0], &record), INVALID_ARGUMENT,
                   "needs 12 bytes; the block of sim:0 that it lies in ends after 8");
    src[1] = i32s(w.block + 8, 4, -1);
    sim_fails(sim->launch(w.dev, w.stream[0], &record), INVALID_ARGUMENT);
    src[1] = src[0];
    record.workspace = w.block;
    record.workspace_nbytes = 65537;
    sim_fails_with(sim->launch(w.dev, w.stream[0], &record), INVALID_ARGUMENT, "workspace");
    assert_int_equal(fy__sim_clock_now(), start);

    /* A kernel can also use page-locked host memory, at the same address. */
    record.workspace_nbytes = 0;
    dst = i32s(&sum, 1, 1);
    src[0] = src[1] = i32s(&on_host, 1, 1);
    sim_ok(sim->register_host(w.dev, &on_host, 4));
    sim_ok(sim->register_host(w.dev, &sum, 4));
    sim_ok(sim->launch(w.dev, w.stream[0], &record));
    assert_int_equal(sum, 10);
    sim->unregister_host(w.dev, &on_host, 4);
    sim->unregister_host(w.dev, &sum, 4);
}

/* ---- numerics=off ---- */

static fy_status_t never(const fy_launch_t *launch, void *stream)
{
    (void)launch, (void)stream;
    fail_msg("a kernel ran");
    return FY_STATUS_INTERNAL;
}

/* 100 GiB of weights on any machine: nothing is touched, and the clock still runs. */
TS_TEST(planning_without_numerics)
{
    const uint64_t size = 100ull << 30;
    world_t off = MAKE_WORLD(0, size, NULL, 0, "numerics=off"),
            on = MAKE_WORLD(1, 4096, NULL, 0, "capacity=4096");
    void *dev = off.dev, *stream = off.stream[0], *there = on.stream[0];
    unsigned char *block = off.block, *target = on.block;
    char got[64];
    fy_desc_t operand = dense_f32(block, (int64_t)(size / 4));
    fy_launch_t record = launch_into(&operand, FY_OP_BUILTIN_COUNT, never);
    record.nsrc = 1;
    record.src = &operand;
    record.flops = size;
    record.nbytes = 2 * size;
    memset(wire_nbytes, 0, sizeof(wire_nbytes));
    memset(got, 0xDC, sizeof(got));
    int before = nlogged;
    for (int i = 0; i < 1000; i++) {
        sim_ok(sim->launch(dev, stream, &record));
        sim_ok(sim->fill(dev, stream, block, 1, size));
        sim_ok(copy(dev, stream, FY_COPY_LOCAL, 0, block, block + size / 2, size / 2));
        sim_ok(copy(dev, stream, FY_COPY_UPLOAD, 0, block + size - 64, got, 64));
    }
    assert_int_equal(nlogged, before);
    for (int i = 0; i < 3; i++)
        sim_ok(copy(dev, stream, FY_COPY_DOWNLOAD, 0, got, block, sizeof(got)));
    for (size_t i = 0; i < sizeof(got); i++) assert_int_equal(got[i], 0);
    assert_int_equal(nlogged, before + 1); /* logged once */
    assert_int_equal(wire_nbytes[FY_COPY_UPLOAD], 64000);
    assert_int_equal(wire_nbytes[FY_COPY_DOWNLOAD], 192);
    assert_true(read_clock(dev).compute_ns > 1000 * (2 * size / 4800));

    /* Refusals are the same as with numerics. */
    record.op = FY_OP_BUILTIN_COUNT + 3;
    record.kernel = NULL;
    sim_fails(sim->launch(dev, stream, &record), UNSUPPORTED);
    sim_fails(sim->fill(dev, stream, block + size, 1, 1), INVALID_ARGUMENT);

    /* A peer with bytes receives zeros. */
    sim_ok(sim->fill(on.dev, there, target, 9, 4096));
    sim_ok(copy(dev, stream, FY_COPY_PEER, 0, target, block, 32));
    sim_ok(copy(on.dev, there, FY_COPY_DOWNLOAD, 0, got, target, 64));
    assert_int_equal(got[31], 0);
    assert_int_equal(got[32], 9);
    sim_ok(copy(on.dev, there, FY_COPY_PEER, 0, block, target, 32));
}

TS_SUITE(.begin = open_backend, .tear_down = end_worlds);
