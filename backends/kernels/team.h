/* Around a call of oneDNN: sets OpenMP's number of threads to one that OpenMP can deliver. oneDNN
 * 2.6 splits its work among omp_get_max_threads() threads; if OpenMP starts fewer
 * (OMP_THREAD_LIMIT, OMP_DYNAMIC), parts of the result are silently missing. The settings are those
 * of the calling thread. Not here: the choice of the number (threads.h). */
#ifndef FERRY_BACKENDS_KERNELS_TEAM_H_
#define FERRY_BACKENDS_KERNELS_TEAM_H_

#include <omp.h>

typedef struct fy__team {
    int threads; /* set until fy__team_end: those requested, or as many as OpenMP can deliver */
    int most, dynamic, curbed;
} fy__team_t;

/* OMP_THREAD_LIMIT: fixed for the process; 0 until asked for; atomic accesses only. dispatch.c */
extern int fy__team_limit;

/* `threads`: from fy__threads_for_cost. */
static inline fy__team_t fy__team_begin(int threads)
{
    int limit = __atomic_load_n(&fy__team_limit, __ATOMIC_RELAXED);
    if (__builtin_expect(limit == 0, 0))
        __atomic_store_n(&fy__team_limit, limit = omp_get_thread_limit(), __ATOMIC_RELAXED);
    fy__team_t team = { .most = omp_get_max_threads(), .dynamic = omp_get_dynamic() };
    team.threads = threads < limit ? threads : limit;
    team.curbed = team.most != team.threads;
    if (team.dynamic) omp_set_dynamic(0);
    if (team.curbed) omp_set_num_threads(team.threads);
    return team;
}

static inline void fy__team_end(const fy__team_t *team)
{
    if (team->curbed) omp_set_num_threads(team->most);
    if (team->dynamic) omp_set_dynamic(1);
}

#endif
