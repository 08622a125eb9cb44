/* Programs about ops on several streams: one stream writes bytes that another reads, in memory that
 * streams share.
 * Each is named after its subject. */
#include "tests/mutation/programs.h"

enum { N = 48 };

/* Two streams that read each other's results and write them in place. */
void mu_ping_pong(mu_run_t *run)
{
    fy_stream_t *streams[2];
    fy_tensor_t *x = mu_upload(run, run->devices[0], N, 1),
                *y = mu_upload(run, run->devices[0], N, 100), *kept[6];
    if (!x || !y || !mu_streams(run, 2, streams)) return;
    for (int step = 0; step < 6; step++) {
        MU_TRY(run, fy_stream_set_current(streams[step & 1]));
        MU_TRY(run, fy_axpy(step & 1 ? x : y, 0.5, step & 1 ? y : x));
        MU_TRY(run, fy_affine(y, 2, (double)step, &kept[step]));
        if (step == 3) MU_TRY(run, fy_fill(x, 7));
    }
    for (int step = 0; step < 6; step++) mu_read(run, "a result on the way", kept[step]);
    mu_read(run, "x", x);
    mu_read(run, "y", y);
}

/* Three streams read one tensor, two of them share a hazard word; then a fourth writes it. */
void mu_readers(mu_run_t *run)
{
    fy_stream_t *streams[4];
    fy_tensor_t *x = mu_upload(run, run->devices[0], N, 1), *kept[9];
    int n = 0;
    if (!x || !mu_streams(run, 4, streams)) return;
    for (int step = 0; step < 3; step++) {
        for (int reader = 0; reader < 3; reader++) {
            MU_TRY(run, fy_stream_set_current(streams[reader]));
            MU_TRY(run, fy_affine(x, 1, (double)reader, &kept[n++]));
        }
        MU_TRY(run, fy_stream_set_current(streams[3]));
        MU_TRY(run, fy_fill(x, (double)step));
    }
    mu_read(run, "x", x);
    for (int i = 0; i < n; i++) mu_read(run, "what a reader read", kept[i]);
}

/* Memory for one block only, so that streams reuse it while it is used: the next one waits on the
 * device. */
void mu_reuse(mu_run_t *run)
{
    fy_stream_t *streams[3];
    fy_tensor_t *x = mu_upload(run, run->devices[0], N, 1), *sums[12], *wide;
    if (!x || !mu_streams(run, 3, streams)) return;
    for (int step = 0; step < 12; step++)
        MU_TRY(run, fy_zeros(run->devices[0], FY_DTYPE_F32, FY_DIMS(1), &sums[step]));
    for (int step = 0; step < 12; step++) {
        MU_TRY(run, fy_stream_set_current(streams[step % 3]));
        fy_tensor_t *row, *sum;
        /* 28 KiB of 40 */
        MU_TRY(run, fy_full(run->devices[0], FY_DTYPE_F32, FY_DIMS(7168), (double)step, &wide));
        MU_TRY(run, fy_slice(wide, 0, 0, N, &row));
        /* written here, read there */
        if (step % 4 == 3) MU_TRY(run, fy_stream_set_current(streams[(step + 1) % 3]));
        MU_TRY(run, fy_axpy(row, 1, x));
        MU_TRY(run, fy_sum(row, FY_ALL_AXES, 0, &sum));
        fy_tensor_t *place;
        MU_TRY(run, fy_reshape(sums[step], 0, NULL, &place));
        MU_TRY(run, fy_copy(place, sum));
        fy_tensor_destroy(row);
        fy_tensor_destroy(sum);
        fy_tensor_destroy(place);
        fy_tensor_destroy(wide);
    }
    for (int step = 0; step < 12; step++) mu_read(run, "a sum", sums[step]);
}

/* Adjacent blocks freed on several streams, split and joined for other streams and sizes. */
void mu_neighbours(mu_run_t *run)
{
    enum { NBLOCKS = 6, NSTEPS = 6 };
    fy_device_t *device = run->devices[0];
    fy_stream_t *streams[3];
    fy_tensor_t *results[NSTEPS];
    if (!mu_streams(run, 3, streams)) return;
    for (int step = 0; step < NSTEPS; step++) {
        fy_tensor_t *blocks[NBLOCKS], *all[NBLOCKS], *sum, *joined;
        for (int i = 0; i < NBLOCKS; i++) { /* 8 KiB each, 48 of 64 KiB */
            MU_TRY(run, fy_stream_set_current(streams[i % 2]));
            MU_TRY(run, fy_full(device, FY_DTYPE_F32, FY_DIMS(2048), (double)(step * 10 + i),
                                &blocks[i]));
        }
        MU_TRY(run, fy_stream_set_current(streams[1]));
        for (int i = 0; i < NBLOCKS; i++) MU_TRY(run, fy_sum(blocks[i], FY_ALL_AXES, 0, &all[i]));
        for (int i = 1; i < NBLOCKS; i++) MU_TRY(run, fy_axpy(all[0], 1, all[i]));
        MU_TRY(run, fy_reshape(all[0], FY_DIMS(1), &results[step]));
        for (int i = 0; i < NBLOCKS; i++) fy_tensor_destroy(all[i]);
        for (int i = 0; i < NBLOCKS; i++) fy_tensor_destroy(blocks[step & 1 ? i : NBLOCKS - 1 - i]);
        MU_TRY(run, fy_stream_set_current(streams[2]));
        /* of three of them */
        MU_TRY(run, fy_full(device, FY_DTYPE_F32, FY_DIMS(6000), -1, &joined));
        MU_TRY(run, fy_sum(joined, FY_ALL_AXES, 0, &sum));
        mu_read(run, "sum of the joined blocks", sum);
        fy_tensor_destroy(joined);
        fy_tensor_destroy(sum);
    }
    for (int step = 0; step < NSTEPS; step++)
        mu_read(run, "sum of the freed blocks", results[step]);
}

/* Products that need scratch, on two streams and with memory for one of them. */
void mu_workspace(mu_run_t *run)
{
    enum { SIDE = 64 };
    fy_stream_t *streams[2];
    fy_tensor_t *a, *b, *flat_a = mu_upload(run, run->devices[0], SIDE * SIDE, 1),
                        *flat_b = mu_upload(run, run->devices[0], SIDE * SIDE, 3);
    fy_tensor_t *half_a, *half_b, *products[4];
    if (!flat_a || !flat_b || !mu_streams(run, 2, streams)) return;
    MU_TRY(run, fy_cast(flat_a, FY_DTYPE_BF16, &half_a));
    MU_TRY(run, fy_cast(flat_b, FY_DTYPE_BF16, &half_b));
    MU_TRY(run, fy_reshape(half_a, FY_DIMS(SIDE, SIDE), &a));
    MU_TRY(run, fy_reshape(half_b, FY_DIMS(SIDE, SIDE), &b));
    fy_tensor_destroy(flat_a);
    fy_tensor_destroy(flat_b);
    for (int i = 0; i < 4; i++) {
        fy_tensor_t *product;
        MU_TRY(run, fy_stream_set_current(streams[i & 1]));
        MU_TRY(run, fy_matmul(i & 2 ? b : a, i & 1 ? a : b, &product));
        MU_TRY(run, fy_sum(product, FY_AXES(0), 0, &products[i]));
        fy_tensor_destroy(product);
    }
    for (int i = 0; i < 4; i++) mu_read(run, "sums of a product", products[i]);
}

/* Work of the caller on a stream: it is submitted through a second tensor at the same address,
 * which Ferry does not know. */
void mu_native(mu_run_t *run)
{
    fy_stream_t *streams[3];
    fy_tensor_t *x = mu_upload(run, run->devices[0], N, 1), *own, *seen[8];
    if (!x || !mu_streams(run, 3, streams)) return;
    for (int step = 0; step < 4; step++) {
        void *address;
        MU_TRY(run, fy_stream_set_current(streams[0]));
        MU_TRY(run, fy_axpy(x, 1, x));
        MU_TRY(run, fy_tensor_begin_native_access(x, FY_ACCESS_READ, streams[1], &address));
        MU_TRY(run, fy_tensor_wrap(run->devices[0], FY_DTYPE_F32, FY_DIMS(N), address, NULL, NULL,
                                   &own));
        MU_TRY(run, fy_stream_set_current(streams[1]));
        MU_TRY(run, fy_affine(own, 1, 0.25, &seen[2 * step]));
        MU_TRY(run, fy_stream_set_current(streams[2]));
        MU_TRY(run, fy_affine(x, 1, 0.5, &seen[2 * step + 1]));
        MU_TRY(run, fy_tensor_begin_native_access(x, FY_ACCESS_WRITE, streams[1], &address));
        MU_TRY(run, fy_stream_set_current(streams[1]));
        MU_TRY(run, fy_fill(own, (double)step));
        fy_tensor_destroy(own);
    }
    for (int i = 0; i < 8; i++) mu_read(run, "before and after the caller's own write", seen[i]);
    mu_read(run, "x", x);
}

/* Streams that are closed with pending work, and new streams that reuse their slots. */
void mu_closing_streams(mu_run_t *run)
{
    fy_tensor_t *x = mu_upload(run, run->devices[0], N, 1), *kept[8];
    if (!x) return;
    for (int step = 0; step < 8; step++) {
        fy_stream_t *stream;
        MU_TRY(run, fy_stream_create(run->devices[0], NULL, &stream));
        MU_TRY(run, fy_stream_set_current(stream));
        MU_TRY(run, fy_axpy(x, 0.5, x));
        MU_TRY(run, fy_affine(x, 1, (double)step, &kept[step]));
        fy_stream_destroy(stream);
        if (step & 1) { /* on the compute stream, ordered after the closed one */
            MU_TRY(run, fy_axpy(x, 1, kept[step]));
        }
    }
    for (int step = 0; step < 8; step++) mu_read(run, "what a closed stream made", kept[step]);
    mu_read(run, "x", x);
}

/* A stream waits for a ticket of another device: once the work behind it is done, the ticket is. */
void mu_stream_waits(mu_run_t *run)
{
    fy_stream_t *stream;
    fy_tensor_t *slow = mu_upload(run, run->devices[0], N, 1), *result;
    if (!slow) return;
    MU_TRY(run, fy_stream_create(run->devices[1], NULL, &stream));
    MU_TRY(run, fy_stream_set_current(stream));
    for (int step = 0; step < 4; step++) {
        if (!mu_linger(run, slow, slow)) return;
        const fy_ticket_t first = fy_tensor_ticket(slow);
        MU_TRY(run, fy_stream_wait(stream, first));
        MU_TRY(run, fy_full(run->devices[1], FY_DTYPE_F32, FY_DIMS(N), step, &result));
        MU_TRY(run, fy_ticket_wait(fy_tensor_ticket(result), FY_FOREVER));
        const fy_poll_t poll = fy_ticket_poll(first);
        mu_note(run, "the ticket that the stream waited for", &poll, sizeof poll);
    }
}
