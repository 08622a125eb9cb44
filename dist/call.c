/* The calls of a group: checks, operands, and whether this thread or the group's runs them. Next:
 * collective.c. */
#include <stdlib.h>

#include <ferry/ledger.h>

#include "dist/group.h"

/* ---- checks ---- */

static fy_status_t check_reduction(const char *name, int option, const fy_tensor_info_t *info)
{
    const fy_dtype_t dtype = info->dtype;
    if (option < FY_GROUP_SUM || option > FY_GROUP_MAX)
        return FYD_FAIL(INVALID_ARGUMENT,
                        "%s: %d is no reduction; there are FY_GROUP_SUM, _MEAN "
                        "and _MAX",
                        name, option);
    if (dtype == FY_DTYPE_F32 || dtype == FY_DTYPE_F64) return FY_STATUS_OK;
    if (option != FY_GROUP_MEAN && (dtype == FY_DTYPE_I32 || dtype == FY_DTYPE_I64))
        return FY_STATUS_OK;
    return FYD_FAIL(DTYPE_MISMATCH,
                    "%s: '%s' is %s\n  Sums and maxima take f32, f64, i32 and i64, "
                    "means f32 and f64: fy_cast",
                    name, info->name, fy_dtype_name(dtype));
}

/* The first axis of one operand is `size` times as long as that of the other. */
static fy_status_t check_parts(const fy_group_t *group, const char *name,
                               const fy_tensor_info_t *part, const fy_tensor_info_t *whole)
{
    bool fits = part->rank == whole->rank && part->rank > 0 &&
                part->dims[0] * group->transport.size == whole->dims[0];
    for (int i = 1; fits && i < part->rank; i++) fits = part->dims[i] == whole->dims[i];
    if (!fits)
        return FYD_FAIL(SHAPE_MISMATCH,
                        "%s: '%s' has %d times the first axis of '%s', and all "
                        "other axes are equal",
                        name, whole->name, group->transport.size, part->name);
    if (part->dtype != whole->dtype)
        return FYD_FAIL(DTYPE_MISMATCH, "%s: src and dst have one dtype", name);
    return part->storage != whole->storage
               ? FY_STATUS_OK
               : FYD_FAIL(INVALID_ARGUMENT, "%s: src and dst share a storage", name);
}

static fy_status_t check(fy_group_t *group, const fyd_work_t *work)
{
    const char *name = fyd_call_name(&work->call);
    const int kind = work->call.kind, option = work->call.option;
    const bool is_pair = fyd_is_pair(&work->call);
    const bool lacks_src = !work->src.tensor && kind != FY_COLLECTIVE_RECEIVE;
    const bool lacks_dst = !work->in_place && !work->dst.tensor && kind != FY_COLLECTIVE_SEND;
    if (!group) return FYD_FAIL(INVALID_ARGUMENT, "%s: the group is NULL", name);
    FY_TRY(fyd_check_process(group, name));
    FY_TRY(fyd_check(group));
    if (is_pair || kind == FY_COLLECTIVE_BROADCAST)
        if (option < 0 || option >= group->transport.size ||
            (is_pair && option == group->transport.rank))
            return FYD_FAIL(INVALID_ARGUMENT, "%s: %d is %s of this group of %d", name, option,
                            is_pair ? "no other rank" : "no rank", group->transport.size);
    return kind != FYD_BARRIER && (lacks_src || lacks_dst)
               ? FYD_FAIL(INVALID_ARGUMENT, "%s: a tensor is NULL", name)
               : FY_STATUS_OK;
}

/* ---- work ---- */

/* Opens the operands and checks them. */
static fy_status_t open_work(const fy_group_t *group, fyd_work_t *work, bool is_async)
{
    const char *name = fyd_call_name(&work->call);
    fyd_operand_t *src = &work->src, *dst = &work->dst;
    const fy_tensor_info_t *info = src->tensor ? &src->info : &dst->info;
    FY_TRY(fyd_operand_open(name, src, work->in_place ? FY_ACCESS_READ_WRITE : FY_ACCESS_READ,
                            is_async));
    FY_TRY(fyd_operand_open(name, dst, FY_ACCESS_WRITE, is_async));
    if (fyd_reduces(&work->call)) FY_TRY(check_reduction(name, work->call.option, info));
    if (work->call.kind == FY_COLLECTIVE_ALL_GATHER)
        FY_TRY(check_parts(group, name, &src->info, &dst->info));
    if (work->call.kind == FY_COLLECTIVE_REDUCE_SCATTER)
        FY_TRY(check_parts(group, name, &dst->info, &src->info));
    work->call.dtype = (int32_t)info->dtype;
    work->call.rank = info->rank;
    for (int i = 0; i < info->rank; i++) work->call.dims[i] = info->dims[i];
    work->call.is_native = fyd_is_native(group, work);
    if (!work->call.is_native) {
        FY_TRY(fyd_operand_stage(src));
        FY_TRY(fyd_operand_stage(dst));
    }
    if (group->transport.size == 1) return FY_STATUS_OK;
    return fy_ledger_collective(name, src->info.nbytes > dst->info.nbytes ? src->info.nbytes
                                                                          : dst->info.nbytes);
}

fy_status_t fyd_work_close(fyd_work_t *work, fy_status_t status)
{
    const fy_error_t error = *fy_error_get();
    fyd_operand_close(&work->src, work->is_used);
    fyd_operand_close(&work->dst, work->is_used);
    return status == FY_STATUS_OK ? status
                                  : fy_error_set(status, error.file, error.line, "%s", error.text);
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
    if (work->call.is_native) return run_native(group, work, out_ticket);
    const bool is_alone = group->transport.size == 1;
    const bool is_overwritten = work->call.kind == FY_COLLECTIVE_BROADCAST &&
                                work->call.option != group->transport.rank;
    if (work->src.tensor && !is_overwritten && !(is_alone && work->in_place))
        FY_TRY(fyd_operand_read(&work->src));
    FY_TRY(fyd_move(group, work));
    if (work->in_place && !is_alone) return fyd_operand_write(&work->src, out_ticket);
    return work->dst.tensor ? fyd_operand_write(&work->dst, out_ticket) : FY_STATUS_OK;
}

fy_status_t fyd_work_run(fy_group_t *group, fyd_work_t *work, fy_ticket_t *out_ticket)
{
    return fyd_work_close(work, run(group, work, out_ticket));
}

/* ---- the calls ---- */

/* The only operand of a call in place is src. */
static fyd_work_t describe(int kind, int option, fy_tensor_t *dst, fy_tensor_t *src)
{
    const bool in_place = kind == FY_COLLECTIVE_ALL_REDUCE || kind == FY_COLLECTIVE_BROADCAST;
    return (fyd_work_t){ .in_place = in_place,
                         .src.tensor = src,
                         .dst.tensor = in_place ? NULL : dst,
                         .call = { .kind = kind, .option = option } };
}

static fy_status_t run_now(fy_group_t *group, fyd_work_t *work)
{
    fy_ticket_t ticket;
    fy_status_t status = open_work(group, work, false);
    if (status != FY_STATUS_OK) return fyd_work_close(work, status);
    work->start_ns = fy__now_ns();
    fyd_worker_pause(group);
    status = fyd_work_run(group, work, &ticket);
    fyd_worker_resume(group);
    return status;
}

static fy_status_t call(fy_group_t *group, int kind, int option, fy_tensor_t *dst, fy_tensor_t *src)
{
    fyd_work_t work = describe(kind, option, dst, src);
    FY_TRY(check(group, &work));
    return run_now(group, &work);
}

static fy_status_t open_external(fy_group_t *group, fyd_work_t *work, fy_ticket_t *out_ticket)
{
    FY_TRY(fyd_worker_start(group));
    FY_TRY(open_work(group, work, true));
    return fy_external_begin(fyd_call_name(&work->call), work->src.tensor, fyd_written(work),
                             &work->external, out_ticket);
}

static fy_status_t call_async(fy_group_t *group, int kind, int option, fy_tensor_t *dst,
                              fy_tensor_t *src, fy_ticket_t *out_ticket)
{
    fyd_work_t given = describe(kind, option, dst, src);
    const char *name = fyd_call_name(&given.call);
    if (!out_ticket) return FYD_FAIL(INVALID_ARGUMENT, "%s: out_ticket is NULL", name);
    *out_ticket = (fy_ticket_t){ 0, 0 };
    FY_TRY(check(group, &given));
    if (group->transport.size == 1 || !group->transport.has_threads) return run_now(group, &given);
    fyd_work_t *work = malloc(sizeof *work);
    if (!work)
        return FYD_FAIL(OUT_OF_MEMORY, "%s: no host memory for %zu bytes", name, sizeof *work);
    *work = given;
    fy_status_t status = open_external(group, work, out_ticket);
    if (status == FY_STATUS_OK) {
        fyd_worker_submit(group, work);
        return status;
    }
    status = fyd_work_close(work, status);
    free(work);
    return status;
}

fy_status_t fy_group_all_reduce(fy_group_t *group, fy_tensor_t *tensor, fy_group_reduce_t reduce)
{
    return call(group, FY_COLLECTIVE_ALL_REDUCE, (int)reduce, tensor, tensor);
}

fy_status_t fy_group_broadcast(fy_group_t *group, fy_tensor_t *tensor, int root)
{
    return call(group, FY_COLLECTIVE_BROADCAST, root, tensor, tensor);
}

fy_status_t fy_group_reduce_scatter(fy_group_t *group, fy_tensor_t *dst, fy_tensor_t *src,
                                    fy_group_reduce_t reduce)
{
    return call(group, FY_COLLECTIVE_REDUCE_SCATTER, (int)reduce, dst, src);
}

fy_status_t fy_group_all_gather(fy_group_t *group, fy_tensor_t *dst, fy_tensor_t *src)
{
    return call(group, FY_COLLECTIVE_ALL_GATHER, 0, dst, src);
}

fy_status_t fy_group_send(fy_group_t *group, fy_tensor_t *src, int rank)
{
    return call(group, FY_COLLECTIVE_SEND, rank, NULL, src);
}

fy_status_t fy_group_receive(fy_group_t *group, fy_tensor_t *dst, int rank)
{
    return call(group, FY_COLLECTIVE_RECEIVE, rank, dst, NULL);
}

fy_status_t fy_group_barrier(fy_group_t *group) { return call(group, FYD_BARRIER, 0, NULL, NULL); }

fy_status_t fy_group_all_reduce_async(fy_group_t *group, fy_tensor_t *tensor,
                                      fy_group_reduce_t reduce, fy_ticket_t *out_ticket)
{
    return call_async(group, FY_COLLECTIVE_ALL_REDUCE, (int)reduce, tensor, tensor, out_ticket);
}

fy_status_t fy_group_broadcast_async(fy_group_t *group, fy_tensor_t *tensor, int root,
                                     fy_ticket_t *out_ticket)
{
    return call_async(group, FY_COLLECTIVE_BROADCAST, root, tensor, tensor, out_ticket);
}

fy_status_t fy_group_reduce_scatter_async(fy_group_t *group, fy_tensor_t *dst, fy_tensor_t *src,
                                          fy_group_reduce_t reduce, fy_ticket_t *out_ticket)
{
    return call_async(group, FY_COLLECTIVE_REDUCE_SCATTER, (int)reduce, dst, src, out_ticket);
}

fy_status_t fy_group_all_gather_async(fy_group_t *group, fy_tensor_t *dst, fy_tensor_t *src,
                                      fy_ticket_t *out_ticket)
{
    return call_async(group, FY_COLLECTIVE_ALL_GATHER, 0, dst, src, out_ticket);
}

fy_status_t fy_group_send_async(fy_group_t *group, fy_tensor_t *src, int rank,
                                fy_ticket_t *out_ticket)
{
    return call_async(group, FY_COLLECTIVE_SEND, rank, NULL, src, out_ticket);
}

fy_status_t fy_group_receive_async(fy_group_t *group, fy_tensor_t *dst, int rank,
                                   fy_ticket_t *out_ticket)
{
    return call_async(group, FY_COLLECTIVE_RECEIVE, rank, dst, NULL, out_ticket);
}
