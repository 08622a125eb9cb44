/* Which pieces belong to which transfer: calls with packed tensors and others, recorded on a
 * simulated device. Not here: times (test_predict.sh). */

#include "tests/unit/tools/recording.h"
#include "tools/program/program.h"

enum { SMALL = 3, LARGE = 2, COUNT = SMALL + LARGE, SMALL_NBYTES = 1000, LARGE_NBYTES = 1 << 20 };

static fy_status_t run(void *is_download, fy_device_t *device)
{
    fy_tensor_t *on_host[COUNT], *on_device[COUNT], *host;
    fy_download_t *replies[COUNT];
    for (int i = 0; i < COUNT; i++) { /* large ones in between */
        const int64_t nbytes = i % 2 ? LARGE_NBYTES + i : SMALL_NBYTES;
        FY_TRY(fy_zeros(fy_device_host(), FY_DTYPE_U8, FY_DIMS(nbytes), &on_host[i]));
        FY_TRY(fy_zeros(device, FY_DTYPE_U8, FY_DIMS(nbytes), &on_device[i]));
    }
    if (!*(bool *)is_download)
        return fy_tensor_upload_many_into(COUNT, on_device, on_host, NULL, NULL);
    FY_TRY(fy_tensor_download_many(COUNT, on_device, NULL, replies));
    for (int i = 0; i < COUNT; i++) FY_TRY(fy_download_wait(replies[i], FY_FOREVER, &host));
    return FY_STATUS_OK;
}

/* Each large transfer has the pieces of its bytes; the first packed one has those of the run. */
static void check(bool is_download, uint64_t run_pieces)
{
    program_t program;
    record_run("sim:0", run, &is_download);
    ts_ok(program_read(path, 0, &program));
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

TS_SUITE(FILE_OF_SUITE);
