/* Programs about transfers: writes to bytes that a transfer reads, and reads of bytes that a
 * transfer has not written yet. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/mutation/programs.h"

enum { N = 48 };

/* Two page-locked buffers alternate: upload in place, work, download; the host writes a buffer as
 * soon as it may. */
void mu_borrow(mu_run_t *run)
{
    enum { NSTEPS = 6 };
    fy_device_t *device = run->devices[0];
    fy_tensor_t *buffers[2], *inputs[2], *sum;
    fy_ticket_t tickets[2] = { { 0, 0 }, { 0, 0 } };
    fy_download_t *before = NULL;
    for (int i = 0; i < 2; i++) {
        if (!(buffers[i] = mu_pinned(run, device, N, 0))) return;
        MU_TRY(run, fy_empty(device, FY_DTYPE_F32, FY_DIMS(N), &inputs[i]));
    }
    MU_TRY(run, fy_zeros(device, FY_DTYPE_F32, FY_DIMS(N), &sum));
    for (int step = 0; step < NSTEPS; step++) {
        const int k = step & 1;
        void *values;
        fy_download_t *download;
        fy_status_t status = fy_tensor_map(buffers[k], FY_ACCESS_WRITE, &values);
        if (!mu_ok(run, "map while it may be borrowed", status)) {
            MU_TRY(run, fy_ticket_wait(tickets[k], FY_FOREVER));
            MU_TRY(run, fy_tensor_map(buffers[k], FY_ACCESS_WRITE, &values));
        }
        mu_count_up(values, N, (float)(100 * step));
        MU_TRY(run, fy_tensor_upload_into(inputs[k], buffers[k], &mu_borrowed, &tickets[k]));
        if (!mu_ok(run, "map while it is borrowed",
                   fy_tensor_map(buffers[k], FY_ACCESS_WRITE, &values)))
            MU_TRY(run, fy_ticket_wait(tickets[k], FY_FOREVER));
        else
            mu_count_up(values, N, -1);
        MU_TRY(run, fy_axpy(sum, 1, inputs[k]));
        MU_TRY(run, fy_tensor_download(sum, NULL, &download));
        if (before) mu_arrive(run, "the sum so far", before);
        before = download;
    }
    mu_arrive(run, "the whole sum", before);
}

/* Copies of one host buffer that is rewritten at once: smaller than a slot of the ring, and larger
 * than the whole ring. */
void mu_ring(mu_run_t *run)
{
    static const int64_t counts[] = { 48, 1024, 1500, 5000, 48, 6000, 1, 4096 };
    enum { NCOUNTS = sizeof counts / sizeof *counts };
    fy_tensor_t *up[2 * NCOUNTS], *host = mu_host(run, 6000, 0),
                                  *into = mu_upload(run, run->devices[0], 6000, 7), *part, *first;
    if (!host || !into) return;
    for (int step = 0; step < 3; step++) { /* the engine waits for the op, the host for a slot */
        void *values;
        if (!mu_linger(run, into, into)) return;
        MU_TRY(run, fy_sum(into, FY_ALL_AXES, 0, &first));
        MU_TRY(run, fy_tensor_upload_into(into, host, NULL, NULL));
        MU_TRY(run, fy_tensor_map(host, FY_ACCESS_WRITE, &values));
        mu_count_up(values, 6000, (float)(1000 * step));
        mu_read(run, "the sum before an upload", first);
        MU_TRY(run, fy_sum(into, FY_ALL_AXES, 0, &first));
        mu_read(run, "the sum behind it", first);
    }
    for (int i = 0; i < 2 * NCOUNTS; i++) {
        void *values;
        MU_TRY(run, fy_tensor_map(host, FY_ACCESS_WRITE, &values));
        mu_count_up(values, 6000, (float)i);
        MU_TRY(run, fy_slice(host, 0, 0, counts[i % NCOUNTS], &part));
        MU_TRY(run, fy_tensor_upload(part, run->devices[0], NULL, &up[i]));
        MU_TRY(run, fy_tensor_map(host, FY_ACCESS_WRITE, &values));
        mu_count_up(values, 6000, -1);
        fy_tensor_destroy(part);
    }
    for (int i = 0; i < 2 * NCOUNTS; i++) {
        const int64_t most = counts[i % NCOUNTS] < 1100 ? counts[i % NCOUNTS] : 1100;
        MU_TRY(run, fy_slice(up[i], 0, 0, most, &first));
        mu_read(run, "an upload's first elements", first);
        MU_TRY(run, fy_sum(up[i], FY_ALL_AXES, 0, &first));
        mu_read(run, "an upload's sum", first);
    }
}

/* Views and other dtypes: packed, cast and scattered on the device, before or after the copy. */
void mu_views(mu_run_t *run)
{
    fy_device_t *device = run->devices[0];
    fy_stream_t *streams[2];
    fy_tensor_t *x = mu_upload(run, device, N, 1), *host = mu_host(run, N, 5), *grid, *across,
                *host_grid, *copies[4], *half, *wide;
    fy_transfer_options_t to_half = FY_TRANSFER_OPTIONS_INIT;
    if (!x || !host || !mu_streams(run, 2, streams)) return;
    to_half.dtype = FY_DTYPE_BF16;
    MU_TRY(run, fy_reshape(x, FY_DIMS(6, 8), &grid));
    MU_TRY(run, fy_transpose(grid, NULL, &across));
    MU_TRY(run, fy_reshape(host, FY_DIMS(8, 6), &host_grid));
    for (int step = 0; step < 4; step++) {
        fy_download_t *download, *in_half;
        MU_TRY(run, fy_stream_set_current(streams[step & 1]));
        MU_TRY(run, fy_axpy(x, 1, x));
        MU_TRY(run, fy_tensor_download(across, NULL, &download));
        MU_TRY(run, fy_tensor_download(x, &to_half, &in_half));
        MU_TRY(run, fy_affine(x, 1, (double)step, &copies[step]));
        MU_TRY(run, fy_tensor_upload_into(across, host_grid, NULL, NULL)); /* scattered */
        mu_arrive(run, "the transposed", download);
        mu_arrive(run, "as bf16", in_half);
    }
    MU_TRY(run, fy_tensor_upload(host, device, &to_half, &half));
    MU_TRY(run, fy_cast(half, FY_DTYPE_F32, &wide));
    mu_read(run, "there as bf16", wide);
    for (int step = 0; step < 4; step++)
        mu_read(run, "what was there before an upload", copies[step]);
    mu_read(run, "x", x);
}

/* Page-locked blocks that are freed while a copy reads them, and requested again at once; too few
 * for all requests. */
void mu_pinned_blocks(mu_run_t *run)
{
    enum { NSTEPS = 8, LARGE = 7000 };
    fy_device_t *device = run->devices[0];
    fy_tensor_t *dst, *parts[NSTEPS];
    MU_TRY(run, fy_zeros(device, FY_DTYPE_F32, FY_DIMS(LARGE), &dst));
    for (int step = 0; step < NSTEPS; step++) {
        fy_ticket_t ticket;
        fy_tensor_t *host = mu_pinned(run, device, step & 1 ? LARGE : LARGE / 2, (float)step),
                    *part, *sum;
        if (!host) return;
        if (step % 4 == 0 && !mu_linger(run, dst, dst)) return;
        MU_TRY(run, fy_slice(dst, 0, 0, step & 1 ? LARGE : LARGE / 2, &part));
        MU_TRY(run, fy_tensor_upload_into(part, host, &mu_borrowed, &ticket));
        fy_tensor_destroy(host);
        MU_TRY(run, fy_sum(part, FY_ALL_AXES, 0, &sum));
        MU_TRY(run, fy_reshape(sum, FY_DIMS(1), &parts[step]));
        fy_tensor_destroy(sum);
        fy_tensor_destroy(part);
    }
    for (int step = 0; step < NSTEPS; step++) mu_read(run, "a sum", parts[step]);
}

/* Downloads into existing host memory, page-locked or not, while uploads wait in slots of the
 * ring. */
void mu_into(mu_run_t *run)
{
    enum { WIDE = 3000 };
    fy_device_t *device = run->devices[0];
    fy_tensor_t *x = mu_upload(run, device, WIDE, 1), *slow[3],
                *pinned = mu_pinned(run, device, WIDE, 0), *host = mu_host(run, WIDE, 0);
    fy_tensor_t *small = mu_host(run, N, 5), *quick = mu_upload(run, device, N, 0);
    if (!x || !pinned || !host || !small || !quick) return;
    for (int i = 0; i < 3; i++)
        if (!(slow[i] = mu_upload(run, device, N, (float)i))) return;
    for (int step = 0; step < 3; step++) {
        MU_TRY(run, fy_device_wait(device, FY_FOREVER));
        /* a slot that is free soon, and three that are not */
        MU_TRY(run, fy_tensor_upload_into(quick, small, NULL, NULL));
        for (int i = 0; i < 3; i++) {
            void *values;
            if (!mu_linger(run, slow[i], slow[i])) return;
            MU_TRY(run, fy_tensor_upload_into(slow[i], small, NULL, NULL));
            MU_TRY(run, fy_tensor_map(small, FY_ACCESS_WRITE, &values));
            mu_count_up(values, N, (float)(10 * step + i));
        }
        MU_TRY(run, fy_tensor_download_into(host, x, NULL));
        mu_see(run, "through the ring", host);
        for (int i = 0; i < 3; i++) mu_read(run, "an upload that waited in the ring", slow[i]);
        MU_TRY(run, fy_axpy(x, 1, x));
        MU_TRY(run, fy_tensor_download_into(pinned, x, NULL));
        mu_see(run, "straight into page-locked memory", pinned);
    }
}

/* To and from a file, slot by slot, for bytes that an op still uses. */
static void files(mu_run_t *run, const char *path)
{
    enum { WIDE = 3000 };
    fy_device_t *device = run->devices[0];
    fy_tensor_t *x = mu_upload(run, device, WIDE, 1), *sum;
    if (!x) return;
    for (int step = 0; step < 3; step++) {
        float values[WIDE] = { 0 };
        if (!mu_linger(run, x, x)) return;
        MU_TRY(run, fy_tensor_download_file(x, path, 0, NULL));
        FILE *file = fopen(path, "r+");
        const size_t count = file ? fread(values, sizeof *values, WIDE, file) : 0;
        mu_note(run, "in the file", values, count * sizeof *values);
        mu_count_up(values, WIDE, (float)(100 * step));
        if (file) {
            rewind(file);
            (void)fwrite(values, sizeof *values, WIDE, file);
            fclose(file);
        }
        if (!mu_linger(run, x, x)) return;
        MU_TRY(run, fy_sum(x, FY_ALL_AXES, 0, &sum));
        MU_TRY(run, fy_tensor_upload_file(x, path, 0, NULL));
        mu_read(run, "from the file", x);
        mu_read(run, "sum of the earlier bytes", sum);
    }
}

void mu_files(mu_run_t *run)
{
    const char *folder = getenv("TMPDIR");
    char path[256];
    snprintf(path, sizeof path, "%.200s/ferry_mutation_XXXXXX",
             folder && *folder ? folder : "/tmp");
    const int descriptor = mkstemp(path);
    if (descriptor < 0) {
        run->stopped = "mkstemp";
        return;
    }
    close(descriptor);
    files(run, path);
    remove(path);
}

/* A host that polls instead of waiting, and writes through an address that it mapped earlier. */
void mu_polls(mu_run_t *run)
{
    fy_device_t *device = run->devices[0];
    fy_tensor_t *buffer = mu_pinned(run, device, N, 0), *input, *seen[9];
    void *values;
    if (!buffer) return;
    MU_TRY(run, fy_empty(device, FY_DTYPE_F32, FY_DIMS(N), &input));
    MU_TRY(run, fy_tensor_map(buffer, FY_ACCESS_READ_WRITE, &values));
    for (int step = 0; step < 9; step++) {
        fy_ticket_t ticket;
        mu_count_up(values, N, (float)(10 * step));
        MU_TRY(run, fy_tensor_upload_into(input, buffer, &mu_borrowed, &ticket));
        MU_TRY(run, fy_affine(input, 1, 0.5, &seen[step]));
        if (step % 3 == 0) {
            int npolls = 0;
            while (fy_ticket_poll(ticket) == FY_POLL_PENDING && npolls < 1000000) npolls++;
            mu_note(run, "polls", &npolls, sizeof npolls);
        } else if (step % 3 == 1) {
            MU_TRY(run, fy_ticket_wait(ticket, FY_FOREVER));
        } else {
            MU_TRY(run, fy_device_wait(device, FY_FOREVER));
        }
        mu_count_up(values, N, -1000);
    }
    for (int step = 0; step < 9; step++) mu_read(run, "what the upload brought", seen[step]);
}

/* Losses that are read some steps later, as soon as they have arrived. */
void mu_tries(mu_run_t *run)
{
    enum { NSTEPS = 4 };
    fy_device_t *device = run->devices[0];
    fy_tensor_t *x = mu_upload(run, device, N, 1), *loss, *host;
    fy_download_t *downloads[NSTEPS], *all;
    if (!x) return;
    for (int step = 0; step < NSTEPS; step++) {
        if (!mu_linger(run, x, x)) return;
        MU_TRY(run, fy_sum(x, FY_ALL_AXES, 0, &loss));
        MU_TRY(run, fy_tensor_download(loss, NULL, &downloads[step]));
        fy_tensor_destroy(loss);
    }
    MU_TRY(run, fy_tensor_download(x, NULL, &all));
    for (int step = 0; step < NSTEPS; step++) {
        int is_done = 0, ntries = 0;
        double value = 0;
        fy_status_t status = FY_STATUS_OK;
        for (; status == FY_STATUS_OK && !is_done && ntries < 1000000; ntries++)
            status = fy_download_try_f64(downloads[step], &is_done, &value);
        MU_TRY(run, status);
        mu_note(run, "tries", &ntries, sizeof ntries);
        mu_note(run, "a loss", &value, sizeof value);
    }
    MU_TRY(run, fy_download_try(all, &host));
    if (host)
        mu_see(run, "all of it", host);
    else
        mu_arrive(run, "all of it, waited for", all);
}

/* Two devices, each with its own queues, and the host between them. */
void mu_two_devices(mu_run_t *run)
{
    fy_tensor_t *x = mu_upload(run, run->devices[0], N, 1), *y = NULL;
    if (!x) return;
    for (int step = 0; step < 3; step++) {
        fy_download_t *download;
        fy_tensor_t *host, *there;
        MU_TRY(run, fy_axpy(x, 1, x));
        MU_TRY(run, fy_tensor_download(x, NULL, &download));
        MU_TRY(run, fy_fill(x, (double)step));
        MU_TRY(run, fy_download_wait(download, FY_FOREVER, &host));
        mu_see(run, "between two devices", host);
        MU_TRY(run, fy_tensor_upload(host, run->devices[1], NULL, &there));
        fy_tensor_destroy(host);
        MU_TRY(run, fy_affine(there, 2, (double)step, &y));
        fy_tensor_destroy(there);
    }
    mu_read(run, "x", x);
    mu_read(run, "y", y);
}

static fy_status_t fill_batch(void *user, fy_batch_t *batch)
{
    void *values;
    (void)user;
    batch->is_end = batch->index == 9;
    if (batch->is_end) return FY_STATUS_OK;
    if (batch->index == 8) batch->rows = N / 2;
    FY_TRY(fy_tensor_map(batch->host[0], FY_ACCESS_WRITE, &values));
    mu_count_up(values, N, (float)(100 * batch->index));
    return FY_STATUS_OK;
}

/* Batches that are filled while slow work on earlier ones is pending; the last is half a batch. */
void mu_prefetch(mu_run_t *run)
{
    const fy_batch_spec_t spec = { FY_DTYPE_F32, 1, { N } };
    const fy_prefetch_options_t inline_fill = { sizeof inline_fill, 1, 0 };
    fy_prefetch_t *prefetch;
    fy_tensor_t *batch, *sum, *part;
    int64_t rows;
    MU_TRY(run, fy_zeros(run->devices[0], FY_DTYPE_F32, FY_DIMS(N), &sum));
    MU_TRY(run, fy_prefetch_create(run->devices[0], 1, &spec, fill_batch, NULL, &inline_fill,
                                   &prefetch));
    for (;;) {
        MU_TRY(run, fy_prefetch_next(prefetch, &batch, &rows));
        if (!rows) break;
        MU_TRY(run, fy_slice(sum, 0, 0, rows, &part));
        if (!mu_linger(run, part, batch)) return;
    }
    mu_read(run, "the sum of all batches", sum);
}

/* From device to device after slow ops on both, and of bytes that are bad. */
void mu_peers(mu_run_t *run)
{
    fy_tensor_t *x = mu_upload(run, run->devices[0], N, 1),
                *y = mu_upload(run, run->devices[1], N, 5), *turned, *rows, *there, *good, *bad;
    if (!x || !y) return;
    MU_TRY(run, fy_reshape(y, FY_DIMS(N / 4, 4), &turned));
    MU_TRY(run, fy_transpose(turned, NULL, &turned));
    for (int step = 0; step < 4; step++) {
        fy_tensor_t *sum;
        if (!mu_linger(run, x, x) || !mu_linger(run, y, y)) return;
        MU_TRY(run, fy_sum(y, FY_ALL_AXES, 0, &sum));
        MU_TRY(run, fy_tensor_send_into(y, x, NULL, NULL));
        MU_TRY(run, fy_fill(x, (double)step));
        mu_read(run, "the sum before it came", sum);
        mu_read(run, "what came", y);
        MU_TRY(run, fy_reshape(x, FY_DIMS(4, N / 4), &rows));
        MU_TRY(run, fy_tensor_send_into(turned, rows, NULL, NULL));
        if (!mu_linger(run, y, y)) return;
        mu_read(run, "what came into a view", y);
    }
    MU_TRY(run, fy_reshape(x, FY_DIMS(N / 4, 4), &rows));
    MU_TRY(run, fy_arange(run->devices[0], FY_DTYPE_I32, 0, 1, 8, &good));
    MU_TRY(run, fy_arange(run->devices[0], FY_DTYPE_I32, 9, 1, 8, &bad));
    for (int step = 0; step < 4; step++) {
        fy_tensor_t *picked;
        if (!mu_linger(run, x, x)) return;
        MU_TRY(run, fy_gather(rows, step & 1 ? bad : good, &picked));
        if (mu_ok(run, "send", fy_tensor_send(picked, run->devices[1], NULL, &there)))
            mu_read(run, "what was picked", there);
    }
}
