/* Calls from device to device, by a communicator (ferry/communicator.h) of the device that all
 * ranks have passed to fy_group_use_device. The ranks compare each call by MPI first, as all calls:
 * then it is known that all take part. Next: call.c. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <ferry/device.h>

#include "dist/group.h"

/* ---- one device for all ranks ---- */

/* What each rank sends to each other; `id` is that of rank 0. */
typedef struct offer {
    int64_t can;
    char id[FY_COMMUNICATOR_ID_NBYTES], why_not[128];
    char card[64]; /* its place in the machine; "": unknown */
} offer_t;
_Static_assert(sizeof(offer_t) <= FYD_SMALL, "an offer is sent with the call");

static void find_card(void *user, const char *key, const char *value)
{
    offer_t *offer = user;
    if (strcmp(key, "pci_bus") == 0) snprintf(offer->card, sizeof offer->card, "%s", value);
}

static void make_offer(const fy_group_t *group, fy_device_t *device, offer_t *offer)
{
    memset(offer, 0, sizeof *offer);
    const bool is_first = group->transport.rank == 0;
    offer->can = fy_communicator_id(device, is_first ? offer->id : NULL) == FY_STATUS_OK;
    if (!offer->can)
        snprintf(offer->why_not, sizeof offer->why_not, "%s", fy_error_get()->text);
    else
        (void)!fy_device_describe(device, find_card, offer);
}

static const offer_t *offer_of(const fy_group_t *group, const offer_t *mine, int rank)
{
    return rank == group->transport.rank ? mine : (const void *)fyd_inbox(group, rank);
}

/* The first reason for which not all ranks can; the same on all of them. */
static void find_reason(fy_group_t *group, const offer_t *mine)
{
    const int size = group->transport.size;
    char *reason = group->not_direct;
    reason[0] = 0;
    for (int r = 0; r < size && !reason[0]; r++) {
        const offer_t *offer = offer_of(group, mine, r);
        if (!offer->can)
            snprintf(reason, sizeof group->not_direct, "rank %d: %.*s", r,
                     (int)strcspn(offer->why_not, "\n"), offer->why_not);
        for (int k = 0; k < r && offer->card[0] && !reason[0]; k++)
            if (strcmp(offer->card, offer_of(group, mine, k)->card) == 0 &&
                strcmp(group->peers[r].host, group->peers[k].host) == 0)
                snprintf(reason, sizeof group->not_direct,
                         "ranks %d and %d of host %s use one card, which NCCL refuses", k, r,
                         group->peers[r].host);
    }
}

/* The engine is held. All ranks get all offers. */
static fy_status_t exchange_offers(fy_group_t *group, const offer_t *mine, offer_t *first)
{
    const int size = group->transport.size, self = group->transport.rank;
    FY_TRY(fyd_check(group));
    group->call = (fyd_call_t){ .number = group->call.number + 1, .kind = FYD_USE_DEVICE };
    for (int r = 0; r < size; r++) {
        group->packed[r] = r == self ? 0 : sizeof *mine;
        if (r != self) memcpy(fyd_outbox(group, r), mine, sizeof *mine);
    }
    FY_TRY(fyd_agree(group, -1));
    *first = *offer_of(group, mine, 0);
    find_reason(group, mine);
    return FY_STATUS_OK;
}

static fy_status_t on_wait(void *user) { return fyd_beat(user, -1); }

/* This rank alone fails: the others lose it. */
static fy_status_t give_up(fy_group_t *group, fy_status_t status)
{
    if (atomic_load(&group->broken)) return fyd_check(group);
    (void)fyd_break(group, group->transport.rank);
    return status;
}

/* The engine is held. */
static fy_status_t use_device(fy_group_t *group, fy_device_t *device, const offer_t *mine)
{
    offer_t first;
    fy_communicator_options_t options = FY_COMMUNICATOR_OPTIONS_INIT;
    FY_TRY(exchange_offers(group, mine, &first));
    group->device = device;
    if (group->not_direct[0]) return FY_STATUS_OK;
    options.rank = group->transport.rank;
    options.size = group->transport.size;
    options.id = first.id;
    options.deadline_ns = group->deadline_ns;
    options.on_wait = on_wait;
    options.user = group;
    options.is_counted = 1;
    const fy_status_t status = fy_communicator_open(device, &options, &group->communicator);
    if (status != FY_STATUS_OK) return give_up(group, status);
    return FY_STATUS_OK;
}

fy_status_t fy_group_use_device(fy_group_t *group, fy_device_t *device)
{
    offer_t mine;
    if (!group || !device)
        return FYD_FAIL(INVALID_ARGUMENT, "group_use_device: %s is NULL",
                        group ? "device" : "group");
    FY_TRY(fyd_check_process(group, "group_use_device"));
    FY_TRY(fyd_check(group));
    if (group->device)
        return FYD_FAIL(INVALID_ARGUMENT, "group_use_device: this group has a device already");
    if (group->transport.size == 1) {
        group->device = device;
        return FY_STATUS_OK;
    }
    const fy_error_t before = *fy_error_get();
    make_offer(group, device, &mine);
    fy_error_set(before.status, before.file, before.line, "%s", before.text);
    fyd_worker_pause(group);
    pthread_mutex_lock(&group->engine);
    const fy_status_t status = use_device(group, device, &mine);
    fyd_account(group);
    pthread_mutex_unlock(&group->engine);
    fyd_worker_resume(group);
    return status;
}

/* ---- calls ---- */

bool fyd_is_native(const fy_group_t *group, const fyd_work_t *work)
{
    const fyd_operand_t *a = work->src.tensor ? &work->src : &work->dst;
    const fyd_operand_t *b = work->dst.tensor ? &work->dst : a;
    if (!group->communicator || !a->tensor || !a->info.nelem) return false;
    if (fyd_reduces(&work->call) && work->call.option == FY_GROUP_MAX)
        return false; /* NCCL's may drop NaN */
    return a->info.device == group->device && b->info.device == group->device;
}

_Static_assert((int)FY_GROUP_SUM == FY_COLLECTIVE_SUM && (int)FY_GROUP_MEAN == FY_COLLECTIVE_MEAN,
               "an option of a group is one of its communicator");

fy_status_t fyd_native_prepare(fy_group_t *group, const fyd_work_t *work)
{
    return fy_communicator_prepare(group->communicator, (fy_collective_t)work->call.kind,
                                   work->call.option, fyd_written(work), work->src.tensor);
}

/* Bytes of elements that this rank sends and receives, as the same call by MPI would. */
static void count(fy_group_t *group, const fyd_work_t *work)
{
    const uint64_t n = (uint64_t)group->transport.size;
    const uint64_t src = work->src.info.nbytes, dst = work->dst.info.nbytes;
    uint64_t sent = 0, received = 0;
    switch (work->call.kind) {
    case FY_COLLECTIVE_ALL_REDUCE: sent = received = 2 * (n - 1) * src / n; break;
    case FY_COLLECTIVE_REDUCE_SCATTER: sent = received = (n - 1) * dst; break;
    case FY_COLLECTIVE_ALL_GATHER: sent = received = (n - 1) * src; break;
    case FY_COLLECTIVE_BROADCAST:
        sent = work->call.option == group->transport.rank ? src : (n - 2) * src / n;
        received = work->call.option == group->transport.rank ? 0 : src;
        break;
    case FY_COLLECTIVE_SEND: sent = src; break;
    default: received = dst;
    }
    group->sent_nbytes += sent;
    group->received_nbytes += received;
    group->wire_nbytes += sent;
    group->nmessages++;
}

fy_status_t fyd_native_run(fy_group_t *group, fyd_work_t *work)
{
    const uint64_t begin = fy__now_ns();
    const fy_status_t status = fy_communicator_submit(
        group->communicator, (fy_collective_t)work->call.kind, work->call.option, fyd_written(work),
        work->src.tensor, &work->ticket);
    group->blocked_ns += fy__now_ns() - begin;
    if (status != FY_STATUS_OK) return give_up(group, status);
    group->last_native = work->ticket;
    count(group, work);
    return FY_STATUS_OK;
}

/* ---- the end ---- */

void fyd_native_abort(fy_group_t *group)
{
    if (group->communicator) fy_communicator_abort(group->communicator, group->reason);
}

/* Returns when this rank's calls on the device are done, or the group is broken. Beats, because
 * they may wait for a rank that is lost. */
static void drain(fy_group_t *group)
{
    const struct timespec pause = { .tv_nsec = 1000000 };
    fy_status_t status = FY_STATUS_OK;
    while (status == FY_STATUS_OK && fy_ticket_poll(group->last_native) == FY_POLL_PENDING) {
        pthread_mutex_lock(&group->engine);
        status = fyd_check(group);
        if (status == FY_STATUS_OK) status = fyd_beat(group, -1);
        pthread_mutex_unlock(&group->engine);
        nanosleep(&pause, NULL);
    }
}

/* The engine is held. Without a deadline: a rank may compute for long before it closes. */
static fy_status_t meet(fy_group_t *group)
{
    const uint64_t deadline_ns = group->deadline_ns;
    FY_TRY(fyd_check(group));
    group->call = (fyd_call_t){ .number = group->call.number + 1, .kind = FYD_CLOSING };
    for (int r = 0; r < group->transport.size; r++) group->packed[r] = 0;
    group->deadline_ns = FY_FOREVER;
    const fy_status_t status = fyd_agree(group, -1);
    group->deadline_ns = deadline_ns;
    return status;
}

void fyd_native_close(fy_group_t *group)
{
    if (!group->communicator) return;
    const fy_error_t before = *fy_error_get();
    fyd_worker_pause(group);
    drain(group);
    pthread_mutex_lock(&group->engine); /* else the heart may abort what this thread closes */
    /* all ranks close: NCCL's end waits for the others of this machine */
    if (meet(group) == FY_STATUS_OK) {
        fy_communicator_close(group->communicator);
        group->communicator = NULL;
    }
    fyd_account(group);
    pthread_mutex_unlock(&group->engine);
    fyd_worker_resume(group);
    fy_error_set(before.status, before.file, before.line, "%s", before.text);
}
