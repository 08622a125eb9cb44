/* The calls of a group: checks, operands, and whether this thread or the group's runs them. Next:
 * collective.c. */
#include <stdlib.h>
#include <string.h>

#include <ferry/ledger.h>

#include "dist/group.h"

typedef struct request {
    const char *name;
    fyd_kind_t kind;
    int option;             /* the reduction, the root, the other rank */
    fy_tensor_t *src, *dst; /* equal: in place; NULL: none */
} request_t;

/* ---- checks ---- */

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

static fy_status_t check(fy_group_t *group, const request_t *q)
{
    const bool is_pair = q->kind == FYD_SEND || q->kind == FYD_RECEIVE;
    const bool lacks_src = !q->src && q->kind != FYD_RECEIVE;
    const bool lacks_dst = !q->dst && q->kind != FYD_SEND;
    if (!group) return FYD_FAIL(INVALID_ARGUMENT, "%s: the group is NULL", q->name);
    FY_TRY(fyd_check_process(group, q->name));
    FY_TRY(fyd_check(group));
    if (is_pair || q->kind == FYD_BROADCAST)
        if (q->option < 0 || q->option >= group->transport.size ||
            (is_pair && q->option == group->transport.rank))
            return FYD_FAIL(INVALID_ARGUMENT, "%s: %d is %s of this group of %d", q->name,
                            q->option, is_pair ? "no other rank" : "no rank",
                            group->transport.size);
    return q->kind != FYD_BARRIER && (lacks_src || lacks_dst)
               ? FYD_FAIL(INVALID_ARGUMENT, "%s: a tensor is NULL", q->name)
               : FY_STATUS_OK;
}

/* ---- from a request to work ---- */

static void describe(fyd_call_t *call, const request_t *q, const fy_tensor_info_t *info)
{
    memset(call, 0, sizeof *call);
    call->kind = (int32_t)q->kind;
    call->option = q->option;
    if (!info) return;
    call->dtype = (int32_t)info->dtype;
    call->rank = info->rank;
    for (int i = 0; i < info->rank; i++) call->dims[i] = info->dims[i];
}

static fy_status_t open_work(const fy_group_t *group, const request_t *q, bool is_async,
                             fyd_work_t *work)
{
    *work = (fyd_work_t){ .name = q->name,
                          .kind = q->kind,
                          .option = q->option,
                          .in_place = q->src && q->src == q->dst };
    const fy_access_t access = work->in_place ? FY_ACCESS_READ_WRITE : FY_ACCESS_READ;
    if (q->src) FY_TRY(fyd_operand_open(q->name, q->src, access, is_async, &work->src));
    if (q->dst && !work->in_place)
        FY_TRY(fyd_operand_open(q->name, q->dst, FY_ACCESS_WRITE, is_async, &work->dst));
    const fyd_operand_t *named = q->src ? &work->src : &work->dst;
    if (named->tensor) FY_TRY(check_reduction(q, &named->info));
    if (q->kind == FYD_ALL_GATHER) FY_TRY(check_parts(group, q, &work->src.info, &work->dst.info));
    if (q->kind == FYD_REDUCE_SCATTER)
        FY_TRY(check_parts(group, q, &work->dst.info, &work->src.info));
    describe(&work->call, q, named->tensor ? &named->info : NULL);
    work->is_native = fyd_is_native(group, work);
    work->call.is_native = work->is_native;
    if (!work->is_native) {
        FY_TRY(fyd_operand_stage(&work->src));
        FY_TRY(fyd_operand_stage(&work->dst));
    }
    if (group->transport.size == 1) return FY_STATUS_OK;
    const uint64_t src = work->src.info.nbytes, dst = work->dst.info.nbytes;
    return fy_ledger_collective(q->name, src > dst ? src : dst);
}

void fyd_work_close(fyd_work_t *work)
{
    fyd_operand_close(&work->src, work->is_used);
    fyd_operand_close(&work->dst, work->is_used);
}

static fy_status_t run_native(fy_group_t *group, fyd_work_t *work, fy_ticket_t *out_ticket)
{
    FY_TRY(fyd_check(group));
    FY_TRY(fyd_native_prepare(group, work));
    FY_TRY(fyd_move(group, work));
    *out_ticket = work->ticket;
    return FY_STATUS_OK;
}

static fy_status_t run(fy_group_t *group, fyd_work_t *work, fy_ticket_t *out_ticket)
{
    if (work->is_native) return run_native(group, work, out_ticket);
    const bool is_alone = group->transport.size == 1;
    const bool is_overwritten = work->kind == FYD_BROADCAST &&
                                work->option != group->transport.rank;
    if (work->src.tensor && !is_overwritten && !(is_alone && work->in_place))
        FY_TRY(fyd_operand_read(&work->src));
    FY_TRY(fyd_move(group, work));
    if (work->in_place && !is_alone) return fyd_operand_write(&work->src, out_ticket);
    return work->dst.tensor ? fyd_operand_write(&work->dst, out_ticket) : FY_STATUS_OK;
}

fy_status_t fyd_work_run(fy_group_t *group, fyd_work_t *work, fy_ticket_t *out_ticket)
{
    const fy_status_t status = run(group, work, out_ticket);
    if (status == FY_STATUS_OK) {
        fyd_work_close(work);
        return status;
    }
    const fy_error_t error = *fy_error_get();
    fyd_work_close(work);
    return fy_error_set(status, error.file, error.line, "%s", error.text);
}

static fy_status_t call_now(fy_group_t *group, const request_t *q)
{
    fy_ticket_t ticket;
    fyd_work_t work;
    fy_status_t status = open_work(group, q, false, &work);
    if (status != FY_STATUS_OK) {
        fyd_work_close(&work);
        return status;
    }
    work.start_ns = fyd_now_ns();
    fyd_worker_pause(group);
    status = fyd_work_run(group, &work, &ticket);
    fyd_worker_resume(group);
    return status;
}

static fy_status_t call(fy_group_t *group, const request_t *q)
{
    FY_TRY(check(group, q));
    return call_now(group, q);
}

static fy_status_t submit(fy_group_t *group, const request_t *q, fyd_work_t *work,
                          fy_ticket_t *out_ticket)
{
    FY_TRY(fyd_worker_start(group));
    FY_TRY(open_work(group, q, true, work));
    FY_TRY(fy_external_begin(q->name, work->src.tensor,
                             work->in_place ? work->src.tensor : work->dst.tensor, &work->external,
                             out_ticket));
    fyd_worker_submit(group, work);
    return FY_STATUS_OK;
}

static fy_status_t call_async(fy_group_t *group, const request_t *q, fy_ticket_t *out_ticket)
{
    if (!out_ticket) return FYD_FAIL(INVALID_ARGUMENT, "%s: out_ticket is NULL", q->name);
    *out_ticket = (fy_ticket_t){ 0, 0 };
    FY_TRY(check(group, q));
    if (group->transport.size == 1 || !group->transport.has_threads) return call_now(group, q);
    fyd_work_t *work = calloc(1, sizeof *work);
    if (!work)
        return FYD_FAIL(OUT_OF_MEMORY, "%s: no host memory for %zu bytes", q->name, sizeof *work);
    const fy_status_t status = submit(group, q, work, out_ticket);
    if (status == FY_STATUS_OK) return status;
    const fy_error_t error = *fy_error_get();
    fyd_work_close(work);
    free(work);
    return fy_error_set(status, error.file, error.line, "%s", error.text);
}

/* ---- the calls ---- */

#define ALL_REDUCE \
    &(request_t) { "group_all_reduce", FYD_ALL_REDUCE, (int)reduce, tensor, tensor }
#define BROADCAST \
    &(request_t) { "group_broadcast", FYD_BROADCAST, root, tensor, tensor }
#define REDUCE_SCATTER \
    &(request_t) { "group_reduce_scatter", FYD_REDUCE_SCATTER, (int)reduce, src, dst }
#define ALL_GATHER \
    &(request_t) { "group_all_gather", FYD_ALL_GATHER, 0, src, dst }
#define SEND \
    &(request_t) { "group_send", FYD_SEND, rank, src, NULL }
#define RECEIVE \
    &(request_t) { "group_receive", FYD_RECEIVE, rank, NULL, dst }

fy_status_t fy_group_all_reduce(fy_group_t *group, fy_tensor_t *tensor, fy_group_reduce_t reduce)
{
    return call(group, ALL_REDUCE);
}

fy_status_t fy_group_broadcast(fy_group_t *group, fy_tensor_t *tensor, int root)
{
    return call(group, BROADCAST);
}

fy_status_t fy_group_reduce_scatter(fy_group_t *group, fy_tensor_t *dst, fy_tensor_t *src,
                                    fy_group_reduce_t reduce)
{
    return call(group, REDUCE_SCATTER);
}

fy_status_t fy_group_all_gather(fy_group_t *group, fy_tensor_t *dst, fy_tensor_t *src)
{
    return call(group, ALL_GATHER);
}

fy_status_t fy_group_send(fy_group_t *group, fy_tensor_t *src, int rank)
{
    return call(group, SEND);
}

fy_status_t fy_group_receive(fy_group_t *group, fy_tensor_t *dst, int rank)
{
    return call(group, RECEIVE);
}

fy_status_t fy_group_barrier(fy_group_t *group)
{
    return call(group, &(request_t){ "group_barrier", FYD_BARRIER, 0, NULL, NULL });
}

fy_status_t fy_group_all_reduce_async(fy_group_t *group, fy_tensor_t *tensor,
                                      fy_group_reduce_t reduce, fy_ticket_t *out_ticket)
{
    return call_async(group, ALL_REDUCE, out_ticket);
}

fy_status_t fy_group_broadcast_async(fy_group_t *group, fy_tensor_t *tensor, int root,
                                     fy_ticket_t *out_ticket)
{
    return call_async(group, BROADCAST, out_ticket);
}

fy_status_t fy_group_reduce_scatter_async(fy_group_t *group, fy_tensor_t *dst, fy_tensor_t *src,
                                          fy_group_reduce_t reduce, fy_ticket_t *out_ticket)
{
    return call_async(group, REDUCE_SCATTER, out_ticket);
}

fy_status_t fy_group_all_gather_async(fy_group_t *group, fy_tensor_t *dst, fy_tensor_t *src,
                                      fy_ticket_t *out_ticket)
{
    return call_async(group, ALL_GATHER, out_ticket);
}

fy_status_t fy_group_send_async(fy_group_t *group, fy_tensor_t *src, int rank,
                                fy_ticket_t *out_ticket)
{
    return call_async(group, SEND, out_ticket);
}

fy_status_t fy_group_receive_async(fy_group_t *group, fy_tensor_t *dst, int rank,
                                   fy_ticket_t *out_ticket)
{
    return call_async(group, RECEIVE, out_ticket);
}
