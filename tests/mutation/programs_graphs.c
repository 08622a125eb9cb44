/* Programs about graphs: a replay is ordered like one op that reads and writes all recorded
 * operands. */
#include "tests/mutation/programs.h"

enum { N = 48, WIDE = 7168 /* 28 KiB of f32 */ };

/* Replays alternate on two streams, among other ops on the graph's operands and results; each
 * replay reads a page-locked buffer that the host rewrites. */
void mu_replays(mu_run_t *run)
{
    enum { NSTEPS = 6 };
    fy_device_t *device = run->devices[0];
    fy_stream_t *streams[4];
    fy_ticket_t ticket;
    fy_graph_t *graph;
    fy_tensor_t *x = mu_upload(run, device, N, 1), *sum = mu_upload(run, device, N, 0),
                *slow = mu_upload(run, device, N, 2);
    fy_tensor_t *buffer = mu_pinned(run, device, N, 5), *input, *twice, *seen[2 * NSTEPS];
    void *values;
    if (!x || !sum || !slow || !buffer || !mu_streams(run, 4, streams)) return;
    MU_TRY(run, fy_empty(device, FY_DTYPE_F32, FY_DIMS(N), &input));
    MU_TRY(run, fy_graph_begin(device));
    MU_TRY(run, fy_tensor_upload_into(input, buffer, &mu_borrowed, &ticket));
    MU_TRY(run, fy_add(x, input, &twice));
    MU_TRY(run, fy_axpy(sum, 1, twice));
    MU_TRY(run, fy_graph_end(&graph));
    for (int step = 0; step < NSTEPS; step++) {
        MU_TRY(run, fy_stream_set_current(streams[2]));
        if (step % 3 == 0 && !mu_linger(run, slow, slow)) return;
        MU_TRY(run, fy_affine(sum, 1, 0.5, &seen[2 * step]));
        MU_TRY(run, fy_stream_set_current(streams[3]));
        if (step % 3 == 1 && !mu_linger(run, x, x)) return;
        MU_TRY(run, fy_stream_set_current(streams[step & 1]));
        MU_TRY(run, fy_graph_replay(graph, &ticket));
        if (!mu_ok(run, "map while a replay borrows it",
                   fy_tensor_map(buffer, FY_ACCESS_WRITE, &values))) {
            MU_TRY(run, fy_ticket_wait(ticket, FY_FOREVER));
            MU_TRY(run, fy_tensor_map(buffer, FY_ACCESS_WRITE, &values));
        }
        mu_count_up(values, N, (float)(10 * step));
        MU_TRY(run, fy_affine(twice, 1, 0.25, &seen[2 * step + 1]));
    }
    mu_read(run, "sum", sum);
    mu_read(run, "slow", slow);
    for (int i = 0; i < 2 * NSTEPS; i++) mu_read(run, "before and after a replay", seen[i]);
    fy_graph_destroy(graph);
}

/* Graphs that are destroyed while they run; other tensors get their memory, and then the next graph
 * while those are used. */
void mu_graph_memory(mu_run_t *run)
{
    enum { NSTEPS = 3, SOME = 7168 };
    fy_device_t *device = run->devices[0];
    fy_stream_t *streams[2];
    fy_tensor_t *slow = mu_upload(run, device, N, 1), *late = mu_upload(run, device, N, 2),
                *sums[NSTEPS], *of_next[NSTEPS], *wide, *sum, *next;
    if (!slow || !late || !mu_streams(run, 2, streams)) return;
    for (int step = 0; step < NSTEPS; step++) {
        fy_graph_t *graph;
        MU_TRY(run, fy_stream_set_current(streams[0]));
        MU_TRY(run, fy_zeros(device, FY_DTYPE_F32, 0, NULL, &sums[step]));
        MU_TRY(run, fy_graph_begin(device));
        MU_TRY(run, fy_full(device, FY_DTYPE_F32, FY_DIMS(SOME), 1, &wide));
        if (!mu_linger(run, slow, slow)) return;
        MU_TRY(run, fy_sum(wide, FY_ALL_AXES, 0, &sum));
        MU_TRY(run, fy_axpy(sums[step], 1, sum));
        MU_TRY(run, fy_graph_end(&graph));
        fy_graph_info_t info = FY_GRAPH_INFO_INIT;
        MU_TRY(run, fy_graph_query(graph, &info));
        mu_note(run, "the graph's memory", &info.pool_nbytes, sizeof info.pool_nbytes);
        MU_TRY(run, fy_graph_replay(graph, NULL));
        fy_tensor_destroy(wide);
        fy_tensor_destroy(sum);
        fy_graph_destroy(graph);
        MU_TRY(run, fy_stream_set_current(streams[1]));
        MU_TRY(run,
               fy_full(device, FY_DTYPE_F32, FY_DIMS((int64_t)info.pool_nbytes / 4), -1, &next));
        if (!mu_linger(run, late, late)) return;
        MU_TRY(run, fy_max(next, FY_ALL_AXES, 0, &of_next[step]));
        fy_tensor_destroy(next);
    }
    for (int step = 0; step < NSTEPS; step++) mu_read(run, "of the next tensor", of_next[step]);
    for (int step = 0; step < NSTEPS; step++) mu_read(run, "a replay's sum", sums[step]);
}

/* A graph's memory is a block that an op still uses while the graph is recorded. */
void mu_graph_inherits(mu_run_t *run)
{
    fy_device_t *device = run->devices[0];
    fy_stream_t *streams[2];
    fy_tensor_t *wide, *sum, *before, *x = mu_upload(run, device, N, 1), *row, *inside;
    fy_graph_t *graph;
    if (!x || !mu_streams(run, 2, streams)) return;
    MU_TRY(run, fy_zeros(device, FY_DTYPE_F32, FY_DIMS(WIDE), &before));
    MU_TRY(run, fy_zeros(device, FY_DTYPE_F32, FY_DIMS(WIDE / 28), &sum));
    fy_tensor_destroy(before);
    MU_TRY(run, fy_full(device, FY_DTYPE_F32, FY_DIMS(WIDE), 3, &wide)); /* all free memory */
    MU_TRY(run, fy_device_wait(device, FY_FOREVER));
    MU_TRY(run, fy_stream_set_current(streams[0]));
    MU_TRY(run, fy_slice(wide, 0, 0, WIDE / 28, &row));
    if (!mu_linger(run, sum, row)) return; /* reads it, late */
    fy_tensor_destroy(row);
    fy_tensor_destroy(wide);
    MU_TRY(run, fy_stream_set_current(streams[1]));
    MU_TRY(run, fy_graph_begin(device));
    MU_TRY(run, fy_full(device, FY_DTYPE_F32, FY_DIMS(WIDE), -1, &inside));
    MU_TRY(run, fy_slice(inside, 0, 0, N, &row));
    MU_TRY(run, fy_axpy(x, 1, row));
    fy_tensor_destroy(row);
    fy_tensor_destroy(inside);
    MU_TRY(run, fy_graph_end(&graph));
    MU_TRY(run, fy_graph_replay(graph, NULL));
    mu_read(run, "x", x);
    mu_read(run, "what was read before the graph had the memory", sum);
}

/* A graph, and a tensor made in it, are destroyed while a replay and a reader run; another tensor
 * gets the memory. */
void mu_graph_gone(mu_run_t *run)
{
    fy_device_t *device = run->devices[0];
    fy_stream_t *streams[3];
    fy_tensor_t *x = mu_upload(run, device, N, 1), *state = mu_upload(run, device, N, 100),
                *seen = mu_upload(run, device, N, 5), *wide, *row, *inside, *other;
    if (!x || !state || !seen || !mu_streams(run, 3, streams)) return;
    for (int step = 0; step < 4; step++) {
        fy_graph_t *graph;
        MU_TRY(run, fy_stream_set_current(streams[0]));
        MU_TRY(run, fy_graph_begin(device));
        MU_TRY(run, fy_full(device, FY_DTYPE_F32, FY_DIMS(WIDE - N), (double)step, &wide));
        MU_TRY(run, fy_slice(wide, 0, 0, N, &row));
        MU_TRY(run, fy_affine(x, 1, 1, &inside));
        if (!mu_linger(run, state, x)) return; /* takes long ... */
        MU_TRY(run, fy_axpy(state, 1, row));   /* ... and `wide` is read after it */
        fy_tensor_destroy(row);
        fy_tensor_destroy(wide);
        MU_TRY(run, fy_graph_end(&graph));
        MU_TRY(run, fy_graph_replay(graph, NULL));
        if (step & 1) { /* the last user is a reader on another stream */
            MU_TRY(run, fy_stream_set_current(streams[1]));
            if (!mu_linger(run, seen, x)) return;
            MU_TRY(run, fy_axpy(seen, 1, inside));
        }
        fy_graph_destroy(graph);
        fy_tensor_destroy(inside);
        MU_TRY(run, fy_stream_set_current(streams[2]));
        /* in the same bytes */
        MU_TRY(run, fy_full(device, FY_DTYPE_F32, FY_DIMS(WIDE), -7, &other));
        fy_tensor_destroy(other);
    }
    mu_read(run, "state", state);
    mu_read(run, "seen", seen);
}
