/* Which pieces belong to which transfer: calls with packed tensors and others, recorded on a
 * simulated device. Not here: times (test_predict.sh). */

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <ferry/ferry.h>

#include "tests/support/test.h"
#include "tools/program/program.h"

enum { SMALL = 3, LARGE = 2, COUNT = SMALL + LARGE, SMALL_NBYTES = 1000, LARGE_NBYTES = 1 << 20 };

static char path[] = "/tmp/ferry-pieces-XXXXXX";

static fy_status_t run(fy_device_t *device, bool is_download)
{
    fy_tensor_t *on_host[COUNT], *on_device[COUNT], *host;
    fy_download_t *replies[COUNT];
    for (int i = 0; i < COUNT; i++) { /* large ones in between */
        const int64_t nbytes = i % 2 ? LARGE_NBYTES + i : SMALL_NBYTES;
        FY_TRY(fy_zeros(fy_device_host(), FY_DTYPE_U8, FY_DIMS(nbytes), &on_host[i]));
        FY_TRY(fy_zeros(device, FY_DTYPE_U8, FY_DIMS(nbytes), &on_device[i]));
    }
    if (!is_download) return fy_tensor_upload_many_into(COUNT, on_device, on_host, NULL, NULL);
    FY_TRY(fy_tensor_download_many(COUNT, on_device, NULL, replies));
    for (int i = 0; i < COUNT; i++) FY_TRY(fy_download_wait(replies[i], FY_FOREVER, &host));
    return FY_STATUS_OK;
}

static void record(bool is_download, program_t *out_program)
{
    fy_device_t *device;
    assert_int_equal(fy_ledger_record(path), FY_STATUS_OK);
    assert_int_equal(fy_device_open("sim:0", &device), FY_STATUS_OK);
    fy_scope_t scope = fy_scope_begin("run");
    assert_int_equal(run(device, is_download), FY_STATUS_OK);
    fy_scope_end(scope, 0, NULL);
    fy_device_close(device);
    assert_int_equal(fy_ledger_record(NULL), FY_STATUS_OK);
    assert_int_equal(program_read(path, out_program), FY_STATUS_OK);
}

/* Each large transfer has the pieces of its bytes; the first packed one has those of the run. */
static void check(bool is_download, uint64_t run_pieces)
{
    program_t program;
    record(is_download, &program);
    uint64_t npacked = 0, nothers = 0;
    for (uint32_t i = 0; i < program.nevents; i++) {
        const program_event_t *transfer = &program.events[i];
        uint64_t nbytes = 0, count = 0;
        if (transfer->kind != PROGRAM_TRANSFER) continue;
        for (uint32_t k = 0; k < program.nevents; k++)
            if (program.events[k].kind == PROGRAM_COPY && program.events[k].parent == i) {
                nbytes += program.events[k].nbytes;
                count++;
            }
        assert_int_equal(transfer->number, count);
        if (strcmp(transfer->path, "coalesced") == 0) {
            assert_int_equal(count, npacked ? 0 : run_pieces);
            if (!npacked++) assert_true(nbytes >= SMALL * SMALL_NBYTES);
        } else {
            assert_int_equal(nbytes, transfer->nbytes);
            nothers++;
        }
    }
    assert_int_equal(npacked, SMALL);
    assert_int_equal(nothers, LARGE);
    program_free(&program);
}

TS_TEST(test_uploads) { check(false, 1); }

/* The table of the kernel that collects them is uploaded. */
TS_TEST(test_downloads) { check(true, 2); }

static int set_up(void **state)
{
    (void)state;
    const int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int tear_down(void **state)
{
    (void)state;
    return unlink(path);
}

TS_SUITE(.begin = set_up, .end = tear_down);
