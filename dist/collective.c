/* The calls of a group: check, download, compare the calls of all ranks, move the parts, upload.
 * Tensors are moved in windows, each cut into one part a rank, so that scratch memory is bounded.
 * Each rank sums one part and sends it to all others (reduce-scatter, all-gather: Patarasuk and
 * Yuan 2009). Next: exchange.c. */
#include <stdlib.h>
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

static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }
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

/* ---- a call from begin to end ---- */

typedef struct request {
    const char *name;
    fyd_kind_t kind;
    int option;             /* the reduction, the root, the other rank */
    fy_tensor_t *src, *dst; /* equal: in place; NULL: none */
} request_t;

typedef struct running {
    fyd_operand_t src, dst; /* in place: src only */
} running_t;

static fy_status_t check_reduction(const request_t *q, const fy_tensor_info_t *info)
{
    const fy_dtype_t dtype = info->dtype;
    const bool is_float = dtype == FY_DTYPE_F32 || dtype == FY_DTYPE_F64;
    if (q->kind != FYD_ALL_REDUCE && q->kind != FYD_REDUCE_SCATTER) return FY_STATUS_OK;
    if (q->option < FY_GROUP_SUM || q->option > FY_GROUP_MAX)
        return FYD_FAIL(INVALID_ARGUMENT,
                        "%s: %d is no reduction; there are FY_GROUP_SUM, _MEAN "
                        "and _MAX",
                        q->name, q->option);
    if (is_float) return FY_STATUS_OK;
    if (q->option != FY_GROUP_MEAN && (dtype == FY_DTYPE_I32 || dtype == FY_DTYPE_I64))
        return FY_STATUS_OK;
    return FYD_FAIL(DTYPE_MISMATCH,
                    "%s: '%s' is %s\n  Sums and maxima take f32, f64, i32 and i64, "
                    "means f32 and f64: fy_cast",
                    q->name, info->name, fy_dtype_name(dtype));
}

/* The first axis of one operand is `size` times as long as that of the other. */
static fy_status_t check_parts(const fy_group_t *group, const request_t *q,
                               const fy_tensor_info_t *part, const fy_tensor_info_t *whole)
{
    bool fits = part->rank == whole->rank && part->rank > 0 &&
                part->dims[0] * group->transport.size == whole->dims[0];
    for (int i = 1; fits && i < part->rank; i++) fits = part->dims[i] == whole->dims[i];
    if (!fits)
        return FYD_FAIL(SHAPE_MISMATCH,
                        "%s: '%s' has %d times the first axis of '%s', and all "
                        "other axes are equal",
                        q->name, whole->name, group->transport.size, part->name);
    if (part->dtype != whole->dtype)
        return FYD_FAIL(DTYPE_MISMATCH, "%s: src and dst have one dtype", q->name);
    return part->storage != whole->storage
               ? FY_STATUS_OK
               : FYD_FAIL(INVALID_ARGUMENT, "%s: src and dst share a storage", q->name);
}

static fy_status_t check(const fy_group_t *group, const request_t *q)
{
    const bool is_pair = q->kind == FYD_SEND || q->kind == FYD_RECEIVE;
    if (!group) return FYD_FAIL(INVALID_ARGUMENT, "%s: the group is NULL", q->name);
    if (group->broken != FY_STATUS_OK)
        return fy_error_set(group->broken, __FILE__, __LINE__, "%s", group->reason);
    if (is_pair || q->kind == FYD_BROADCAST)
        if (q->option < 0 || q->option >= group->transport.size ||
            (is_pair && q->option == group->transport.rank))
            return FYD_FAIL(INVALID_ARGUMENT, "%s: %d is %s of this group of %d", q->name,
                            q->option, is_pair ? "no other rank" : "no rank",
                            group->transport.size);
    return FY_STATUS_OK;
}

static void set_call(fy_group_t *group, const request_t *q, const fy_tensor_info_t *info)
{
    fyd_call_t *call = &group->call;
    const uint64_t number = call->number + 1;
    memset(call, 0, sizeof *call);
    call->number = number;
    call->kind = (int32_t)q->kind;
    call->option = q->option;
    if (!info) return;
    call->dtype = (int32_t)info->dtype;
    call->rank = info->rank;
    for (int i = 0; i < info->rank; i++) call->dims[i] = info->dims[i];
}

static fy_status_t open_operands(fy_group_t *group, const request_t *q, running_t *run)
{
    const bool in_place = q->src && q->src == q->dst;
    const fy_access_t src_access = in_place ? FY_ACCESS_READ_WRITE : FY_ACCESS_READ;
    if (q->src) FY_TRY(fyd_operand_open(q->name, q->src, src_access, &run->src));
    if (q->dst && !in_place) FY_TRY(fyd_operand_open(q->name, q->dst, FY_ACCESS_WRITE, &run->dst));
    const fyd_operand_t *named = q->src ? &run->src : &run->dst;
    if (named->tensor) FY_TRY(check_reduction(q, &named->info));
    if (q->kind == FYD_ALL_GATHER) FY_TRY(check_parts(group, q, &run->src.info, &run->dst.info));
    if (q->kind == FYD_REDUCE_SCATTER)
        FY_TRY(check_parts(group, q, &run->dst.info, &run->src.info));
    if (group->transport.size > 1)
        FY_TRY(fy_ledger_collective(q->name, larger(run->src.info.nbytes, run->dst.info.nbytes)));
    set_call(group, q, named->tensor ? &named->info : NULL);
    if (in_place && group->transport.size == 1) return FY_STATUS_OK; /* nothing changes */
    const bool is_overwritten = q->kind == FYD_BROADCAST && q->option != group->transport.rank;
    return q->src && !is_overwritten ? fyd_operand_read(&run->src) : FY_STATUS_OK;
}

/* ---- what each call moves ---- */

static fy_status_t run_all_reduce(fy_group_t *group, const request_t *q, running_t *run)
{
    const uint64_t nbytes = run->src.info.nbytes;
    const uint64_t most = FYD_PIECE * (uint64_t)group->transport.size;
    char *base = run->src.data;
    window_t w = { .element = fy_dtype_size(run->src.info.dtype) };
    for (w.at = 0; w.at < nbytes; w.at += w.nbytes) {
        w.nbytes = least(nbytes - w.at, most);
        FY_TRY(reduce_part(group, &run->src, &w, (fy_group_reduce_t)q->option,
                           base + part_at(group, &w, group->transport.rank)));
        FY_TRY(spread_parts(group, base, &w, -1));
    }
    return FY_STATUS_OK;
}

static fy_status_t run_broadcast(fy_group_t *group, const request_t *q, running_t *run)
{
    const uint64_t nbytes = run->src.info.nbytes;
    const uint64_t most = FYD_PIECE * (uint64_t)group->transport.size;
    const int self = group->transport.rank;
    char *base = run->src.data;
    window_t w = { .element = 1 };
    for (w.at = 0; w.at < nbytes; w.at += w.nbytes) {
        size_t count = 0;
        w.nbytes = least(nbytes - w.at, most);
        for (int r = 0; self == q->option && r < group->transport.size; r++)
            add(group, &count, r, true, base + part_at(group, &w, r), part_nbytes(group, &w, r));
        if (self != q->option)
            add(group, &count, q->option, false, base + part_at(group, &w, self),
                part_nbytes(group, &w, self));
        FY_TRY(move(group, count));
        FY_TRY(spread_parts(group, base, &w, q->option));
    }
    return FY_STATUS_OK;
}

static fy_status_t run_reduce_scatter(fy_group_t *group, const request_t *q, running_t *run)
{
    const uint64_t nbytes = run->dst.info.nbytes;
    char *out = run->dst.data;
    window_t w = { .stride = nbytes, .element = fy_dtype_size(run->dst.info.dtype) };
    for (w.at = 0; w.at < nbytes; w.at += w.nbytes) {
        w.nbytes = least(nbytes - w.at, FYD_PIECE);
        FY_TRY(reduce_part(group, &run->src, &w, (fy_group_reduce_t)q->option, out + w.at));
    }
    return FY_STATUS_OK;
}

static fy_status_t run_all_gather(fy_group_t *group, const request_t *q, running_t *run)
{
    const uint64_t nbytes = run->src.info.nbytes;
    char *base = run->dst.data;
    window_t w = { .stride = nbytes, .element = 1 };
    (void)q;
    if (nbytes) memcpy(base + (uint64_t)group->transport.rank * nbytes, run->src.data, nbytes);
    for (w.at = 0; w.at < nbytes; w.at += w.nbytes) {
        w.nbytes = least(nbytes - w.at, FYD_PIECE);
        FY_TRY(spread_parts(group, base, &w, -1));
    }
    return FY_STATUS_OK;
}

static fy_status_t run_pair(fy_group_t *group, const request_t *q, running_t *run)
{
    const bool is_send = q->kind == FYD_SEND;
    const fyd_operand_t *operand = is_send ? &run->src : &run->dst;
    const uint64_t nbytes = operand->info.nbytes, most = FYD_PIECE * 16;
    for (uint64_t at = 0; at < nbytes; at += most) {
        size_t count = 0;
        add(group, &count, q->option, is_send, (char *)operand->data + at,
            least(nbytes - at, most));
        FY_TRY(move(group, count));
    }
    return FY_STATUS_OK;
}

static fy_status_t run_parts(fy_group_t *group, const request_t *q, running_t *run)
{
    switch (q->kind) {
    case FYD_ALL_REDUCE: return run_all_reduce(group, q, run);
    case FYD_BROADCAST: return run_broadcast(group, q, run);
    case FYD_REDUCE_SCATTER: return run_reduce_scatter(group, q, run);
    case FYD_ALL_GATHER: return run_all_gather(group, q, run);
    case FYD_SEND:
    case FYD_RECEIVE: return run_pair(group, q, run);
    default: return FY_STATUS_OK;
    }
}

static fy_status_t call(fy_group_t *group, const request_t *q)
{
    running_t run = { .src = { .tensor = NULL } };
    const bool is_pair = q->kind == FYD_SEND || q->kind == FYD_RECEIVE;
    bool is_used = false;
    FY_TRY(check(group, q));
    fy_status_t status = open_operands(group, q, &run);
    if (status == FY_STATUS_OK) status = fyd_agree(group, is_pair ? q->option : -1);
    if (status == FY_STATUS_OK) {
        status = run_parts(group, q, &run);
        is_used = status != FY_STATUS_OK;
    }
    if (status == FY_STATUS_OK && q->dst && (q->dst != q->src || group->transport.size > 1))
        status = fyd_operand_write(q->dst == q->src ? &run.src : &run.dst);
    if (status == FY_STATUS_OK) group->ncalls++;
    fyd_account(group);
    fyd_operand_close(&run.src, is_used);
    fyd_operand_close(&run.dst, is_used);
    return is_used ? fy_error_set(group->broken, __FILE__, __LINE__, "%s", group->reason) : status;
}

fy_status_t fy_group_all_reduce(fy_group_t *group, fy_tensor_t *tensor, fy_group_reduce_t reduce)
{
    return call(group,
                &(request_t){ "group_all_reduce", FYD_ALL_REDUCE, (int)reduce, tensor, tensor });
}

fy_status_t fy_group_broadcast(fy_group_t *group, fy_tensor_t *tensor, int root)
{
    return call(group, &(request_t){ "group_broadcast", FYD_BROADCAST, root, tensor, tensor });
}

fy_status_t fy_group_reduce_scatter(fy_group_t *group, fy_tensor_t *dst, fy_tensor_t *src,
                                    fy_group_reduce_t reduce)
{
    return call(group,
                &(request_t){ "group_reduce_scatter", FYD_REDUCE_SCATTER, (int)reduce, src, dst });
}

fy_status_t fy_group_all_gather(fy_group_t *group, fy_tensor_t *dst, fy_tensor_t *src)
{
    return call(group, &(request_t){ "group_all_gather", FYD_ALL_GATHER, 0, src, dst });
}

fy_status_t fy_group_send(fy_group_t *group, fy_tensor_t *src, int rank)
{
    return call(group, &(request_t){ "group_send", FYD_SEND, rank, src, NULL });
}

fy_status_t fy_group_receive(fy_group_t *group, fy_tensor_t *dst, int rank)
{
    return call(group, &(request_t){ "group_receive", FYD_RECEIVE, rank, NULL, dst });
}

fy_status_t fy_group_barrier(fy_group_t *group)
{
    return call(group, &(request_t){ "group_barrier", FYD_BARRIER, 0, NULL, NULL });
}
