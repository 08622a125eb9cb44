/* The bytes that each call of a group moves, once the calls of all ranks are compared. Tensors are
 * moved in windows, each cut into one part a rank, so that scratch memory is bounded. Each rank
 * sums one part and sends it to all others (reduce-scatter, all-gather: Patarasuk and Yuan 2009).
 * Small tensors are sent with the comparison of calls. Next: agree.c, exchange.c. */
#include <string.h>

#include <ferry/ledger.h>

#include "dist/group.h"

/* A window cut into parts, in bytes. stride 0: [at, at + nbytes) is cut into parts of about equal
 * length, of whole elements; else part r is the nbytes at r * stride + at. */
typedef struct window {
    uint64_t at, nbytes, stride, element;
} window_t;

static uint64_t part_at(const fy_group_t *group, const window_t *w, int rank)
{
    if (w->stride) return (uint64_t)rank * w->stride + w->at;
    const uint64_t n = w->nbytes / w->element, size = (uint64_t)group->transport.size;
    return w->at + n * (uint64_t)rank / size * w->element;
}

static uint64_t part_nbytes(const fy_group_t *group, const window_t *w, int rank)
{
    return w->stride ? w->nbytes : part_at(group, w, rank + 1) - part_at(group, w, rank);
}

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* ---- messages ---- */

static void add(fy_group_t *group, size_t *count, int peer, bool is_send, char *data,
                uint64_t nbytes)
{
    if (peer == group->transport.rank) return;
    group->messages[(*count)++] =
        (fyd_message_t){ .peer = peer, .is_send = is_send, .data = data, .nbytes = nbytes };
}

static fy_status_t move(fy_group_t *group, size_t count)
{
    FY_TRY(fyd_exchange(group, group->messages, count));
    for (size_t i = 0; i < count; i++)
        *(group->messages[i].is_send ? &group->sent_nbytes : &group->received_nbytes) +=
            group->messages[i].nbytes;
    return FY_STATUS_OK;
}

/* out = the reduction of this rank's part over all ranks. */
static fy_status_t reduce_part(fy_group_t *group, const fyd_operand_t *src, const window_t *w,
                               fy_group_reduce_t reduce, char *out)
{
    const int size = group->transport.size, self = group->transport.rank;
    const uint64_t own = part_nbytes(group, w, self);
    char *base = src->data;
    size_t count = 0;
    for (int r = 0; r < size; r++) {
        char *part = base + part_at(group, w, r), *room = group->scratch + (uint64_t)r * FYD_PIECE;
        group->sources[r] = r == self ? part : room;
        add(group, &count, r, false, room, own);
        add(group, &count, r, true, part, part_nbytes(group, w, r));
    }
    FY_TRY(move(group, count));
    fyd_reduce(src->info.dtype, reduce, out, group->sources, size, own / w->element);
    return FY_STATUS_OK;
}

/* Every rank gets every part from the rank that has it; `root` >= 0 has all parts already. */
static fy_status_t spread_parts(fy_group_t *group, char *base, const window_t *w, int root)
{
    const int self = group->transport.rank;
    size_t count = 0;
    for (int r = 0; r < group->transport.size; r++) {
        if (self != root)
            add(group, &count, r, false, base + part_at(group, w, r), part_nbytes(group, w, r));
        if (r != root)
            add(group, &count, r, true, base + part_at(group, w, self),
                part_nbytes(group, w, self));
    }
    return move(group, count);
}

/* ---- large tensors ---- */

/* What the call brings to each rank: all of a tensor, or a part. */
static uint64_t unit_nbytes(const fyd_work_t *work)
{
    const bool by_dst = work->call.kind == FY_COLLECTIVE_REDUCE_SCATTER ||
                        work->call.kind == FY_COLLECTIVE_RECEIVE;
    return by_dst ? work->dst.info.nbytes : work->src.info.nbytes;
}

/* The root's part r goes to rank r, then from there to every other rank. */
static fy_status_t broadcast(fy_group_t *group, char *base, const window_t *w, int root)
{
    const int self = group->transport.rank;
    size_t count = 0;
    for (int r = 0; self == root && r < group->transport.size; r++)
        add(group, &count, r, true, base + part_at(group, w, r), part_nbytes(group, w, r));
    if (self != root)
        add(group, &count, root, false, base + part_at(group, w, self),
            part_nbytes(group, w, self));
    FY_TRY(move(group, count));
    return spread_parts(group, base, w, root);
}

static fy_status_t move_window(fy_group_t *group, const fyd_work_t *work, const window_t *w)
{
    const int option = work->call.option;
    char *src = work->src.data, *dst = work->dst.data, *part;
    size_t count = 0;
    switch (work->call.kind) {
    case FY_COLLECTIVE_ALL_REDUCE:
        part = src + part_at(group, w, group->transport.rank);
        FY_TRY(reduce_part(group, &work->src, w, (fy_group_reduce_t)option, part));
        return spread_parts(group, src, w, -1);
    case FY_COLLECTIVE_BROADCAST: return broadcast(group, src, w, option);
    case FY_COLLECTIVE_REDUCE_SCATTER:
        return reduce_part(group, &work->src, w, (fy_group_reduce_t)option, dst + w->at);
    case FY_COLLECTIVE_ALL_GATHER: return spread_parts(group, dst, w, -1);
    case FY_COLLECTIVE_SEND: add(group, &count, option, true, src + w->at, w->nbytes); break;
    default: add(group, &count, option, false, dst + w->at, w->nbytes);
    }
    return move(group, count);
}

static fy_status_t run_large(fy_group_t *group, const fyd_work_t *work)
{
    const uint64_t nbytes = unit_nbytes(work), size = (uint64_t)group->transport.size;
    const bool is_pair = fyd_is_pair(&work->call), has_parts = !is_pair && !work->in_place;
    const uint64_t most = FYD_PIECE * (is_pair ? 16 : has_parts ? 1 : size);
    window_t w = { .stride = has_parts ? nbytes : 0,
                   .element = fyd_reduces(&work->call) ? fy_dtype_size(work->src.info.dtype) : 1 };
    if (work->call.kind == FY_COLLECTIVE_ALL_GATHER && nbytes)
        memcpy((char *)work->dst.data + (uint64_t)group->transport.rank * nbytes, work->src.data,
               nbytes);
    for (w.at = 0; w.at < nbytes; w.at += w.nbytes) {
        w.nbytes = least(nbytes - w.at, most);
        FY_TRY(move_window(group, work, &w));
    }
    return FY_STATUS_OK;
}

/* ---- small tensors, sent with the call ---- */

/* Of two ranks each sends the whole tensor: one message fewer, and as many bytes. */
static bool is_summed_whole(const fy_group_t *group, const fyd_work_t *work)
{
    return work->call.kind == FY_COLLECTIVE_ALL_REDUCE && group->transport.size == 2 &&
           sizeof(fyd_call_t) + work->src.info.nbytes <= group->transport.eager_nbytes;
}

/* Is the comparison of calls as fast with the elements as without? */
static bool is_small(const fy_group_t *group, const fyd_work_t *work)
{
    const uint64_t unit = unit_nbytes(work), size = (uint64_t)group->transport.size;
    const bool is_cut = work->call.kind == FY_COLLECTIVE_ALL_REDUCE &&
                        !is_summed_whole(group, work);
    const uint64_t most = is_cut ? unit / size + fy_dtype_size(work->src.info.dtype) : unit;
    return unit > 0 && unit <= FYD_SMALL &&
           sizeof(fyd_call_t) + most <= group->transport.eager_nbytes;
}

static window_t whole(const fyd_work_t *work)
{
    return (window_t){ .nbytes = work->src.info.nbytes,
                       .element = fy_dtype_size(work->src.info.dtype) };
}

/* The bytes that go from this rank to rank r. */
static uint64_t pack(fy_group_t *group, const fyd_work_t *work, int r)
{
    const char *base = work->src.data;
    uint64_t nbytes = unit_nbytes(work);
    if (work->call.kind == FY_COLLECTIVE_ALL_REDUCE && !is_summed_whole(group, work)) {
        const window_t w = whole(work);
        base += part_at(group, &w, r);
        nbytes = part_nbytes(group, &w, r);
    } else if (work->call.kind == FY_COLLECTIVE_REDUCE_SCATTER) {
        base += (uint64_t)r * nbytes;
    } else if (work->call.kind == FY_COLLECTIVE_RECEIVE ||
               (work->call.kind == FY_COLLECTIVE_BROADCAST &&
                work->call.option != group->transport.rank)) {
        return 0;
    }
    if (nbytes) memcpy(fyd_outbox(group, r), base, nbytes);
    return nbytes;
}

/* out = the reduction of `own` and of what the other ranks have sent. */
static void reduce_inbox(fy_group_t *group, const fyd_work_t *work, const char *own, void *out,
                         uint64_t nbytes)
{
    const int size = group->transport.size;
    for (int r = 0; r < size; r++)
        group->sources[r] = r == group->transport.rank ? own : fyd_inbox(group, r);
    fyd_reduce(work->src.info.dtype, (fy_group_reduce_t)work->call.option, out, group->sources,
               size, nbytes / fy_dtype_size(work->src.info.dtype));
}

static fy_status_t run_small(fy_group_t *group, const fyd_work_t *work)
{
    const int self = group->transport.rank;
    const uint64_t nbytes = unit_nbytes(work);
    char *src = work->src.data, *dst = work->dst.data;
    const window_t w = whole(work);
    switch (work->call.kind) {
    case FY_COLLECTIVE_ALL_REDUCE:
        if (!is_summed_whole(group, work)) {
            src += part_at(group, &w, self);
            reduce_inbox(group, work, src, src, part_nbytes(group, &w, self));
            return spread_parts(group, work->src.data, &w, -1);
        }
        reduce_inbox(group, work, src, src, nbytes);
        break;
    case FY_COLLECTIVE_BROADCAST:
        if (work->call.option != self) memcpy(src, fyd_inbox(group, work->call.option), nbytes);
        break;
    case FY_COLLECTIVE_REDUCE_SCATTER:
        reduce_inbox(group, work, src + (uint64_t)self * nbytes, dst, nbytes);
        break;
    case FY_COLLECTIVE_ALL_GATHER:
        for (int r = 0; r < group->transport.size; r++)
            memcpy(dst + (uint64_t)r * nbytes, r == self ? src : fyd_inbox(group, r), nbytes);
        break;
    case FY_COLLECTIVE_RECEIVE: memcpy(dst, fyd_inbox(group, work->call.option), nbytes); break;
    default: break;
    }
    return FY_STATUS_OK;
}

/* The calls are equal, so each rank has received what its own call says. */
static void count_small(fy_group_t *group, const fyd_work_t *work, int peer)
{
    const window_t w = whole(work);
    const int self = group->transport.rank;
    uint64_t in = unit_nbytes(work);
    if (work->call.kind == FY_COLLECTIVE_ALL_REDUCE && !is_summed_whole(group, work))
        in = part_nbytes(group, &w, self);
    for (int r = 0; r < group->transport.size; r++) {
        if (r == self || (peer >= 0 && r != peer)) continue;
        group->sent_nbytes += group->packed[r];
        if (work->call.kind == FY_COLLECTIVE_SEND ||
            (work->call.kind == FY_COLLECTIVE_BROADCAST && work->call.option != r))
            continue;
        group->received_nbytes += in;
    }
}

/* ---- a call ---- */

/* The engine is held. */
static fy_status_t run(fy_group_t *group, fyd_work_t *work)
{
    const bool is_pair = fyd_is_pair(&work->call);
    const int peer = is_pair ? work->call.option : -1;
    const bool small = !work->call.is_native && is_small(group, work);
    FY_TRY(fyd_check(group));
    work->call.number = group->call.number + 1;
    group->call = work->call;
    for (int r = 0; r < group->transport.size; r++) {
        const bool is_sent = small && r != group->transport.rank && (!is_pair || r == peer);
        group->packed[r] = is_sent ? pack(group, work, r) : 0;
    }
    FY_TRY(fyd_agree(group, peer));
    if (work->call.is_native) {
        FY_TRY(fyd_native_run(group, work));
        group->ncalls++;
        return FY_STATUS_OK;
    }
    work->is_used = true;
    if (small) count_small(group, work, peer);
    FY_TRY(small ? run_small(group, work) : run_large(group, work));
    work->is_used = false;
    group->ncalls++;
    return FY_STATUS_OK;
}

fy_status_t fyd_move(fy_group_t *group, fyd_work_t *work)
{
    const uint64_t start_ns = work->start_ns ? work->start_ns : fy__now_ns();
    pthread_mutex_lock(&group->engine);
    const fy_status_t status = run(group, work);
    fyd_account(group);
    fy_ledger_collective_ran(fyd_call_name(&work->call), group->transport.rank, group->call.number,
                             start_ns, status);
    pthread_mutex_unlock(&group->engine);
    return status;
}
