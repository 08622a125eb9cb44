/* The two launches that are not ops, called at the backend's slot. Pieces of every length and
 * alignment are packed and unpacked again. No byte between them changes. A foreign address is
 * refused where the backend can detect it. */
#include "runtime/order/stream.h"
#include "runtime/tensor/tensor.h"
#include "tests/support/harness.h"

enum { PIECES = 300, ROOM = 200, RUN = PIECES * 208 };

typedef struct run {
    _Alignas(16) unsigned char bytes[RUN];
    fy_packed_entry_t table[PIECES];
} run_t;

static fy_desc_t bytes_of(const fy_tensor_t *tensor)
{
    return (fy_desc_t){ .data = tensor->data,
                        .dtype = FY_DTYPE_U8,
                        .rank = 1,
                        .dims = { (int64_t)tensor->nelem },
                        .strides = { 1 } };
}

static fy_status_t launch(ts_ctx_t *ctx, fy_op_t op, fy_tensor_t *dst, fy_tensor_t *src,
                          uint64_t table_offset)
{
    fy_desc_t descs[2] = { bytes_of(dst), bytes_of(src) };
    const fy_packed_t packed = { table_offset, PIECES };
    const fy_launch_t record = {
        .struct_size = sizeof record,
        .op = op,
        .nsrc = 1,
        .ndst = op == FY_LAUNCH_GATHER,
        .dst = &descs[0],
        .src = &descs[1],
        .attrs = &packed,
        .attrs_nbytes = sizeof packed,
        .nelem = RUN,
    };
    fy_device_t *device = ctx->device;
    ts_ok(fy_device_wait(device, FY_FOREVER));
    FY_TRY(device->backend->launch(device->dev, device->compute ? device->compute->native : NULL,
                                   &record));
    if (device->compute) (void)fy__stream_submitted(device->compute);
    return fy_device_wait(device, FY_FOREVER);
}

static fy_tensor_t *upload_bytes(ts_ctx_t *ctx, void *bytes, int64_t n)
{
    return ts_upload(ctx->device, FY_DTYPE_U8, FY_DIMS(n), bytes);
}

/* Piece i has length i (up to ROOM), at an odd offset every third time. */
static uint64_t length_of(int i) { return (uint64_t)(i % ROOM) + (i % 2 ? 0 : 1); }
static uint64_t place_of(int i) { return (uint64_t)i * (ROOM + 40) + (i % 3 == 0 ? 3 : 16); }

TS_DEVICE_TEST(packed_pieces_come_back_unchanged)
{
    enum { SPACE = PIECES * (ROOM + 40) + 64 };
    static run_t run;
    static unsigned char got[SPACE], want[SPACE], back[RUN];
    memset(want, 0xEE, sizeof want);
    for (int i = 0; i < RUN; i++) run.bytes[i] = (unsigned char)(i * 2654435761u >> 11);
    fy_tensor_t *space = upload_bytes(ctx, want, SPACE);
    uint64_t at = 0;
    for (int i = 0; i < PIECES; i++) {
        run.table[i] =
            (fy_packed_entry_t){ (uint64_t)(uintptr_t)space->data + place_of(i), at, length_of(i) };
        memcpy(want + place_of(i), run.bytes + at, length_of(i));
        at += (length_of(i) + 15) / 16 * 16;
    }
    fy_tensor_t *packed = upload_bytes(ctx, &run, sizeof run);
    ts_ok(launch(ctx, FY_LAUNCH_SCATTER, packed, packed, offsetof(run_t, table)));
    ts_read(space, got, SPACE);
    assert_memory_equal(got, want, SPACE);

    fy_tensor_t *table = upload_bytes(ctx, run.table, sizeof run.table), *collected;
    ts_ok(fy_full(ctx->device, FY_DTYPE_U8, FY_DIMS(RUN), 0x55, &collected));
    ts_ok(launch(ctx, FY_LAUNCH_GATHER, collected, table, 0));
    ts_read(collected, back, RUN);
    for (int i = 0; i < PIECES; i++) {
        assert_memory_equal(back + run.table[i].offset, run.bytes + run.table[i].offset,
                            length_of(i));
        if (length_of(i) % 16) assert_int_equal(back[run.table[i].offset + length_of(i)], 0x55);
    }
}

TS_DEVICE_TEST(a_foreign_address_is_refused)
{
    static run_t run;
    /* a request that runs later fails later */
    if (!ctx->is_sim || strstr(ctx->spec, "order=")) skip();
    for (int i = 0; i < PIECES; i++)
        run.table[i] = (fy_packed_entry_t){ (uint64_t)(uintptr_t)&run, 0, 8 };
    fy_tensor_t *packed = upload_bytes(ctx, &run, sizeof run);
    ts_fails_with(launch(ctx, FY_LAUNCH_SCATTER, packed, packed, offsetof(run_t, table)),
                  INVALID_ARGUMENT, "piece[0]");
    for (int i = 0; i < PIECES; i++)
        run.table[i] = (fy_packed_entry_t){ (uint64_t)(uintptr_t)packed->data, sizeof run, 8 };
    packed = upload_bytes(ctx, &run, sizeof run);
    ts_fails_with(launch(ctx, FY_LAUNCH_SCATTER, packed, packed, offsetof(run_t, table)),
                  INVALID_ARGUMENT, "piece 0 ends");
}
