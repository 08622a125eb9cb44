/* Messages between ranks, polled until the deadline. Next: agree.c. */
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <ferry/ledger.h>

#include "dist/group.h"

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

fy_status_t fyd_break(fy_group_t *group)
{
    const fy_error_t *error = fy_error_get();
    group->broken = error->status;
    memcpy(group->reason, error->text, sizeof group->reason);
    return group->broken;
}

static fy_status_t fail_lost(fy_group_t *group, const fyd_message_t *messages, size_t count)
{
    char call[160], last[160] = "none", more[160] = "";
    int lost = -1;
    for (size_t i = 0; i < count; i++) {
        if (!messages[i].request || messages[i].peer == lost) continue;
        if (lost < 0)
            lost = messages[i].peer;
        else if (strlen(more) < 100)
            snprintf(more + strlen(more), sizeof more - strlen(more), "%s%d",
                     *more ? ", " : "; also missing: ", messages[i].peer);
    }
    const fyd_peer_t *peer = &group->peers[lost];
    fyd_call_text(&group->call, call, sizeof call);
    if (peer->last.kind != FYD_OPENING) fyd_call_text(&peer->last, last, sizeof last);
    (void)FYD_FAIL(RANK_LOST,
                   "rank %d (host %s, process %" PRId64 ") took no part in %s within %.3g s; its "
                   "last call: %s%s",
                   lost, peer->host, peer->process, call, (double)group->deadline_ns * 1e-9, last,
                   more);
    return fyd_break(group);
}

/* Polls; *open is how many are not done. */
static bool poll(const fy_group_t *group, fyd_message_t *messages, size_t count, size_t *open,
                 char *error)
{
    for (size_t i = 0; i < count; i++) {
        bool is_done = false;
        if (!messages[i].request) continue;
        if (!group->transport.test(messages[i].request, &is_done, error)) return false;
        if (!is_done) continue;
        messages[i].request = NULL;
        *open -= 1;
    }
    return true;
}

static bool post(fy_group_t *group, fyd_message_t *messages, size_t count, size_t *open,
                 char *error)
{
    for (size_t i = 0; i < count; i++) messages[i].request = NULL;
    for (int is_send = 0; is_send <= 1; is_send++) /* a send finds its receiver waiting */
        for (size_t i = 0; i < count; i++) {
            fyd_message_t *m = &messages[i];
            if (m->is_send != is_send || !m->nbytes) continue;
            if (!group->transport.post(is_send, m->data, m->nbytes, m->peer, &m->request, error))
                return false;
            *open += 1;
            if (!is_send) continue;
            group->wire_nbytes += m->nbytes;
            group->nmessages++;
        }
    return true;
}

void fyd_account(fy_group_t *group)
{
    fy_ledger_collective_moved(group->wire_nbytes, group->nmessages, group->blocked_ns);
    group->wire_nbytes = group->nmessages = group->blocked_ns = 0;
}

static fy_status_t exchange(fy_group_t *group, fyd_message_t *messages, size_t count)
{
    enum { SPINS = 100, YIELDS = 2000 };
    const struct timespec pause = { .tv_nsec = 50000 };
    char error[FYD_ERROR_SIZE] = "";
    size_t open = 0;
    bool ok = post(group, messages, count, &open, error);
    const uint64_t begin = now_ns();
    for (uint64_t round = 0; ok && open; round++) {
        ok = poll(group, messages, count, &open, error);
        if (!ok || !open) break;
        if (now_ns() - begin > group->deadline_ns) return fail_lost(group, messages, count);
        if (round < SPINS) continue;
        if (round < YIELDS)
            sched_yield(); /* the other rank may need this core */
        else
            nanosleep(&pause, NULL);
    }
    if (ok) return FY_STATUS_OK;
    (void)FYD_FAIL(IO, "%s", error);
    return fyd_break(group);
}

fy_status_t fyd_exchange(fy_group_t *group, fyd_message_t *messages, size_t count)
{
    const uint64_t begin = now_ns();
    const fy_status_t status = exchange(group, messages, count);
    group->blocked_ns += now_ns() - begin;
    return status;
}
