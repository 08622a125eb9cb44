/* Messages between ranks, polled until the deadline. Next: beat.c, agree.c. */
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <ferry/ledger.h>

#include "dist/group.h"

fy_status_t fyd_break(fy_group_t *group, int lost)
{
    const fy_error_t *error = fy_error_get();
    if (atomic_load(&group->broken)) return error->status;
    memcpy(group->reason, error->text, sizeof group->reason);
    atomic_store(&group->broken, (int)error->status);
    if (lost >= 0) fyd_beat_lost(group, lost);
    fyd_native_abort(group); /* last: it may take seconds, in which this rank does not beat */
    return fy_error_get()->status;
}

fy_status_t fyd_check(fy_group_t *group)
{
    const fy_status_t broken = (fy_status_t)atomic_load(&group->broken);
    return broken == FY_STATUS_OK ? FY_STATUS_OK
                                  : fy_error_set(broken, __FILE__, __LINE__, "%s", group->reason);
}

fy_status_t fyd_check_process(const fy_group_t *group, const char *call)
{
    const int64_t process = group->peers[group->transport.rank].process;
    if (process == getpid()) return FY_STATUS_OK;
    return FYD_FAIL(UNSUPPORTED,
                    "%s: process %" PRId64 " opened this group, and this is its child %d\n  Call "
                    "from the process that opened it, or fork before fy_group_open",
                    call, process, (int)getpid());
}

static int first_missing(const fyd_message_t *messages, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (messages[i].request) return messages[i].peer;
    return -1;
}

static fy_status_t fail_late(fy_group_t *group, const fyd_message_t *messages, size_t count)
{
    char call[160], last[160], more[160] = "";
    const int lost = fyd_blame(group, first_missing(messages, count));
    int before = lost;
    for (size_t i = 0; i < count; i++) {
        const int peer = messages[i].peer;
        if (!messages[i].request || peer == before || fyd_blame(group, peer) == lost) continue;
        before = peer;
        if (strlen(more) < 100)
            snprintf(more + strlen(more), sizeof more - strlen(more), "%s%d",
                     *more ? ", " : "; also missing: ", peer);
    }
    const fyd_peer_t *peer = &group->peers[lost];
    fyd_call_text(&group->call, call, sizeof call);
    fyd_call_text(&peer->last, last, sizeof last);
    (void)FYD_FAIL(RANK_LOST,
                   "rank %d (host %s, process %" PRId64 ") took no part in %s within %.3g s; its "
                   "last call: %s%s",
                   lost, peer->host, peer->process, call, (double)group->deadline_ns * 1e-9, last,
                   more);
    return fyd_break(group, lost);
}

static fy_status_t fail_message(fy_group_t *group, const fyd_message_t *message, const char *error)
{
    (void)FYD_FAIL(IO, "a message %s rank %d (host %s) failed: %s",
                   message->is_send ? "to" : "from", message->peer,
                   group->peers[message->peer].host, error);
    return fyd_break(group, group->transport.rank);
}

/* *open is how many are not done. */
static fy_status_t poll(fy_group_t *group, fyd_message_t *messages, size_t count, size_t *open)
{
    char error[FYD_ERROR_SIZE] = "";
    const fyd_transport_t *t = &group->transport;
    for (size_t i = 0; i < count; i++) {
        bool is_done = false;
        if (!messages[i].request) continue;
        if (!t->test(t->context, messages[i].request, &is_done, error))
            return fail_message(group, &messages[i], error);
        if (!is_done) continue;
        messages[i].request = NULL;
        *open -= 1;
    }
    return FY_STATUS_OK;
}

static fy_status_t post(fy_group_t *group, fyd_message_t *messages, size_t count, size_t *open)
{
    char error[FYD_ERROR_SIZE] = "";
    const fyd_transport_t *t = &group->transport;
    for (size_t i = 0; i < count; i++) messages[i].request = NULL;
    for (int is_send = 0; is_send <= 1; is_send++) /* a send finds its receiver waiting */
        for (size_t i = 0; i < count; i++) {
            fyd_message_t *m = &messages[i];
            if (m->is_send != is_send || !m->nbytes) continue;
            if (!t->post(t->context, FYD_CALLS, is_send, m->data, m->nbytes, m->peer, &m->request,
                         error))
                return fail_message(group, m, error);
            *open += 1;
            if (!is_send) continue;
            group->wire_nbytes += m->nbytes;
            group->nmessages++;
        }
    return FY_STATUS_OK;
}

void fyd_account(fy_group_t *group)
{
    fy_ledger_collective_moved(group->wire_nbytes, group->nmessages, group->blocked_ns);
    group->wire_nbytes = group->nmessages = group->blocked_ns = 0;
}

void fyd_pause(uint64_t round)
{
    enum { SPINS = 100, YIELDS = 2000 };
    const struct timespec pause = { .tv_nsec = 50000 };
    if (round < SPINS) return;
    if (round < YIELDS)
        sched_yield(); /* the other rank may need this core */
    else
        nanosleep(&pause, NULL);
}

static fy_status_t exchange(fy_group_t *group, fyd_message_t *messages, size_t count)
{
    size_t open = 0;
    FY_TRY(post(group, messages, count, &open));
    const uint64_t begin = fy__now_ns();
    for (uint64_t round = 0; open; round++) {
        FY_TRY(poll(group, messages, count, &open));
        if (!open) break;
        FY_TRY(fyd_beat(group, first_missing(messages, count)));
        if (fy__now_ns() - begin > group->deadline_ns) return fail_late(group, messages, count);
        fyd_pause(round);
    }
    return FY_STATUS_OK;
}

fy_status_t fyd_exchange(fy_group_t *group, fyd_message_t *messages, size_t count)
{
    const uint64_t begin = fy__now_ns();
    const fy_status_t status = exchange(group, messages, count);
    group->blocked_ns += fy__now_ns() - begin;
    return status;
}
