/* The slow side of the recent-request log: a log opens and closes with its stream, events show how
 * far a stream has come, and a failure's text has the pending requests. stream.c and launch.c add
 * the entries. */
#include "backends/cuda/recent.h"

#include <stdio.h>
#include <stdlib.h>

#include "backends/cuda/families.h"

const char *fy__cuda_request_name(uint32_t what)
{
    switch (what) {
    case FY_LAUNCH_SCATTER: return "packed upload";
    case FY_LAUNCH_GATHER: return "packed download";
    case FY_LAUNCH_CHAIN: return "chain";
    case FY__CUDA_RECENT_COPY + FY_COPY_UPLOAD: return "upload";
    case FY__CUDA_RECENT_COPY + FY_COPY_DOWNLOAD: return "download";
    case FY__CUDA_RECENT_COPY + FY_COPY_LOCAL: return "copy";
    case FY__CUDA_RECENT_COPY + FY_COPY_PEER: return "peer copy";
    case FY__CUDA_RECENT_FILL: return "fill";
    case FY__CUDA_RECENT_REPLAY: return "graph replay";
    case FY__CUDA_RECENT_COPY_BATCH: return "copy batch";
    case FY__CUDA_RECENT_COLLECTIVE: return "collective";
    default: return what < FY_OP_BUILTIN_COUNT ? fy__cuda_op_name(what) : "registered op";
    }
}

static const char *unit(uint32_t what)
{
    if (what == FY__CUDA_RECENT_REPLAY) return "requests";
    return what >= FY__CUDA_RECENT_COPY && what < FY_LAUNCH_SCATTER ? "bytes" : "elements";
}

/* ---- trails ---- */

fy__cuda_trail_t *fy__cuda_trail_open(fy__cuda_trails_t *trails, int role)
{
    pthread_mutex_lock(&trails->lock);
    fy__cuda_trail_t *trail = trails->first;
    while (trail != NULL && trail->open) trail = trail->next;
    if (trail == NULL) {
        trail = calloc(1, sizeof *trail);
        if (trail != NULL) {
            trail->next = trails->first;
            trails->first = trail;
        }
    }
    if (trail != NULL) {
        trail->open = 1;
        trail->role = role;
        /* before the figures: a mark of the old stream stops counting first */
        atomic_store(&trail->number, ++trails->nstreams);
        atomic_store(&trail->submitted, 0);
        atomic_store(&trail->done, 0);
    }
    pthread_mutex_unlock(&trails->lock);
    return trail;
}

void fy__cuda_trail_close(fy__cuda_trails_t *trails, fy__cuda_trail_t *trail)
{
    pthread_mutex_lock(&trails->lock);
    trail->open = 0;
    pthread_mutex_unlock(&trails->lock);
}

void fy__cuda_trails_free(fy__cuda_trails_t *trails)
{
    while (trails->first != NULL) {
        fy__cuda_trail_t *next = trails->first->next;
        free(trails->first);
        trails->first = next;
    }
}

/* ---- marks ---- */

void fy__cuda_mark_set(fy__cuda_mark_t *mark, fy__cuda_trail_t *trail)
{
    atomic_store_explicit(&mark->number, atomic_load_explicit(&trail->number, memory_order_relaxed),
                          memory_order_relaxed);
    atomic_store_explicit(&mark->seq, atomic_load_explicit(&trail->submitted, memory_order_relaxed),
                          memory_order_relaxed);
    atomic_store_explicit(&mark->trail, trail, memory_order_release);
}

void fy__cuda_mark_reached(fy__cuda_mark_t *mark)
{
    fy__cuda_trail_t *trail = atomic_load_explicit(&mark->trail, memory_order_acquire);
    if (trail == NULL ||
        atomic_load(&trail->number) != atomic_load_explicit(&mark->number, memory_order_relaxed))
        return;
    const uint64_t seq = atomic_load_explicit(&mark->seq, memory_order_relaxed);
    uint64_t done = atomic_load_explicit(&trail->done, memory_order_relaxed);
    while (done < seq &&
           !atomic_compare_exchange_weak_explicit(&trail->done, &done, seq, memory_order_relaxed,
                                                  memory_order_relaxed)) {}
}

/* ---- telling ---- */

typedef struct place {
    char *text;
    size_t nbytes, used;
} place_t;

/* A line that does not fit whole is left out. */
static void add_line(place_t *place, const char *line, int length)
{
    if (length < 0 || place->used + (size_t)length >= place->nbytes) return;
    for (int i = 0; i <= length; i++) place->text[place->used + (size_t)i] = line[i];
    place->used += (size_t)length;
}

static int describe(const fy__cuda_trail_t *trail, uint64_t seq, uint64_t newest, char *out_text,
                    size_t nbytes)
{
    const fy__cuda_recent_t *recent = &trail->recent[seq % FY__CUDA_RECENT];
    const uint32_t what = atomic_load_explicit(&recent->what, memory_order_relaxed);
    if (newest - seq >= FY__CUDA_RECENT)
        return snprintf(out_text, nbytes, "#%llu", (unsigned long long)seq);
    return snprintf(out_text, nbytes, "#%llu %s (%llu %s)", (unsigned long long)seq,
                    fy__cuda_request_name(what),
                    (unsigned long long)atomic_load_explicit(&recent->amount, memory_order_relaxed),
                    unit(what));
}

static void tell(const fy__cuda_trail_t *trail, int pending, place_t *place)
{
    static const char *const roles[] = { "compute", "upload", "download" };
    const uint64_t submitted = atomic_load_explicit(&trail->submitted, memory_order_relaxed);
    uint64_t done = atomic_load_explicit(&trail->done, memory_order_relaxed);
    char line[256], last[80], known[80] = "nothing";
    if (done > submitted) done = submitted;
    if (submitted == 0 || (done < submitted) != pending) return;
    describe(trail, submitted, submitted, last, sizeof last);
    if (done > 0 && pending) describe(trail, done, submitted, known, sizeof known);
    const int length = snprintf(line, sizeof line, "\n  %s %u: last submitted %s; known done: %s",
                                roles[trail->role % 3], (unsigned)atomic_load(&trail->number), last,
                                pending ? known : "all");
    add_line(place, line, length);
}

void fy__cuda_trails_tell(fy__cuda_trails_t *trails, char *out_text, size_t nbytes)
{
    place_t place = { out_text, nbytes, 0 };
    out_text[0] = '\0';
    pthread_mutex_lock(&trails->lock);
    for (int pending = 1; pending >= 0; pending--)
        for (const fy__cuda_trail_t *trail = trails->first; trail != NULL; trail = trail->next)
            if (trail->open) tell(trail, pending, &place);
    pthread_mutex_unlock(&trails->lock);
}
