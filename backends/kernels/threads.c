/* The choice of the number of threads. Its inputs are read once, when the first kernel or the host
 * needs them.
 * Not here: regions (fy__for_each in dispatch.c). The model is explained in docs/environment.md. */
#include "backends/kernels/threads.h"
#include "runtime/base/c_locale.h"
#include "runtime/base/environment.h"

#include <ctype.h>
#include <errno.h>
#include <omp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* The cost of a region of two threads: the measured one plus a margin, so that two threads are
 * chosen only where they are surely faster:
 * from 150 us of work on if idle threads sleep, from 8 us on if they spin. The calling thread wakes
 * each further thread. */
#define FORK_PASSIVE_NS      71000.0
#define FORK_ACTIVE_NS       3800.0
#define FORK_MORE_PASSIVE_NS 2000.0
#define FORK_MORE_ACTIVE_NS  100.0
#define EFFICIENCY           0.95 /* of each thread of a team */
#define FLOPS_PER_NS \
    120.0 /* one thread, f32 products and convolutions: 85 and 190 on two machines with AVX-512 */
#define BYTES_PER_NS 50.0   /* one thread, from a cache: larger work is worth all threads anyway */
#define ELEMENTS_NS  2e4    /* what `serial` elements take */
#define ACTIVE_SPINS 10000u /* about 50 us: longer than the gap between two kernels of a step */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static uint64_t spins; /* these three: written once, then read only */
static int processors;
static const char *bad_environment;
static _Atomic int setting = FY__THREADS_AUTO;
static _Atomic int is_child;
/* 0 only if every kernel uses the model; small work then needs no other check. */
static _Atomic int is_special = 1;
static _Atomic int is_overridden; /* some thread called fy__threads_override; never 0 again */

/* ---- the model ---- */

int fy__threads_choose(double work_ns, int most, fy__waiting_t waiting)
{
    if (most < 2) return 1;
    const int is_active = waiting == FY__WAITING_ACTIVE;
    const double fork_ns = (is_active ? FORK_ACTIVE_NS : FORK_PASSIVE_NS) +
                           (is_active ? FORK_MORE_ACTIVE_NS : FORK_MORE_PASSIVE_NS) *
                               (double)(most - 2);
    return work_ns > fork_ns + work_ns / (EFFICIENCY * (double)most) ? most : 1;
}

static const char *skip_space(const char *text) { return text + strspn(text, " \t\n\v\f\r"); }

/* Is `text` this word, in any case, with space around it? */
static int is_word(const char *text, const char *word)
{
    const size_t length = strlen(word);
    text = skip_space(text);
    return strncasecmp_l(text, word, length, fy__c_locale()) == 0 &&
           *skip_space(text + length) == '\0';
}

/* GOMP_SPINCOUNT: a number that k, m, g or t may follow, or "infinite", or "infinity". */
static int parse_spins(const char *text, uint64_t *out_spins)
{
    uint64_t factor = 1;
    char *end;
    text = skip_space(text);
    if (is_word(text, "infinite") || is_word(text, "infinity")) {
        *out_spins = UINT64_MAX;
        return 1;
    }
    errno = 0;
    const uint64_t value = strtoull(text, &end, 10);
    if (end == text || errno) return 0;
    const char *rest = skip_space(end);
    if (*rest) {
        const char *const units = "kmgt", *unit = strchr(units, *rest | ' ');
        if (!unit || *skip_space(rest + 1)) return 0;
        for (const char *at = units; at <= unit; at++) factor *= 1000;
    }
    *out_spins = value > UINT64_MAX / factor ? UINT64_MAX : value * factor;
    return 1;
}

uint64_t fy__threads_spins(const char *wait_policy, const char *spin_count)
{
    uint64_t count;
    if (spin_count && parse_spins(spin_count, &count)) return count;
    if (wait_policy && is_word(wait_policy, "passive")) return 0;
    return wait_policy && is_word(wait_policy, "active") ? UINT64_C(30000000000) : 300000;
}

fy__waiting_t fy__threads_waiting(uint64_t count, int threads, int nprocessors)
{
    return count >= ACTIVE_SPINS && threads <= nprocessors ? FY__WAITING_ACTIVE
                                                           : FY__WAITING_PASSIVE;
}

int fy__threads_parse(const char *text, int *out_threads)
{
    char *end;
    if (strcmp(text, "auto") == 0) {
        *out_threads = FY__THREADS_AUTO;
        return 1;
    }
    if (!isdigit((unsigned char)text[0])) return 0;
    errno = 0;
    const long value = strtol(text, &end, 10);
    if (errno || *end || value < 1 || value > FY__THREADS_MOST) return 0;
    *out_threads = (int)value;
    return 1;
}

/* ---- settings ---- */

static void read_environment(void)
{
    const char *asked = fy__env_value("FERRY_THREADS");
    int threads = FY__THREADS_AUTO;
    if (asked && !fy__threads_parse(asked, &threads)) bad_environment = asked;
    spins = fy__threads_spins(fy__env_value("OMP_WAIT_POLICY"), fy__env_value("GOMP_SPINCOUNT"));
    processors = omp_get_num_procs();
    atomic_store(&setting, threads);
    atomic_store(&is_special, threads != FY__THREADS_AUTO);
}

static void prepare(void) { pthread_once(&once, read_environment); }

static void look_again(void)
{
    atomic_store(&is_special, atomic_load(&setting) != FY__THREADS_AUTO ||
                                  atomic_load(&is_overridden) || atomic_load(&is_child));
}

void fy__threads_set(int threads)
{
    prepare();
    atomic_store(&setting, threads);
    look_again();
}

/* A separate function, so that the caller keeps no vector register across the TLS access
 * (docs/decisions/0015-tls-descriptors.md). */
static __attribute__((noinline)) int *own_override(void)
{
    static __thread int override; /* FY__THREADS_INHERIT at first */
    return &override;
}

int fy__threads_override(int threads)
{
    prepare();
    int *own = own_override();
    const int before = *own;
    *own = threads;
    if (threads != FY__THREADS_INHERIT && !atomic_exchange(&is_overridden, 1)) look_again();
    return before;
}

const char *fy__threads_bad_environment(void)
{
    prepare();
    return bad_environment;
}

void fy__threads_stay_serial(void)
{
    omp_set_num_threads(1);
    atomic_store(&is_child, 1);
    atomic_store(&is_special, 1);
}

fy__threads_facts_t fy__threads_facts(void)
{
    prepare();
    const int own = *own_override(),
              asked = own == FY__THREADS_INHERIT
                          ? atomic_load_explicit(&setting, memory_order_relaxed)
                          : own;
    fy__threads_facts_t facts = { .most = omp_get_max_threads(),
                                  .processors = processors,
                                  .forced = asked > 0 ? asked : 0,
                                  .spins = spins };
    if (atomic_load_explicit(&is_child, memory_order_relaxed)) facts.forced = 1;
    facts.waiting = fy__threads_waiting(spins, facts.most, processors);
    return facts;
}

/* ---- what a kernel asks ---- */

static __attribute__((noinline)) int choose(double work_ns)
{
    const fy__threads_facts_t facts = fy__threads_facts();
    return facts.forced ? facts.forced : fy__threads_choose(work_ns, facts.most, facts.waiting);
}

/* Less work than the cheapest region costs is never divided. */
static inline int threads_for(double work_ns)
{
    if (work_ns < FORK_ACTIVE_NS && !atomic_load_explicit(&is_special, memory_order_relaxed))
        return 1;
    return choose(work_ns);
}

int fy__threads_for(int64_t n, int64_t serial)
{
    return threads_for((double)n * (ELEMENTS_NS / (double)serial));
}

int fy__threads_for_cost(double flops, double nbytes)
{
    const double compute_ns = flops / FLOPS_PER_NS, memory_ns = nbytes / BYTES_PER_NS;
    return threads_for(compute_ns > memory_ns ? compute_ns : memory_ns);
}
