/* Attaches threads: a thread takes the state of an ended thread, or a new one. The pthread key's
 * destructor ends the scopes that the thread left open and returns its state. */
#include "runtime/thread/thread.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/record/event.h"
#include "runtime/record/recording.h"
#include "runtime/tensor/thread_cache.h"
#include "runtime/thread/guard.h"

__thread fy__thread_t *fy__tls;

/* Guards `all` and each state's in_use. */
pthread_mutex_t fy__thread_lock = PTHREAD_MUTEX_INITIALIZER;
static fy__thread_t *all;
static uint32_t nthreads;
static char root_name[] = "";
static pthread_once_t key_once = PTHREAD_ONCE_INIT, environment_once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static bool has_key; /* false: the states of ended threads are not reused */

static void detach(void *state)
{
    fy__thread_t *thread = state;
    fy__tls = thread; /* other TLS may be destroyed already; this pointer must be valid while scopes
                       * end */
    fy__scope_end_all(thread);
    /* begun outside any scope */
    if (thread->recording) fy__handle_destroyers[FY__HANDLE_GRAPH](thread->recording->handle);
    /* begun outside any scope */
    thread->tape = NULL;
    fy__guard_settle(thread);
    fy__cache_flush_large(thread);
    memset(thread->streams, 0, sizeof thread->streams);
    thread->interrupt = NULL;
    thread->external = 0;
    thread->in_device_wait = false;
    thread->error.file = NULL;
    pthread_mutex_lock(&fy__thread_lock);
    thread->in_use = 0;
    pthread_mutex_unlock(&fy__thread_lock);
    fy__tls = NULL;
}

static void make_key(void) { has_key = pthread_key_create(&key, detach) == 0; }

static fy__thread_t *make_thread(void)
{
    fy__thread_t *thread = calloc(1, sizeof *thread);
    if (!thread) return NULL;
    thread->root.name = root_name;
    thread->node = &thread->root;
    pthread_mutex_lock(&fy__thread_lock);
    thread->number = ++nthreads;
    /* serials of different threads rarely collide */
    thread->next_serial = thread->number * 0x9E3779B1u;
    thread->in_use = 1;
    thread->next = all;
    all = thread;
    pthread_mutex_unlock(&fy__thread_lock);
    return thread;
}

fy__thread_t *fy__thread_attach(void)
{
    fy__thread_t *thread;
    pthread_once(&key_once, make_key);
    pthread_mutex_lock(&fy__thread_lock);
    for (thread = all; thread && thread->in_use; thread = thread->next) {}
    if (thread) thread->in_use = 1;
    pthread_mutex_unlock(&fy__thread_lock);
    if (!thread) thread = make_thread();
    if (!thread) return NULL;
    fy__tls = thread;
    if (has_key) pthread_setspecific(key, thread);
    fy__budget_environment();
    pthread_once(&environment_once, fy__event_from_environment);
    return thread;
}

void fy__thread_walk(void (*fn)(void *user, fy__thread_t *thread), void *user)
{
    pthread_mutex_lock(&fy__thread_lock);
    for (fy__thread_t *thread = all; thread; thread = thread->next) fn(user, thread);
    pthread_mutex_unlock(&fy__thread_lock);
}

/* A thread that does not exist in the child stopped at an arbitrary point: its scopes are over, its
 * caches and handles are not used again, its figures stay. */
static void abandon(fy__thread_t *thread)
{
    thread->frame = NULL;
    thread->node = &thread->root;
    thread->category = FY_CATEGORY_ACTIVATIONS;
    thread->autocast = FY_DTYPE_F32;
    thread->depth = thread->excess = 0;
    thread->guards = NULL; /* never released: its data may be half changed */
    thread->claimed = 0;
    thread->nlocks = thread->nkept = 0;
    thread->free_tensors = NULL;
    thread->free_slots = NULL;
    thread->nfree_tensors = thread->nfree_slots = 0;
    atomic_store_explicit(&thread->last_class, 0, memory_order_relaxed);
    for (uint32_t class = 0; class < FY__CACHE_CLASSES; class ++) {
        thread->cached[class] = NULL;
        atomic_store_explicit(&thread->ncached[class], 0, memory_order_relaxed);
    }
    memset(thread->streams, 0, sizeof thread->streams);
    thread->interrupt = NULL;
    thread->external = 0;
    thread->in_device_wait = false;
    thread->error.file = NULL;
    thread->scratch = NULL;
    thread->scratch_nbytes = 0;
    thread->recording = NULL;
    thread->pressing = NULL;
    thread->plan = NULL;
    thread->plan_declines = 0;
    thread->in_use = 0;
}

/* Only the forking thread runs in the child; the others' states can be reused. */
void fy__thread_fork_child(void)
{
    for (fy__thread_t *thread = all; thread; thread = thread->next)
        if (thread->in_use && thread != fy__tls) abandon(thread);
    pthread_mutex_unlock(&fy__thread_lock);
}

/* ---- threads that Ferry starts ---- */

void fy__heritage_take(const fy__thread_t *thread, fy__heritage_t *out_heritage)
{
    out_heritage->node = thread->node;
    out_heritage->category = thread->category;
    out_heritage->autocast = thread->autocast;
    out_heritage->guards = fy__guard_retain(thread->guards);
}

void fy__heritage_release(fy__heritage_t *heritage)
{
    fy__guard_release(heritage->guards);
    heritage->guards = NULL;
}

/* The node of the same path in this thread's tree: only the owner adds to a tree. */
static fy__node_t *same_path(fy__thread_t *thread, const fy__node_t *node)
{
    return node->parent ? fy__node_child(same_path(thread, node->parent), node->name)
                        : &thread->root;
}

void fy__heritage_enter(fy__thread_t *thread, const fy__heritage_t *heritage)
{
    fy__guard_release(thread->guards);
    thread->guards = fy__guard_retain(heritage->guards);
    thread->node = same_path(thread, heritage->node);
    thread->category = heritage->category;
    thread->autocast = heritage->autocast;
}

void fy__heritage_leave(fy__thread_t *thread)
{
    fy__scope_end_all(thread);
    fy__guard_settle(thread);
    fy__guard_release(thread->guards);
    thread->guards = NULL;
    thread->node = &thread->root;
    thread->category = FY_CATEGORY_ACTIVATIONS;
    thread->autocast = FY_DTYPE_F32;
}
