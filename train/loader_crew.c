/* A crew: threads that wait for a job, each do their piece of it, and wait again.
 * Not here: what the job is (loader_stream.c). */
#include "loader.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

typedef struct member {
    fyt_crew_t *crew;
    pthread_t thread;
    int piece;
} member_t;

struct fyt_crew {
    pthread_mutex_t lock; /* guards what follows, down to `stops` */
    pthread_cond_t has_job, is_done;
    fyt_crew_fn fn;
    void *user;
    uint64_t job; /* +1 for each */
    int working;  /* members that have not done their piece of it */
    int stops;
    int pieces, started; /* members that run: 1 .. pieces - 1 of members[] */
    member_t members[FYT_LOADER_MAX_WORKERS];
};

static void *work(void *user)
{
    const member_t *member = user;
    fyt_crew_t *crew = member->crew;
    uint64_t done = 0;
    pthread_mutex_lock(&crew->lock);
    for (;;) {
        while (!crew->stops && crew->job == done) pthread_cond_wait(&crew->has_job, &crew->lock);
        if (crew->stops) break;
        done = crew->job;
        fyt_crew_fn fn = crew->fn;
        void *job = crew->user;
        pthread_mutex_unlock(&crew->lock);
        fn(job, member->piece, crew->pieces);
        pthread_mutex_lock(&crew->lock);
        if (--crew->working == 0) pthread_cond_signal(&crew->is_done);
    }
    pthread_mutex_unlock(&crew->lock);
    return NULL;
}

fy_status_t fyt_crew_create(int pieces, fyt_crew_t **out_crew)
{
    sigset_t all, before;
    int failed = 0;
    fyt_crew_t *crew = calloc(1, sizeof *crew);
    if (!crew)
        return FYT_FAIL(OUT_OF_MEMORY, "loader_create: no host memory for %zu bytes", sizeof *crew);
    crew->pieces = pieces;
    pthread_mutex_init(&crew->lock, NULL);
    pthread_cond_init(&crew->has_job, NULL);
    pthread_cond_init(&crew->is_done, NULL);
    sigfillset(&all); /* the program's handlers do not run on threads that it does not know */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int i = 0; i < pieces - 1 && !failed; i++) {
        crew->members[i].crew = crew;
        crew->members[i].piece = i + 1;
        failed = pthread_create(&crew->members[i].thread, NULL, work, &crew->members[i]);
        if (!failed) crew->started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) {
        const int started = crew->started;
        fyt_crew_destroy(crew, 1);
        return FYT_FAIL(OUT_OF_MEMORY,
                        "loader_create: the system starts no more than %d of %d worker threads "
                        "(error %d); workers 0 needs none",
                        started, pieces, failed);
    }
    *out_crew = crew;
    return FY_STATUS_OK;
}

void fyt_crew_run(fyt_crew_t *crew, fyt_crew_fn fn, void *user)
{
    if (crew->started) {
        pthread_mutex_lock(&crew->lock);
        crew->fn = fn;
        crew->user = user;
        crew->working = crew->started;
        crew->job++;
        pthread_cond_broadcast(&crew->has_job);
        pthread_mutex_unlock(&crew->lock);
    }
    fn(user, 0, crew->pieces);
    if (!crew->started) return;
    pthread_mutex_lock(&crew->lock);
    while (crew->working) pthread_cond_wait(&crew->is_done, &crew->lock);
    pthread_mutex_unlock(&crew->lock);
}

void fyt_crew_destroy(fyt_crew_t *crew, int has_threads)
{
    if (!crew) return;
    if (has_threads) {
        pthread_mutex_lock(&crew->lock);
        crew->stops = 1;
        pthread_cond_broadcast(&crew->has_job);
        pthread_mutex_unlock(&crew->lock);
        for (int i = 0; i < crew->started; i++) pthread_join(crew->members[i].thread, NULL);
        pthread_cond_destroy(&crew->has_job);
        pthread_cond_destroy(&crew->is_done);
        pthread_mutex_destroy(&crew->lock);
    }
    free(crew);
}
