/* Programs about blocks of device memory that different streams reuse while earlier uses are
 * pending. There is memory for little more than one block, so that the next tensor must reuse it.
 * One stream is slow, so that reuse without a wait would be too early. */
#include "tests/mutation/programs.h"

enum { N = 48, WHOLE = 7168 /* floats: 28 KiB of 40 */, PART = 3584 };

/* One stream writes, another reads, a third one gets the block next. */
void mu_handover(mu_run_t *run)
{
    fy_device_t *device = run->devices[0];
    fy_stream_t *streams[3];
    fy_tensor_t *slow = mu_upload(run, device, N, 1), *sums[6], *wide;
    if (!slow || !mu_streams(run, 3, streams)) return;
    for (int step = 0; step < 6; step++) {
        MU_TRY(run, fy_stream_set_current(streams[0]));
        MU_TRY(run, fy_full(device, FY_DTYPE_F32, FY_DIMS(WHOLE), (double)step, &wide));
        MU_TRY(run, fy_stream_set_current(streams[1]));
        if (!mu_linger(run, slow, slow)) return;
        MU_TRY(run, fy_sum(wide, FY_ALL_AXES, 0, &sums[step]));
        fy_tensor_destroy(wide);
        uint64_t released; /* pending memory stays */
        if (step & 1) MU_TRY(run, fy_memory_trim(device, 0, &released));
        MU_TRY(run, fy_stream_set_current(streams[step % 3 == 1 ? 2 : 0]));
        MU_TRY(run, fy_full(device, FY_DTYPE_F32, FY_DIMS(WHOLE), -1, &wide));
        fy_tensor_destroy(wide);
    }
    mu_read(run, "slow", slow);
    for (int step = 0; step < 6; step++) mu_read(run, "sum of a block", sums[step]);
}

/* Two neighbouring blocks of one stream: the first is done, the second is not; another stream needs
 * both as one. */
void mu_joined(mu_run_t *run)
{
    fy_device_t *device = run->devices[0];
    fy_stream_t *streams[2];
    fy_tensor_t *slow = mu_upload(run, device, N, 1), *early[4], *late[4], *left, *right, *both;
    if (!slow || !mu_streams(run, 2, streams)) return;
    for (int step = 0; step < 4; step++) {
        MU_TRY(run, fy_stream_set_current(streams[0]));
        MU_TRY(run, fy_full(device, FY_DTYPE_F32, FY_DIMS(WHOLE / 2), 1, &left));
        MU_TRY(run, fy_full(device, FY_DTYPE_F32, FY_DIMS(WHOLE / 2), 2, &right));
        MU_TRY(run, fy_sum(left, FY_ALL_AXES, 0, &early[step]));
        MU_TRY(run, fy_ticket_wait(fy_tensor_ticket(early[step]), FY_FOREVER));
        if (!mu_linger(run, slow, slow)) return;
        MU_TRY(run, fy_sum(right, FY_ALL_AXES, 0, &late[step]));
        fy_tensor_destroy(step & 1 ? left : right);
        fy_tensor_destroy(step & 1 ? right : left);
        MU_TRY(run, fy_stream_set_current(streams[1]));
        MU_TRY(run, fy_full(device, FY_DTYPE_F32, FY_DIMS(WHOLE), -1, &both));
        mu_read(run, "of both", slow);
        fy_tensor_destroy(both);
    }
    for (int step = 0; step < 4; step++) {
        mu_read(run, "sum of the left one", early[step]);
        mu_read(run, "sum of the right one", late[step]);
    }
}

/* A pending block is split for its stream; the rest goes to another stream. */
void mu_split(mu_run_t *run)
{
    fy_device_t *device = run->devices[0];
    fy_stream_t *streams[2];
    fy_tensor_t *slow = mu_upload(run, device, N, 1), *sums[4], *wide, *small, *rest, *of_rest;
    if (!slow || !mu_streams(run, 2, streams)) return;
    for (int step = 0; step < 4; step++) {
        MU_TRY(run, fy_stream_set_current(streams[0]));
        MU_TRY(run, fy_full(device, FY_DTYPE_F32, FY_DIMS(WHOLE), 1, &wide));
        if (!mu_linger(run, slow, slow)) return;
        MU_TRY(run, fy_sum(wide, FY_ALL_AXES, 0, &sums[step]));
        fy_tensor_destroy(wide);
        MU_TRY(run, fy_full(device, FY_DTYPE_F32, FY_DIMS(PART), -1, &small));
        MU_TRY(run, fy_stream_set_current(streams[1]));
        MU_TRY(run, fy_full(device, FY_DTYPE_F32, FY_DIMS(WHOLE - PART), -2, &rest));
        MU_TRY(run, fy_max(rest, FY_ALL_AXES, 0, &of_rest));
        mu_read(run, "the rest", of_rest);
        fy_tensor_destroy(small);
        fy_tensor_destroy(rest);
        fy_tensor_destroy(of_rest);
    }
    mu_read(run, "slow", slow);
    for (int step = 0; step < 4; step++) mu_read(run, "sum of a block", sums[step]);
}

/* Two neighbouring blocks, each pending on a different stream; a third stream gets both as one. */
void mu_stretch(mu_run_t *run)
{
    fy_device_t *device = run->devices[0];
    fy_stream_t *streams[3];
    fy_tensor_t *slow[2] = { mu_upload(run, device, N, 1), mu_upload(run, device, N, 2) }, *sums[8],
                *halves[2], *both;
    if (!slow[0] || !slow[1] || !mu_streams(run, 3, streams)) return;
    for (int step = 0; step < 4; step++) {
        for (int i = 0; i < 2; i++) {
            MU_TRY(run, fy_stream_set_current(streams[i]));
            MU_TRY(run, fy_full(device, FY_DTYPE_F32, FY_DIMS(WHOLE / 2), (double)i, &halves[i]));
        }
        for (int i = 0; i < 2; i++) {
            MU_TRY(run, fy_stream_set_current(streams[i]));
            if (!mu_linger(run, slow[i], slow[i])) return;
            MU_TRY(run, fy_sum(halves[i], FY_ALL_AXES, 0, &sums[2 * step + i]));
        }
        for (int i = 0; i < 2; i++) fy_tensor_destroy(halves[i]);
        MU_TRY(run, fy_stream_set_current(streams[2]));
        MU_TRY(run, fy_full(device, FY_DTYPE_F32, FY_DIMS(WHOLE), -1, &both));
        mu_read(run, "both", slow[step & 1]);
        fy_tensor_destroy(both);
    }
    for (int i = 0; i < 8; i++) mu_read(run, "sum of a half", sums[i]);
}

/* Small packed uploads: through scratch memory that another stream still reads, and into tensors
 * that it still reads, alternately. */
void mu_many(mu_run_t *run)
{
    enum { COUNT = 4, SMALL = 250, FILLER = 1536 };
    fy_device_t *device = run->devices[0];
    fy_stream_t *stream;
    fy_tensor_t *slow = mu_upload(run, device, N, 1), *hosts[COUNT], *small[COUNT], *sums[COUNT],
                *wide, *filler;
    if (!slow || !mu_streams(run, 1, &stream)) return;
    for (int i = 0; i < COUNT; i++)
        if (!(hosts[i] = mu_host(run, SMALL, (float)i))) return;
    MU_TRY(run, fy_stream_set_current(stream));
    MU_TRY(run, fy_empty(device, FY_DTYPE_F32, FY_DIMS(WHOLE), &wide));
    MU_TRY(run, fy_tensor_upload_many(COUNT, hosts, device, NULL, small));
    MU_TRY(run, fy_full(device, FY_DTYPE_F32, FY_DIMS(FILLER), 0, &filler));
    fy_tensor_destroy(wide);
    for (int step = 0; step < 6; step++) {
        const int nsums = step & 1 ? COUNT : 1;
        void *values;
        if (!(step & 1)) MU_TRY(run, fy_full(device, FY_DTYPE_F32, FY_DIMS(WHOLE), 1, &wide));
        if (!mu_linger(run, slow, slow)) return;
        for (int i = 0; i < nsums; i++)
            MU_TRY(run, fy_sum(step & 1 ? small[i] : wide, FY_ALL_AXES, 0, &sums[i]));
        if (!(step & 1)) fy_tensor_destroy(wide);
        for (int i = 0; i < COUNT; i++) {
            MU_TRY(run, fy_tensor_map(hosts[i], FY_ACCESS_WRITE, &values));
            mu_count_up(values, SMALL, (float)(1000 * step + 100 * i));
        }
        MU_TRY(run, fy_tensor_upload_many_into(COUNT, small, hosts, NULL, NULL));
        for (int i = 0; i < COUNT;
             i++) { /* they passed through the ring: the host may write the sources */
            MU_TRY(run, fy_tensor_map(hosts[i], FY_ACCESS_WRITE, &values));
            mu_count_up(values, SMALL, -1);
        }
        for (int i = 0; i < COUNT; i++) mu_read(run, "an upload", small[i]);
        for (int i = 0; i < nsums; i++)
            mu_read(run, step & 1 ? "sum before an upload" : "sum of a block", sums[i]);
        for (int i = 0; i < nsums; i++) fy_tensor_destroy(sums[i]);
    }
}

/* Small packed downloads: the table and the packed bytes go into memory that another stream still
 * reads. */
void mu_collect(mu_run_t *run)
{
    enum { COUNT = 4, SMALL = 250, NFILLERS = 64 };
    fy_device_t *device = run->devices[0];
    fy_stream_t *stream;
    fy_tensor_t *slow = mu_upload(run, device, N, 1), *small[COUNT], *sum = NULL, *wide,
                *filler = NULL, *host;
    fy_download_t *downloads[COUNT];
    if (!slow || !mu_streams(run, 1, &stream)) return;
    MU_TRY(run, fy_stream_set_current(stream));
    MU_TRY(run, fy_empty(device, FY_DTYPE_F32, FY_DIMS(WHOLE), &wide));
    for (int i = 0; i < COUNT; i++)
        if (!(small[i] = mu_upload(run, device, SMALL, (float)(100 * i)))) return;
    /* all memory that is left, in pieces of which only one is large enough */
    for (int i = 0; i < NFILLERS; i++) {
        fy_tensor_t *one;
        if (fy_full(device, FY_DTYPE_F32, FY_DIMS(64), 0, &one) != FY_STATUS_OK) break;
        filler = one;
    }
    if (filler) fy_tensor_destroy(filler);
    fy_tensor_destroy(wide);
    for (int step = 0; step < 6; step++) {
        if (!mu_linger(run, slow, slow)) return;
        if (step & 1) {
            MU_TRY(run, fy_full(device, FY_DTYPE_F32, FY_DIMS(WHOLE), 1, &wide));
            MU_TRY(run, fy_sum(wide, FY_ALL_AXES, 0, &sum));
            fy_tensor_destroy(wide);
        } else
            MU_TRY(run, fy_fill(small[step % COUNT], (double)(1000 + step)));
        MU_TRY(run, fy_tensor_download_many(COUNT, small, NULL, downloads));
        for (int i = 0; i < COUNT; i++) {
            MU_TRY(run, fy_fill(small[i], (double)(10 * step + i))); /* too late to be visible */
            MU_TRY(run, fy_download_wait(downloads[i], FY_FOREVER, &host));
            mu_see(run, "one of many", host);
            fy_tensor_destroy(host);
        }
        if (!(step & 1)) continue;
        mu_read(run, "sum of a block", sum);
        fy_tensor_destroy(sum);
    }
}
