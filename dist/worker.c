/* The threads of a group. The worker runs asynchronous calls in the order in which they were made;
 * it begins with the first one. The heart beats while no exchange runs. It calls a driver only to
 * abort calls on devices (fyd_break): a worker may wait long for a device. Next: exchange.c. */
#include <stdlib.h>

#include "dist/group.h"
#include "runtime/base/c_locale.h"

/* ---- threads ---- */

static fy_status_t start(pthread_t *thread, void *(*serve)(void *), fy_group_t *group)
{
    const int code = fy__thread_start(thread, serve, group);
    return code == 0 ? FY_STATUS_OK
                     : FYD_FAIL(OUT_OF_MEMORY, "group: no thread: %s", fy__strerror(code));
}

static void *beat(void *user)
{
    fy_group_t *group = user;
    pthread_mutex_lock(&group->lock);
    while (!group->is_closing) {
        (void)fy__condition_wait(&group->closing, &group->lock, fy__now_ns() + 250000000);
        pthread_mutex_unlock(&group->lock);
        if (pthread_mutex_trylock(&group->engine) == 0) { /* else an exchange beats */
            if (!atomic_load(&group->broken)) (void)fyd_beat(group, -1);
            if (group->nmessages) fyd_account(group);
            pthread_mutex_unlock(&group->engine);
        }
        pthread_mutex_lock(&group->lock);
    }
    pthread_mutex_unlock(&group->lock);
    return NULL;
}

/* The other ranks wait for this one, whose next call is another: they need not wait longer. */
static void give_up(fy_group_t *group)
{
    pthread_mutex_lock(&group->engine);
    (void)fyd_break(group, group->transport.rank);
    pthread_mutex_unlock(&group->engine);
}

static void run(fy_group_t *group, fyd_work_t *work)
{
    fy_ticket_t ticket = { 0, 0 };
    fy_status_t status = fy_external_enter(work->external);
    status = status == FY_STATUS_OK ? fyd_work_run(group, work, &ticket)
                                    : fyd_work_close(work, status);
    if (status != FY_STATUS_OK) give_up(group);
    fy_external_finish(work->external, ticket, status);
    free(work);
}

static void *serve(void *user)
{
    fy_group_t *group = user;
    pthread_mutex_lock(&group->lock);
    for (;;) {
        while ((!group->first && !group->is_closing) || group->is_paused)
            pthread_cond_wait(&group->changed, &group->lock);
        fyd_work_t *work = group->first;
        if (!work) break;
        group->first = work->next;
        group->is_running = true;
        pthread_mutex_unlock(&group->lock);
        run(group, work);
        pthread_mutex_lock(&group->lock);
        group->is_running = false;
        pthread_cond_broadcast(&group->changed);
    }
    pthread_mutex_unlock(&group->lock);
    return NULL;
}

/* ---- from the caller's thread ---- */

fy_status_t fyd_heart_start(fy_group_t *group)
{
    FY_TRY(start(&group->heart, beat, group));
    group->has_heart = true;
    return FY_STATUS_OK;
}

fy_status_t fyd_worker_start(fy_group_t *group)
{
    if (group->has_worker) return FY_STATUS_OK;
    FY_TRY(start(&group->worker, serve, group));
    group->has_worker = true;
    return FY_STATUS_OK;
}

void fyd_threads_stop(fy_group_t *group)
{
    pthread_mutex_lock(&group->lock);
    group->is_closing = !group->has_worker; /* the heart beats until the work is done */
    const bool has_worker = group->has_worker;
    pthread_mutex_unlock(&group->lock);
    if (has_worker) {
        fyd_worker_pause(group);
        pthread_mutex_lock(&group->lock);
        group->is_paused = false;
        group->is_closing = true;
        pthread_cond_broadcast(&group->changed);
        pthread_mutex_unlock(&group->lock);
        pthread_join(group->worker, NULL);
    }
    pthread_mutex_lock(&group->lock);
    pthread_cond_broadcast(&group->closing);
    pthread_mutex_unlock(&group->lock);
    if (group->has_heart) pthread_join(group->heart, NULL);
    group->has_heart = group->has_worker = false;
}

void fyd_worker_submit(fy_group_t *group, fyd_work_t *work)
{
    pthread_mutex_lock(&group->lock);
    *(group->first ? &group->last->next : &group->first) = work;
    group->last = work;
    pthread_cond_broadcast(&group->changed);
    pthread_mutex_unlock(&group->lock);
}

void fyd_worker_pause(fy_group_t *group)
{
    pthread_mutex_lock(&group->lock);
    while (group->first || group->is_running) pthread_cond_wait(&group->changed, &group->lock);
    group->is_paused = true;
    pthread_mutex_unlock(&group->lock);
}

/* Nothing was queued meanwhile, so the worker need not wake up. */
void fyd_worker_resume(fy_group_t *group)
{
    pthread_mutex_lock(&group->lock);
    group->is_paused = false;
    pthread_mutex_unlock(&group->lock);
}
