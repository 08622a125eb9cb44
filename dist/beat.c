/* Beats: a short message from each rank to each other one every period (a second), from whichever
 * thread has the engine. A rank that computes for long still beats; one that is stopped or killed
 * does not. Beats also carry for whom a rank waits and whom it lost, so that all ranks name the
 * same one. No function here calls a driver, unless the group breaks: fyd_break. Next: worker.c. */
#include <inttypes.h>
#include <stdio.h>

#include "dist/group.h"
#include "runtime/base/c_locale.h"

enum { LEAVING = -2 }; /* in waits_for: the last beat of a rank that closes its group */

static uint64_t period_of(const fy_group_t *group)
{
    return group->transport.beat_ns ? group->transport.beat_ns : UINT64_C(1000000000);
}

static bool has_left(const fy_group_t *group, int rank)
{
    return group->watches[rank].heard.waits_for == LEAVING;
}

static fy_status_t fail(fy_group_t *group, int rank, const char *error)
{
    (void)FYD_FAIL(IO, "a beat of rank %d (host %s) failed: %s", rank, group->peers[rank].host,
                   error);
    return fyd_break(group, -1);
}

/* All beats that came; the next one is received in the background. */
static fy_status_t receive(fy_group_t *group, int rank, uint64_t elapsed_ns)
{
    char error[FYD_ERROR_SIZE] = "";
    const fyd_transport_t *t = &group->transport;
    fyd_watch_t *watch = &group->watches[rank];
    bool is_done = true;
    watch->silent_ns += elapsed_ns;
    while (is_done) {
        if (!watch->in_request && !t->post(t->context, FYD_BEATS, false, &watch->in,
                                           sizeof watch->in, rank, &watch->in_request, error))
            return fail(group, rank, error);
        if (!t->test(t->context, watch->in_request, &is_done, error))
            return fail(group, rank, error);
        if (!is_done) break;
        watch->in_request = NULL;
        watch->heard = watch->in;
        watch->silent_ns = 0;
        if (has_left(group, rank)) return FY_STATUS_OK;
    }
    return FY_STATUS_OK;
}

static fy_status_t send(fy_group_t *group, int rank, int waits_for, int lost)
{
    char error[FYD_ERROR_SIZE] = "";
    const fyd_transport_t *t = &group->transport;
    fyd_watch_t *watch = &group->watches[rank];
    bool is_done = false;
    if (watch->out_request && !t->test(t->context, watch->out_request, &is_done, error))
        return fail(group, rank, error);
    if (is_done) watch->out_request = NULL;
    if (watch->out_request) return FY_STATUS_OK; /* the rank does not receive */
    watch->out = (fyd_beat_t){ group->call.number, waits_for, lost };
    if (!t->post(t->context, FYD_BEATS, true, &watch->out, sizeof watch->out, rank,
                 &watch->out_request, error))
        return fail(group, rank, error);
    group->wire_nbytes += sizeof watch->out;
    group->nmessages++;
    return FY_STATUS_OK;
}

static fy_status_t fail_silent(fy_group_t *group, int rank, int reporter)
{
    char call[160], last[160], why[80];
    const fyd_peer_t *peer = &group->peers[rank];
    fyd_call_text(&group->call, call, sizeof call);
    fyd_call_text(&peer->last, last, sizeof last);
    if (has_left(group, rank))
        snprintf(why, sizeof why, "has closed its group");
    else if (reporter >= 0)
        snprintf(why, sizeof why, "is lost, as rank %d reports", reporter);
    else
        fy__snprintf(why, sizeof why, "is silent for %.3g s",
                     (double)group->watches[rank].silent_ns * 1e-9);
    (void)FYD_FAIL(RANK_LOST,
                   "rank %d (host %s, process %" PRId64 ") %s; its last call: %s; this rank's: %s",
                   rank, peer->host, peer->process, why, last, call);
    return fyd_break(group, reporter < 0 ? rank : -1);
}

fy_status_t fyd_beat(fy_group_t *group, int waits_for)
{
    const int size = group->transport.size, self = group->transport.rank;
    const uint64_t now = fy__now_ns(), since = now - group->beaten_ns, period = period_of(group);
    int silent = -1;
    if (since < period) return FY_STATUS_OK;
    /* this process may itself have been stopped: only time in which it polled counts */
    const uint64_t elapsed = since < 2 * period ? since : 2 * period;
    group->beaten_ns = now;
    for (int r = 0; r < size; r++) {
        if (r == self) continue;
        if (has_left(group, r)) {
            group->watches[r].silent_ns += elapsed;
            continue;
        }
        FY_TRY(receive(group, r, elapsed));
        FY_TRY(send(group, r, waits_for, -1));
    }
    for (int r = 0; r < size; r++) {
        const fyd_watch_t *watch = &group->watches[r];
        if (r != self && has_left(group, r)) {
            /* what it sent before it left has come by now, and no more will */
            if (r == waits_for && watch->silent_ns > 2 * period) return fail_silent(group, r, -1);
            continue;
        }
        if (r == self || !group->peers[r].beats) continue;
        if (watch->heard.lost >= 0) return fail_silent(group, watch->heard.lost, r);
        if (watch->silent_ns > group->silence_ns &&
            (silent < 0 || watch->silent_ns > group->watches[silent].silent_ns))
            silent = r;
    }
    return silent < 0 ? FY_STATUS_OK : fail_silent(group, silent, -1);
}

bool fyd_is_lost(fy_group_t *group, int rank)
{
    const bool is_broken = atomic_load(&group->broken) != FY_STATUS_OK;
    pthread_mutex_lock(&group->engine);
    const bool is_silent =
        has_left(group, rank) ||
        (group->peers[rank].beats && group->watches[rank].silent_ns > 2 * period_of(group));
    pthread_mutex_unlock(&group->engine);
    return is_broken && is_silent;
}

int fyd_blame(const fy_group_t *group, int rank)
{
    for (int hop = 0; hop < group->transport.size; hop++) {
        const fyd_watch_t *watch = &group->watches[rank];
        const int next = watch->heard.waits_for;
        const bool is_fresh = group->peers[rank].beats && watch->silent_ns < 2 * period_of(group);
        if (!is_fresh || next < 0 || next == group->transport.rank) break;
        rank = next;
    }
    return rank;
}

void fyd_beat_lost(fy_group_t *group, int rank)
{
    const fy_error_t error = *fy_error_get();
    for (int r = 0; r < group->transport.size; r++)
        if (r != group->transport.rank && r != rank && !has_left(group, r))
            (void)send(group, r, -1, rank);
    fy_error_set(error.status, error.file, error.line, "%s", error.text);
}

/* Sends the last beat behind one that is under way, for at most a period. The engine still reads
 * the bytes of one that is not sent then, so the group breaks. */
static void send_last(fy_group_t *group, int rank)
{
    char error[FYD_ERROR_SIZE];
    const fyd_transport_t *t = &group->transport;
    fyd_watch_t *watch = &group->watches[rank];
    const uint64_t begin = fy__now_ns(), period = period_of(group);
    int sent = 0;
    for (uint64_t round = 0; round < 3 || fy__now_ns() - begin < period; round++) {
        bool is_done = true;
        if (watch->out_request && !t->test(t->context, watch->out_request, &is_done, error)) {
            (void)fail(group, rank, error);
            return;
        }
        if (!is_done) {
            fyd_pause(round);
            continue;
        }
        watch->out_request = NULL;
        if (sent++ || send(group, rank, LEAVING, -1) != FY_STATUS_OK) return;
    }
    (void)FYD_FAIL(RANK_LOST,
                   "group_close: rank %d (host %s) has not taken the last beat for %.3g s", rank,
                   group->peers[rank].host, (double)period * 1e-9);
    (void)fyd_break(group, -1);
}

void fyd_beat_close(fy_group_t *group)
{
    const fyd_transport_t *t = &group->transport;
    if (!group->watches || t->size == 1 || atomic_load(&group->broken)) return;
    for (int r = 0; r < t->size; r++)
        if (r != t->rank) send_last(group, r);
    /* MPI is finalised without messages that are not received, if the others close now, too */
    const uint64_t begin = fy__now_ns(), longest = period_of(group) / 4;
    for (int r = 0; r < t->size && !atomic_load(&group->broken); r++) {
        for (uint64_t round = 0;
             r != t->rank && !has_left(group, r) && fy__now_ns() - begin < longest &&
             receive(group, r, 0) == FY_STATUS_OK;
             round++)
            fyd_pause(round);
        fyd_watch_t *watch = &group->watches[r];
        if (watch->in_request) t->cancel(t->context, watch->in_request);
        watch->in_request = NULL;
    }
}
