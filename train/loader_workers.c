/* Workers: threads that wait for a job, run one piece of it each, and wait again.
 * Not here: the job (loader_stream.c). */
#include "loader.h"

#include <stdlib.h>

#include "runtime/base/posix.h"

typedef struct member {
    fyt_workers_t *workers;
    pthread_t thread;
    int piece;
} member_t;

struct fyt_workers {
    pthread_mutex_t lock; /* guards what follows, down to `stops` */
    pthread_cond_t has_job, is_done;
    fyt_workers_fn fn;
    void *user;
    uint64_t job; /* +1 for each */
    int working;  /* members that have not finished their piece */
    int stops;
    int pieces, started; /* members that run: 1 .. pieces - 1 of members[] */
    member_t members[FYT_LOADER_MAX_WORKERS];
};

static void *work(void *user)
{
    const member_t *member = user;
    fyt_workers_t *workers = member->workers;
    uint64_t done = 0;
    pthread_mutex_lock(&workers->lock);
    for (;;) {
        while (!workers->stops && workers->job == done)
            pthread_cond_wait(&workers->has_job, &workers->lock);
        if (workers->stops) break;
        done = workers->job;
        fyt_workers_fn fn = workers->fn;
        void *job = workers->user;
        pthread_mutex_unlock(&workers->lock);
        fn(job, member->piece, workers->pieces);
        pthread_mutex_lock(&workers->lock);
        if (--workers->working == 0) pthread_cond_signal(&workers->is_done);
    }
    pthread_mutex_unlock(&workers->lock);
    return NULL;
}

fy_status_t fyt_workers_create(int pieces, fyt_workers_t **out_workers)
{
    int failed = 0;
    fyt_workers_t *workers = calloc(1, sizeof *workers);
    if (!workers)
        return FYT_FAIL(OUT_OF_MEMORY, "loader_create: no host memory for %zu bytes",
                        sizeof *workers);
    workers->pieces = pieces;
    pthread_mutex_init(&workers->lock, NULL);
    pthread_cond_init(&workers->has_job, NULL);
    pthread_cond_init(&workers->is_done, NULL);
    for (int i = 0; i < pieces - 1 && !failed; i++) {
        workers->members[i].workers = workers;
        workers->members[i].piece = i + 1;
        failed = fy__thread_start(&workers->members[i].thread, work, &workers->members[i]);
        if (!failed) workers->started++;
    }
    if (failed) {
        const int started = workers->started;
        fyt_workers_destroy(workers, 1);
        return FYT_FAIL(OUT_OF_MEMORY,
                        "loader_create: the system starts no more than %d of %d worker threads "
                        "(error %d); workers 0 needs none",
                        started, pieces, failed);
    }
    *out_workers = workers;
    return FY_STATUS_OK;
}

void fyt_workers_run(fyt_workers_t *workers, fyt_workers_fn fn, void *user)
{
    if (workers->started) {
        pthread_mutex_lock(&workers->lock);
        workers->fn = fn;
        workers->user = user;
        workers->working = workers->started;
        workers->job++;
        pthread_cond_broadcast(&workers->has_job);
        pthread_mutex_unlock(&workers->lock);
    }
    fn(user, 0, workers->pieces);
    if (!workers->started) return;
    pthread_mutex_lock(&workers->lock);
    while (workers->working) pthread_cond_wait(&workers->is_done, &workers->lock);
    pthread_mutex_unlock(&workers->lock);
}

void fyt_workers_destroy(fyt_workers_t *workers, int has_threads)
{
    if (!workers) return;
    if (has_threads) {
        pthread_mutex_lock(&workers->lock);
        workers->stops = 1;
        pthread_cond_broadcast(&workers->has_job);
        pthread_mutex_unlock(&workers->lock);
        for (int i = 0; i < workers->started; i++) pthread_join(workers->members[i].thread, NULL);
        pthread_cond_destroy(&workers->has_job);
        pthread_cond_destroy(&workers->is_done);
        pthread_mutex_destroy(&workers->lock);
    }
    free(workers);
}
