/* Queues of requests that run later; see queue.h.
 * Lock: `fy__sim_queue_lock` guards every queue, item, point and random number of the process, and
 * is held while requests run: deferred orders are for finding mistakes, not for speed. It is taken
 * under a stream's lock; the memory's may be taken under it. Log lines are kept until it is
 * released. */
#include "backends/sim/queue.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/builtin.h"
#include "backends/sim/sim.h"

struct fy__sim_item {
    fy__sim_item_t *next;
    uint64_t position;
    fy__sim_point_t wait; /* queue not NULL: a wait, and no request */
    fy__sim_request_t request;
    _Alignas(max_align_t) unsigned char room[]; /* for what the request points to */
};

pthread_mutex_t fy__sim_queue_lock = PTHREAD_MUTEX_INITIALIZER;
static fy__sim_queue_t *first_queue, **last_link = &first_queue;
static bool has_orphans; /* some queue is empty and has no holders */
static _Atomic uint64_t nviolations;

uint64_t fy__sim_violations(void) { return atomic_load(&nviolations); }

/* ---- the choices of the random order: after each call that queries a device, which of the
 * runnable heads of all queues run now. In the manner of PCT (Burckhardt et al., ASPLOS 2010:
 * random priorities, changed at few points). Uniform choices would keep all streams equally far,
 * and hide errors that need one stream far behind or far ahead. All numbers come from the device's
 * seed, so one submitting thread sees the same order again. ---- */

/* STEADY runs in its turn; LAGGING only when it must, or when everything runs; AHEAD as soon as it
 * can. */
enum { STEADY, LAGGING, AHEAD };
/* Chosen so that programs of some dozens of requests see each case: a step runs nothing in one of
 * four, everything in one of 128; a queue gets a new priority about every 64th step. */
enum { REDRAW_EVERY = 64, ALL_EVERY = 128, NONE_EVERY = 4, MOST_AT_ONCE = 4 };

uint64_t fy__sim_random_next(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

/* A new queue draws its priority and mood from its device's numbers. */
static void draw_mood(fy__sim_queue_t *queue)
{
    uint64_t drawn = fy__sim_random_next(&queue->dev->random);
    unsigned mood = drawn & 7;
    queue->priority = (uint32_t)(drawn >> 32);
    queue->mood = mood < 3 ? LAGGING : mood < 4 ? AHEAD : STEADY;
}

/* ---- the life of a queue ---- */

static void note_orphan(const fy__sim_queue_t *queue)
{
    if (queue->nholders == 0 && !queue->head) has_orphans = true;
}

static void let_go(fy__sim_queue_t *queue)
{
    if (!queue) return;
    queue->nholders--;
    note_orphan(queue);
}

/* Queues are freed only here, so a caller that runs them may use one again. */
static void unlock(void)
{
    if (has_orphans) {
        fy__sim_queue_t **link = &first_queue;
        while (*link) {
            fy__sim_queue_t *queue = *link;
            if (queue->nholders == 0 && !queue->head) {
                *link = queue->next;
                free(queue);
            } else {
                link = &queue->next;
            }
        }
        last_link = link;
        has_orphans = false;
    }
    pthread_mutex_unlock(&fy__sim_queue_lock);
}

fy__sim_queue_t *fy__sim_queue_create(fy__sim_device_t *dev)
{
    fy__sim_queue_t *queue = calloc(1, sizeof(*queue));
    if (!queue) return NULL;
    queue->dev = dev;
    queue->is_random = dev->order->is_random;
    queue->nholders = 1;
    pthread_mutex_lock(&fy__sim_queue_lock);
    draw_mood(queue);
    *last_link = queue;
    last_link = &queue->next;
    unlock();
    return queue;
}

void fy__sim_queue_leave(fy__sim_queue_t *queue)
{
    if (!queue) return;
    pthread_mutex_lock(&fy__sim_queue_lock);
    let_go(queue);
    unlock();
}

/* ---- running; the lock is held ---- */

static bool is_runnable(const fy__sim_queue_t *queue)
{
    const fy__sim_item_t *head = queue->head;
    return head && (!head->wait.queue || head->wait.queue->done >= head->wait.position);
}

static fy__sim_item_t *take_head(fy__sim_queue_t *queue)
{
    fy__sim_item_t *item = queue->head;
    queue->head = item->next;
    if (!queue->head) queue->tail = NULL;
    return item;
}

static void forget(fy__sim_queue_t *queue, fy__sim_item_t *item)
{
    queue->done = item->position;
    let_go(item->wait.queue);
    free(item);
    note_orphan(queue);
}

static void run_head(fy__sim_queue_t *queue)
{
    fy__sim_item_t *item = take_head(queue);
    if (!item->wait.queue && fy__sim_device_is_lost(queue->dev)) {
        fy__sim_request_drop(&item->request);
    } else if (!item->wait.queue) {
        fy_status_t status = fy__sim_request_run(&item->request);
        if (status != FY_STATUS_OK)
            fy__sim_device_lose(
                queue->dev,
                "request %" PRIu64 ", %s, failed (status %d) when it ran, after it was submitted",
                item->request.number, fy__sim_request_name(&item->request), (int)status);
    }
    forget(queue, item);
}

/* The runnable queue that goes first; NULL if none. */
static fy__sim_queue_t *choose(bool all)
{
    fy__sim_queue_t *best = NULL;
    for (fy__sim_queue_t *queue = first_queue; queue; queue = queue->next) {
        if (!queue->is_random || !is_runnable(queue)) continue;
        if (queue->mood == LAGGING && !all) continue;
        if (!best || queue->priority > best->priority) best = queue;
    }
    return best;
}

static fy__sim_queue_t *choose_ahead(void)
{
    for (fy__sim_queue_t *queue = first_queue; queue; queue = queue->next)
        if (queue->mood == AHEAD && queue->is_random && is_runnable(queue)) return queue;
    return NULL;
}

static void redraw_one(uint64_t drawn)
{
    size_t n = 0;
    for (fy__sim_queue_t *queue = first_queue; queue; queue = queue->next) n += queue->is_random;
    size_t left = n > 0 ? drawn % n : 0;
    for (fy__sim_queue_t *queue = first_queue; queue; queue = queue->next)
        if (queue->is_random && left-- == 0) {
            draw_mood(queue);
            return;
        }
}

/* Runs some, none or all, drawn from the numbers of `dev`. */
static void run_drawn(fy__sim_device_t *dev)
{
    if (!dev->order->is_random) return;
    uint64_t drawn = fy__sim_random_next(&dev->random);
    if (drawn % REDRAW_EVERY == 0) redraw_one(drawn >> 40);
    bool all = (drawn >> 8) % ALL_EVERY == 0;
    uint64_t budget = (drawn >> 16) % NONE_EVERY == 0 ? 0 : 1 + (drawn >> 24) % MOST_AT_ONCE;
    if (all) budget = UINT64_MAX;
    fy__sim_queue_t *queue;
    while ((queue = choose_ahead())) run_head(queue);
    for (; budget > 0 && (queue = choose(all)); budget--) run_head(queue);
}

/* What a head waits for lies in another queue at a position taken before that head was put in; so
 * the chain of `below` never meets itself. */
static void run_to(fy__sim_queue_t *queue, uint64_t position)
{
    if (!queue) return;
    queue->below = NULL;
    queue->target = position;
    while (queue) {
        if (queue->done >= queue->target || !queue->head) {
            queue = queue->below;
        } else if (is_runnable(queue)) {
            run_head(queue);
        } else {
            const fy__sim_point_t *wait = &queue->head->wait;
            wait->queue->below = queue;
            wait->queue->target = wait->position;
            queue = wait->queue;
        }
    }
}

/* ---- submitting ---- */

fy__sim_item_t *fy__sim_item_create(const fy__sim_request_t *request)
{
    fy__sim_item_t *item = calloc(1, sizeof(*item) + fy__sim_request_extra_nbytes(request));
    if (item) fy__sim_request_copy(&item->request, item->room, request);
    return item;
}

static uint64_t append(fy__sim_queue_t *queue, fy__sim_item_t *item)
{
    item->position = ++queue->submitted;
    if (queue->tail)
        queue->tail->next = item;
    else
        queue->head = item;
    queue->tail = item;
    return item->position;
}

/* What a lost device had in its queues will never run. */
static fy__sim_item_t *find_touching(const void *begin, uint64_t nbytes, const void *bytes,
                                     fy__sim_queue_t **out_queue)
{
    for (fy__sim_queue_t *queue = first_queue; queue; queue = queue->next)
        for (fy__sim_item_t *item = queue->dev && fy__sim_device_is_lost(queue->dev) ? NULL
                                                                                     : queue->head;
             item; item = item->next)
            if (!item->wait.queue &&
                fy__sim_request_touches(&item->request, begin, nbytes, bytes)) {
                *out_queue = queue;
                return item;
            }
    return NULL;
}

/* A read of a download's destination before the download has run must not find the right bytes by
 * chance. An exception: an earlier request still uses them, and this one is ordered after it. */
static void poison_destination(const fy__sim_request_t *request)
{
    fy__sim_queue_t *queue;
    if (request->kind != FY__SIM_COPY || request->copy.kind != FY_COPY_DOWNLOAD ||
        !request->copy.dst)
        return;
    if (!find_touching(request->copy.dst, request->copy.nbytes, NULL, &queue))
        memset(request->copy.dst, FY__SIM_GARBAGE, request->copy.nbytes);
}

uint64_t fy__sim_queue_push(fy__sim_queue_t *queue, fy__sim_item_t *item, fy__sim_span_t span)
{
    item->request.span = span;
    pthread_mutex_lock(&fy__sim_queue_lock);
    poison_destination(&item->request);
    uint64_t position = append(queue, item);
    run_drawn(queue->dev);
    unlock();
    return position;
}

bool fy__sim_queue_wait(fy__sim_queue_t *queue, const fy__sim_point_t *point)
{
    fy__sim_item_t *item = calloc(1, sizeof(*item));
    if (!item) return false;
    pthread_mutex_lock(&fy__sim_queue_lock);
    if (point->queue && point->queue != queue && point->queue->done < point->position) {
        item->wait = *point;
        item->wait.queue->nholders++;
        append(queue, item);
        item = NULL;
    }
    run_drawn(queue->dev);
    unlock();
    free(item);
    return true;
}

void fy__sim_point_set(fy__sim_point_t *point, fy__sim_queue_t *queue)
{
    pthread_mutex_lock(&fy__sim_queue_lock);
    let_go(point->queue);
    *point = (fy__sim_point_t){ queue, queue ? queue->submitted : 0 };
    if (queue) {
        queue->nholders++;
        run_drawn(queue->dev);
    }
    unlock();
}

/* ---- having to run ---- */

void fy__sim_queue_run_to(fy__sim_queue_t *queue, uint64_t position)
{
    pthread_mutex_lock(&fy__sim_queue_lock);
    run_to(queue, position);
    unlock();
}

void fy__sim_point_run(const fy__sim_point_t *point)
{
    pthread_mutex_lock(&fy__sim_queue_lock);
    run_to(point->queue, point->position);
    unlock();
}

void fy__sim_queue_visit(fy__sim_device_t *dev)
{
    if (!dev->order->is_random) return;
    pthread_mutex_lock(&fy__sim_queue_lock);
    run_drawn(dev);
    unlock();
}

void fy__sim_queue_finish(fy__sim_device_t *dev, bool is_closing)
{
    pthread_mutex_lock(&fy__sim_queue_lock);
    for (fy__sim_queue_t *queue = first_queue; queue; queue = queue->next) {
        if (queue->dev != dev) continue;
        while (fy__sim_device_is_lost(dev) && queue->head) run_head(queue);
        run_to(queue, queue->submitted);
        if (is_closing) {
            queue->dev = NULL;
            queue->is_random = false;
        }
    }
    unlock();
}

void fy__sim_queue_settle(const fy__sim_device_t *dev, const char *verb, const void *begin,
                          uint64_t nbytes, const void *bytes)
{
    char said[256] = "";
    fy__sim_queue_t *queue;
    const fy__sim_item_t *item;
    pthread_mutex_lock(&fy__sim_queue_lock);
    while ((item = find_touching(begin, nbytes, bytes, &queue))) {
        if (!said[0]) {
            snprintf(said, sizeof(said),
                     "%s: %s of %p, %" PRIu64 " bytes, under request %" PRIu64
                     " of %s, %s, which has not run yet: the caller did not wait for it",
                     dev->name, verb, begin, nbytes, item->request.number, queue->dev->name,
                     fy__sim_request_name(&item->request));
            atomic_fetch_add(&nviolations, 1);
        }
        run_to(queue, item->position);
    }
    unlock();
    if (said[0]) fy__sim_host->log(FY_LOG_ERROR, "%s", said);
}
