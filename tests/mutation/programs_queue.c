/* Transfers that find their engine's window full and are queued while ops use the same bytes. */
#include "tests/mutation/programs.h"

enum { N = 48 };

static fy_transfer_options_t urgent(int priority)
{
    fy_transfer_options_t options = FY_TRANSFER_OPTIONS_INIT;
    options.contract = FY_HOST_BORROW;
    options.priority = priority;
    options.convert = 1;
    return options;
}

/* Each step: a slow op, an upload over the op's operand and result, a download of the result; then
 * another op on the same bytes.
 * The window holds one transfer, so all but the first are queued until a request needs them or the
 * window has space. */
void mu_queue(mu_run_t *run)
{
    enum { NSTEPS = 5 };
    fy_device_t *device = run->devices[0];
    fy_tensor_t *x = mu_upload(run, device, N, 1), *y = mu_upload(run, device, N, 2),
                *filler = mu_upload(run, device, N, 3), *half;
    fy_tensor_t *sources[NSTEPS], *fill = mu_pinned(run, device, N, 9);
    fy_download_t *downloads[2 * NSTEPS];
    fy_ticket_t ticket, given_up, tickets[NSTEPS];
    if (!x || !y || !filler || !fill) return;
    MU_TRY(run, fy_empty(device, FY_DTYPE_F16, FY_DIMS(N), &half));
    for (int step = 0; step < NSTEPS; step++)
        if (!(sources[step] = mu_pinned(run, device, N, (float)(10 * step)))) return;
    for (int step = 0; step < NSTEPS; step++) {
        const fy_transfer_options_t options = urgent(step % 2 ? 5 : -5);
        MU_TRY(run, fy_tensor_upload_into(filler, fill, &options, &ticket));
        /* reads x, late */
        if (!mu_linger(run, y, x)) return;
        /* queued after it */
        MU_TRY(run, fy_tensor_upload_into(x, sources[step], &options, &tickets[step]));
        /* ordered after the op */
        MU_TRY(run, fy_tensor_download(y, NULL, &downloads[2 * step]));
        /* ordered after the upload, in the other queue */
        MU_TRY(run, fy_tensor_download(x, NULL, &downloads[2 * step + 1]));
        /* converted on the device */
        MU_TRY(run, fy_tensor_upload_into(half, sources[step], &options, &ticket));
        MU_TRY(run, fy_tensor_upload_into(filler, fill, &options, &given_up));
        (void)mu_ok(run, "taken back", fy_ticket_cancel(given_up));
        MU_TRY(run, fy_fill(filler, step)); /* a complete overwrite clears the poison */
        if (step % 2) MU_TRY(run, fy_axpy(x, 1, y));
    }
    for (int step = 0; step < NSTEPS; step++) {
        MU_TRY(run, fy_ticket_wait(tickets[step], FY_FOREVER));
        mu_arrive(run, "what the op made", downloads[2 * step]);
        mu_arrive(run, "the uploaded bytes", downloads[2 * step + 1]);
    }
    mu_read(run, "x", x);
    mu_read(run, "y", y);
    mu_read(run, "half", half);
    mu_read(run, "filler", filler);
}
