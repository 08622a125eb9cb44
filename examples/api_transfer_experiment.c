/* A transfer experiment: the cost of moving n bytes up, copied from ordinary memory or borrowed
 * from page-locked memory, and down. Time is from the device's clock (model on sim, wall
 * elsewhere), bytes from the ledger, which must agree with the program's count.
 * Usage: api_transfer_experiment [device], by default sim:0. */
#include <ferry/ferry.h>

#include "example.h"

enum { FIRST_NBYTES = 4 << 10, LAST_NBYTES = 16 << 20, REPEATS = 4 };

static fy_status_t now(const fy_device_t *device, uint64_t *out_ns)
{
    fy_device_clock_t clock = FY_DEVICE_CLOCK_INIT;
    FY_TRY(fy_device_clock_query(device, &clock));
    *out_ns = clock.now_ns;
    return FY_STATUS_OK;
}

/* Uploads `src` REPEATS times, one after the other, and waits for each: latency and bandwidth of a
 * lonely request.
 * COPY puts the bytes aside first, pinned or not, because src is the caller's again on return;
 * BORROW does not. */
static fy_status_t time_uploads(fy_device_t *device, fy_tensor_t *src, fy_tensor_t *dst,
                                fy_host_contract_t contract, uint64_t *out_ns)
{
    fy_transfer_options_t options = FY_TRANSFER_OPTIONS_INIT;
    options.contract = contract;
    uint64_t begin, end;
    FY_TRY(now(device, &begin));
    for (int i = 0; i < REPEATS; i++) {
        fy_ticket_t ticket;
        FY_TRY(fy_tensor_upload_into(dst, src, &options, &ticket));
        FY_TRY(fy_ticket_wait(ticket, FY_FOREVER));
    }
    FY_TRY(now(device, &end));
    *out_ns = (end - begin) / REPEATS;
    return FY_STATUS_OK;
}

static fy_status_t time_downloads(fy_device_t *device, fy_tensor_t *src, uint64_t *out_ns)
{
    uint64_t begin, end;
    FY_TRY(now(device, &begin));
    for (int i = 0; i < REPEATS; i++) {
        fy_download_t *download;
        fy_tensor_t *host;
        FY_TRY(fy_tensor_download(src, NULL, &download));
        FY_TRY(fy_download_wait(download, FY_FOREVER, &host));
        fy_tensor_destroy(host); /* its pinned block serves the next round */
    }
    FY_TRY(now(device, &end));
    *out_ns = (end - begin) / REPEATS;
    return FY_STATUS_OK;
}

static double gbyte_per_s(uint64_t nbytes, uint64_t ns)
{
    return ns ? (double)nbytes / (double)ns : 0;
}

/* One row of the table, in a separate scope, so that the ledger has a line for it. */
static fy_status_t measure(fy_device_t *device, int64_t nbytes, uint64_t *out_moved)
{
    char name[32];
    snprintf(name, sizeof name, "%" PRId64, nbytes);
    fy_scope_t scope = fy_scope_begin(name);
    fy_tensor_t *pageable, *pinned, *dst;
    FY_TRY(fy_full(fy_device_host(), FY_DTYPE_U8, FY_DIMS(nbytes), 7, &pageable));
    FY_TRY(fy_tensor_create_pinned(device, FY_DTYPE_U8, FY_DIMS(nbytes), &pinned));
    FY_TRY(fy_fill(pinned, 7));
    FY_TRY(fy_zeros(device, FY_DTYPE_U8, FY_DIMS(nbytes), &dst));
    FY_TRY(fy_device_wait(device, FY_FOREVER));

    uint64_t pageable_ns, pinned_ns, download_ns;
    FY_TRY(time_uploads(device, pageable, dst, FY_HOST_COPY, &pageable_ns));
    FY_TRY(time_uploads(device, pinned, dst, FY_HOST_BORROW, &pinned_ns));
    FY_TRY(time_downloads(device, dst, &download_ns));
    printf("%10" PRId64 " %12.2f %8.2f %12.2f %8.2f %12.2f %8.2f\n", nbytes,
           (double)pageable_ns * 1e-3, gbyte_per_s((uint64_t)nbytes, pageable_ns),
           (double)pinned_ns * 1e-3, gbyte_per_s((uint64_t)nbytes, pinned_ns),
           (double)download_ns * 1e-3, gbyte_per_s((uint64_t)nbytes, download_ns));

    fy_scope_end(scope, 0, NULL);
    *out_moved += 3u * REPEATS * (uint64_t)nbytes;
    return FY_STATUS_OK;
}

static void print_scope(void *user, const char *path, const fy_ledger_totals_t *totals)
{
    (void)user;
    printf("  %-20s up %2" PRIu64 " x, %10" PRIu64 " bytes (wire %10" PRIu64 ")   down %2" PRIu64
           " x, %10" PRIu64 " bytes   syncs %" PRIu64 "\n",
           *path ? path : "(all)", totals->upload.count, totals->upload.nbytes,
           totals->upload.wire_nbytes, totals->download.count, totals->download.nbytes,
           totals->syncs);
}

static fy_status_t experiment(fy_device_t *device)
{
    fy_device_clock_t clock = FY_DEVICE_CLOCK_INIT;
    FY_TRY(fy_device_clock_query(device, &clock));
    printf("# %s, %s clock\n", fy_device_name(device),
           clock.kind == FY_CLOCK_MODEL ? "model" : "wall");
    printf("#    bytes    up, copied            up, borrowed          down\n#                 us   "
           "  GB/s           us     GB/s           us "
           "    GB/s\n");
    uint64_t moved = 0;
    for (int64_t nbytes = FIRST_NBYTES; nbytes <= LAST_NBYTES; nbytes *= 16)
        FY_TRY(measure(device, nbytes, &moved));

    printf("ledger:\n");
    fy_ledger_walk(print_scope, NULL);
    fy_ledger_totals_t totals = FY_LEDGER_TOTALS_INIT;
    FY_TRY(fy_ledger_query("transfer", &totals));
    if (totals.upload.nbytes + totals.download.nbytes != moved) {
        return fy_error_set(FY_STATUS_INTERNAL, __FILE__, __LINE__,
                            "the ledger has %" PRIu64 " bytes, the program moved %" PRIu64,
                            totals.upload.nbytes + totals.download.nbytes, moved);
    }
    return FY_STATUS_OK;
}

static fy_status_t run(const char *spec)
{
    fy_device_t *device;
    FY_TRY(fy_device_open(spec, &device));
    fy_scope_t scope = fy_scope_begin("transfer");
    fy_status_t status = experiment(device);
    fy_scope_end(scope, 0, NULL);
    fy_device_close(device);
    return status;
}

int main(int argc, char **argv)
{
    return example_finish(argv[0], run(argc > 1 ? argv[1] : "sim:0"));
}
