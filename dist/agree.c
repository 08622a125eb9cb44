/* Ranks compare their calls before a byte of a tensor changes: a program whose ranks have gone
 * different ways would otherwise wait, or sum what does not belong together. Every rank gets every
 * call, so all come to the same verdict. The elements of a small tensor are in the same message. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "dist/group.h"

const char *fyd_call_name(const fyd_call_t *call)
{
    static const char *const names[] = {
        [FY_COLLECTIVE_ALL_REDUCE] = "group_all_reduce",
        [FY_COLLECTIVE_BROADCAST] = "group_broadcast",
        [FY_COLLECTIVE_REDUCE_SCATTER] = "group_reduce_scatter",
        [FY_COLLECTIVE_ALL_GATHER] = "group_all_gather",
        [FY_COLLECTIVE_SEND] = "group_send",
        [FY_COLLECTIVE_RECEIVE] = "group_receive",
        [FYD_BARRIER] = "group_barrier",
        [FYD_USE_DEVICE] = "group_use_device",
        [FYD_CLOSING] = "group_close",
    };
    return (unsigned)call->kind <= FYD_CLOSING ? names[call->kind] : "group_unknown";
}

void fyd_call_text(const fyd_call_t *call, char *text, size_t size)
{
    static const char *const reductions[] = { "sum", "mean", "max" };
    snprintf(text, size, "open");
    if (!call->number) return;
    int at =
        snprintf(text, size, "%s %" PRIu64, fyd_call_name(call) + strlen("group_"), call->number);
    if ((unsigned)call->kind >= FYD_BARRIER) return;
    at += snprintf(text + at, size - (size_t)at, " of %s [", fy_dtype_name(call->dtype));
    for (int i = 0; i < call->rank && (size_t)at + 24 < size; i++)
        at += snprintf(text + at, size - (size_t)at, "%s%" PRId64, i ? ", " : "", call->dims[i]);
    at += snprintf(text + at, size - (size_t)at, "]%s", call->is_native ? " on devices" : "");
    if ((size_t)at >= size) return;
    if (fyd_reduces(call) && (unsigned)call->option < sizeof reductions / sizeof *reductions)
        snprintf(text + at, size - (size_t)at, ", %s", reductions[call->option]);
    else if (call->kind != FY_COLLECTIVE_ALL_GATHER)
        snprintf(text + at, size - (size_t)at, ", rank %d", call->option);
}

static bool is_same(const fyd_call_t *a, const fyd_call_t *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

static fy_status_t fail_closed(fy_group_t *group, int rank)
{
    char call[160];
    fyd_call_text(&group->call, call, sizeof call);
    (void)FYD_FAIL(RANK_LOST,
                   "rank %d (host %s, process %" PRId64
                   ") has closed its group; this rank's call: %s",
                   rank, group->peers[rank].host, group->peers[rank].process, call);
    return fyd_break(group, -1);
}

static fy_status_t fail_differs(fy_group_t *group, int first, const fyd_call_t *a, int second,
                                const fyd_call_t *b)
{
    char mine[160], theirs[160];
    if (a->kind == FYD_CLOSING && first != group->transport.rank) return fail_closed(group, first);
    if (b->kind == FYD_CLOSING && second != group->transport.rank)
        return fail_closed(group, second);
    fyd_call_text(a, mine, sizeof mine);
    fyd_call_text(b, theirs, sizeof theirs);
    (void)FYD_FAIL(INVALID_ARGUMENT,
                   "the ranks call different things: rank %d %s; rank %d %s\n  All ranks make the "
                   "same calls in the same order",
                   first, mine, second, theirs);
    return fyd_break(group, -1);
}

/* The messages to and from a rank. Its message may be shorter than the slot. */
static void add(fy_group_t *group, size_t *count, int rank)
{
    char *out = group->outbox + (size_t)rank * FYD_SLOT;
    memcpy(out, &group->call, sizeof group->call);
    group->messages[(*count)++] = (fyd_message_t){ .peer = rank,
                                                   .data = group->inbox + (size_t)rank * FYD_SLOT,
                                                   .nbytes = FYD_SLOT };
    group->messages[(*count)++] =
        (fyd_message_t){ .peer = rank,
                         .is_send = true,
                         .data = out,
                         .nbytes = sizeof group->call + group->packed[rank] };
}

static void take(fy_group_t *group, int rank)
{
    memcpy(&group->calls[rank], group->inbox + (size_t)rank * FYD_SLOT, sizeof group->call);
    group->peers[rank].last = group->calls[rank];
}

/* A pair: the other rank's call is this one, from its side. */
static fy_status_t agree_pair(fy_group_t *group, int peer)
{
    const int self = group->transport.rank;
    fyd_call_t *theirs = &group->calls[peer], want = group->call;
    size_t count = 0;
    add(group, &count, peer);
    FY_TRY(fyd_exchange(group, group->messages, count));
    take(group, peer);
    want.kind = want.kind == FY_COLLECTIVE_SEND ? FY_COLLECTIVE_RECEIVE : FY_COLLECTIVE_SEND;
    want.option = self;
    want.number = theirs->number; /* of two ranks one may have made more sends than the other */
    return is_same(&want, theirs) ? FY_STATUS_OK
                                  : fail_differs(group, self, &group->call, peer, theirs);
}

fy_status_t fyd_agree(fy_group_t *group, int peer)
{
    const int size = group->transport.size, self = group->transport.rank;
    size_t count = 0;
    group->calls[self] = group->call;
    if (peer >= 0) return agree_pair(group, peer);
    for (int r = 0; r < size; r++)
        if (r != self) add(group, &count, r);
    FY_TRY(fyd_exchange(group, group->messages, count));
    for (int r = 0; r < size; r++)
        if (r != self) take(group, r);
    for (int r = 1; r < size; r++) {
        fyd_call_t theirs = group->calls[r];
        theirs.number = group->calls[0].number;
        if (!is_same(&group->calls[0], &theirs))
            return fail_differs(group, 0, &group->calls[0], r, &group->calls[r]);
    }
    return FY_STATUS_OK;
}
