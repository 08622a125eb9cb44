/* Programs about ends: faults that come late, memory of the caller, devices that close with pending
 * work. */
#include <stdio.h>

#include "tests/mutation/programs.h"

enum { N = 48 };

/* More gathers in flight than there are fault flags; some of them with an index that is out of
 * range. */
void mu_faults(mu_run_t *run)
{
    enum { NGATHERS = 100, NINDICES = 8 };
    fy_device_t *device = run->devices[0];
    fy_stream_t *streams[2];
    fy_tensor_t *table = mu_upload(run, device, N, 1), *good, *bad, *flat, *picked[NGATHERS];
    if (!table || !mu_streams(run, 2, streams)) return;
    MU_TRY(run, fy_reshape(table, FY_DIMS(N / 4, 4), &flat));
    if (!mu_linger(run, table, table)) return;
    MU_TRY(run, fy_arange(device, FY_DTYPE_I32, 0, 1, NINDICES, &good));
    MU_TRY(run, fy_arange(device, FY_DTYPE_I32, 9, 1, NINDICES, &bad));
    for (int i = 0; i < NGATHERS; i++) {
        MU_TRY(run, fy_stream_set_current(streams[i % 7 == 0]));
        MU_TRY(run, fy_gather(flat, i == 3 || i == 70 || i == 77 ? bad : good, &picked[i]));
    }
    for (int i = 0; i < NGATHERS; i += i % 10 == 0 ? 3 : i % 10 == 3 ? 4 : 3)
        mu_read(run, "picked", picked[i]);
    (void)mu_ok(run, "device_wait tells the first fault", fy_device_wait(device, FY_FOREVER));
}

/* Copies that fail when they run, long after their calls: the same tensors are poisoned in every
 * order. */
void mu_failing_copies(mu_run_t *run)
{
    enum { NSTEPS = 6 };
    fy_device_t *device = run->devices[0];
    fy_tensor_t *slow, *buffer = mu_pinned(run, device, N, 1),
                       *other = mu_pinned(run, device, N, 5), *x, *y, *derived[NSTEPS];
    fy_download_t *downloads[2 * NSTEPS];
    fy_ticket_t ticket;
    if (!buffer || !other) return;
    MU_TRY(run, fy_zeros(device, FY_DTYPE_F32, FY_DIMS(N), &slow));
    MU_TRY(run, fy_zeros(device, FY_DTYPE_F32, FY_DIMS(N), &x));
    MU_TRY(run, fy_zeros(device, FY_DTYPE_F32, FY_DIMS(N), &y));
    for (int step = 0; step < NSTEPS; step++) {
        if (!mu_linger(run, slow, slow)) return;
        MU_TRY(run, fy_axpy(slow, 1, x));
        MU_TRY(run, fy_tensor_upload_into(x, buffer, &mu_borrowed, &ticket));
        MU_TRY(run, fy_tensor_upload_into(y, other, &mu_borrowed, &ticket));
        MU_TRY(run, fy_add(x, y, &derived[step]));
        MU_TRY(run, fy_tensor_download(y, NULL, &downloads[2 * step]));
        MU_TRY(run, fy_tensor_download(derived[step], NULL, &downloads[2 * step + 1]));
        if (step == 3) (void)mu_ok(run, "an upload's ticket", fy_ticket_wait(ticket, FY_FOREVER));
    }
    for (int i = 0; i < 2 * NSTEPS; i++)
        mu_arrive(run, i & 1 ? "the result of two uploads" : "one upload", downloads[i]);
    for (int step = 0; step < NSTEPS; step++)
        mu_read(run, "the result of two uploads, again", derived[step]);
    mu_read(run, "what read them all", slow);
    (void)mu_ok(run, "device_wait tells the first fault", fy_device_wait(device, FY_FOREVER));
}

static void note_end(void *user, void *data)
{
    (void)data;
    *(int *)user = 1;
}

/* One range of the caller's memory, wrapped by one tensor after another: the next tensor gets it
 * when the deleter of the last one has run. */
void mu_deleters(mu_run_t *run)
{
    enum { NSTEPS = 8 };
    fy_device_t *device = run->devices[0];
    fy_stream_t *streams[3];
    fy_tensor_t *lent, *x = mu_upload(run, device, N, 1), *seen[NSTEPS];
    int ended[NSTEPS] = { 0 };
    void *address;
    if (!x || !mu_streams(run, 3, streams)) return;
    MU_TRY(run, fy_empty(device, FY_DTYPE_F32, FY_DIMS(N), &lent));
    MU_TRY(run, fy_tensor_begin_native_access(lent, FY_ACCESS_READ_WRITE, streams[0], &address));
    for (int step = 0; step < NSTEPS; step++) {
        fy_tensor_t *own;
        MU_TRY(run, fy_tensor_wrap(device, FY_DTYPE_F32, FY_DIMS(N), address, note_end,
                                   &ended[step], &own));
        MU_TRY(run, fy_stream_set_current(streams[step % 3]));
        MU_TRY(run, fy_fill(own, (double)step));
        MU_TRY(run, fy_axpy(own, 2, x));
        MU_TRY(run, fy_affine(own, 1, 0.5, &seen[step]));
        const fy_ticket_t last = fy_tensor_ticket(seen[step]);
        fy_tensor_destroy(own);
        mu_note(run, "did the deleter run with the handle?", &ended[step], sizeof ended[step]);
        if (!ended[step] &&
            step & 1) { /* on this call a transfer releases memory whose uses are done */
            mu_read(run, "x", x);
            mu_note(run, "did the deleter run in passing?", &ended[step], sizeof ended[step]);
        }
        if (!ended[step]) MU_TRY(run, fy_ticket_wait(last, FY_FOREVER));
        mu_note(run, "did the deleter run?", &ended[step], sizeof ended[step]);
    }
    for (int step = 0; step < NSTEPS; step++)
        mu_read(run, "the result from borrowed memory", seen[step]);
}

/* The caller's memory, page-locked in place: it stays so until the upload that reads it is done,
 * whichever thread destroyed the tensor. */
void mu_pins(mu_run_t *run)
{
    static float values[1024];
    fy_device_t *device = run->devices[0];
    fy_tensor_t *x, *host;
    fy_ticket_t ticket;
    if (!(x = mu_upload(run, device, 1024, 0))) return;
    for (int step = 0; step < 4; step++) {
        mu_count_up(values, 1024, (float)step);
        MU_TRY(run, fy_tensor_wrap(fy_device_host(), FY_DTYPE_F32, FY_DIMS(1024), values, NULL,
                                   NULL, &host));
        MU_TRY(run, fy_tensor_pin(host, device));
        if (!mu_linger(run, x, x)) return;
        MU_TRY(run, fy_tensor_upload_into(x, host, &mu_borrowed, &ticket));
        fy_tensor_destroy(host);
        mu_read(run, "the upload from borrowed memory", x);
        MU_TRY(run, fy_device_wait(device, FY_FOREVER)); /* releases it */
    }
}

/* A device that is closed while the caller's memory is in use: the deleter still runs, when the use
 * is over. */
void mu_last_deleter(mu_run_t *run)
{
    char spec[128];
    for (int step = 0; step < 3; step++) {
        fy_device_t *other;
        fy_tensor_t *base, *own, *from;
        void *address;
        int ended = 0;
        snprintf(spec, sizeof spec, "sim:2?capacity=1MiB&%s", run->order);
        MU_TRY(run, fy_device_open(spec, &other));
        const fy_scope_t scope = fy_scope_begin("other");
        from = mu_upload(run, other, N, 1);
        base = mu_upload(run, other, N, 2);
        if (from && base &&
            mu_ok(run, "native",
                  fy_tensor_begin_native_access(base, FY_ACCESS_READ_WRITE, NULL, &address)) &&
            mu_ok(run, "wrap",
                  fy_tensor_wrap(other, FY_DTYPE_F32, FY_DIMS(N), address, note_end, &ended, &own)))
            (void)mu_linger(run, own, from);
        fy_scope_end(scope, 0, NULL);
        mu_note(run, "did the deleter run with the scope?", &ended, sizeof ended);
        fy_device_close(other);
        mu_note(run, "did the deleter run?", &ended, sizeof ended);
    }
}

/* Pending work on every engine and on a destroyed stream when the device closes. */
void mu_closing_device(mu_run_t *run)
{
    fy_device_t *device = run->devices[0];
    fy_stream_t *stream;
    fy_download_t *download;
    fy_ticket_t ticket;
    fy_tensor_t *x = mu_upload(run, device, N, 1), *buffer = mu_pinned(run, device, N, 3), *y, *z,
                *indices;
    if (!x || !buffer) return;
    MU_TRY(run, fy_empty(device, FY_DTYPE_F32, FY_DIMS(N), &y));
    MU_TRY(run, fy_tensor_upload_into(y, buffer, &mu_borrowed, &ticket));
    MU_TRY(run, fy_stream_create(device, NULL, &stream));
    MU_TRY(run, fy_stream_set_current(stream));
    MU_TRY(run, fy_axpy(x, 1, y));
    MU_TRY(run, fy_arange(device, FY_DTYPE_I32, 0, 1, 8, &indices));
    MU_TRY(run, fy_gather(x, indices, &z));
    fy_stream_destroy(stream);
    MU_TRY(run, fy_tensor_download(x, NULL, &download));
    MU_TRY(run, fy_axpy(y, 3, x));
    fy_download_destroy(download);
}
