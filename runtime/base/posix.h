/* Ferry's own threads, and the monotonic clock. It needs nothing of Ferry. */
#ifndef FERRY_RUNTIME_BASE_POSIX_H_
#define FERRY_RUNTIME_BASE_POSIX_H_

#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <time.h>

/* Monotonic host time. */
static inline uint64_t fy__now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Starts a thread on which no signal handler of the program runs. Returns 0 or an errno. */
static inline int fy__thread_start(pthread_t *thread, void *(*run)(void *), void *user)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(thread, NULL, run, user);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

/* A condition for fy__condition_wait. */
static inline void fy__condition_init(pthread_cond_t *condition)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

/* Waits until the monotonic time `until_ns`. Returns 0 or ETIMEDOUT. */
static inline int fy__condition_wait(pthread_cond_t *condition, pthread_mutex_t *mutex,
                                     uint64_t until_ns)
{
    const struct timespec until = { .tv_sec = (time_t)(until_ns / 1000000000),
                                    .tv_nsec = (long)(until_ns % 1000000000) };
    return pthread_cond_timedwait(condition, mutex, &until);
}

#endif
