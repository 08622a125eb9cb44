/* Host segments: the memory of the host's pool and of page-locked memory. If jemalloc is linked
 * into the program, weak symbols find it and it gives Ferry a separate arena. The library neither
 * links nor needs it, and the program's malloc is unchanged. Otherwise mmap. The choice is made
 * once, at the first call; $FERRY_HOST_ALLOCATOR can set it.
 * A released segment stays mapped for reuse: its pages exist, and faulting small ones again costs
 * 0.5 s/GiB and more.
 * Not here: blocks (cache.c), page-locking (a backend's). */

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/base/checked.h"
#include "runtime/base/environment.h"
#include "runtime/base/fail.h"
#include "runtime/device/memory.h"

/* As declared by jemalloc 3.0 and later (jemalloc.3, "NON-STANDARD API"). */
extern void *mallocx(size_t size, int flags) __attribute__((weak));
extern void dallocx(void *memory, int flags) __attribute__((weak));
extern int mallctl(const char *name, void *old, size_t *old_nbytes, void *new_value,
                   size_t new_nbytes) __attribute__((weak));

/* jemalloc's macros of the same names (jemalloc_macros.h): alignment as its logarithm in bits 0-5,
 * the thread cache's index + 2 in bits 8-19, where 1 means none, and the arena's index + 1 from bit
 * 20. */
#define MALLOCX_LG_ALIGN(lg) ((int)(lg))
#define MALLOCX_TCACHE_NONE  (1 << 8)
#define MALLOCX_ARENA(arena) ((int)(((unsigned)(arena) + 1) << 20))

enum { ALIGN_SHIFT = 12, HUGE_SHIFT = 21 };
static const uint64_t huge_nbytes = 1ull << HUGE_SHIFT;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int jemalloc_flags; /* 0: mmap. Written once, under `once` */
static char complaint[192];
static _Atomic bool has_complaint;

static bool find_jemalloc(void)
{
    unsigned arena;
    size_t nbytes = sizeof arena;
    if (!mallocx || !dallocx || !mallctl) return false;
    if (mallctl("arenas.create", &arena, &nbytes, NULL, 0) != 0 || arena >= 4095) return false;
    jemalloc_flags = MALLOCX_ARENA(arena) | MALLOCX_TCACHE_NONE;
    return true;
}

bool fy__host_allocator_is_good(const char *wanted)
{
    return strcmp(wanted, "auto") == 0 || strcmp(wanted, "jemalloc") == 0 ||
           strcmp(wanted, "mmap") == 0;
}

static void choose(void)
{
    const char *wanted = fy__env_value("FERRY_HOST_ALLOCATOR");
    if (wanted && strcmp(wanted, "mmap") == 0) return;
    const bool found = find_jemalloc();
    if (!wanted || strcmp(wanted, "auto") == 0) return;
    if (!fy__host_allocator_is_good(wanted))
        snprintf(complaint, sizeof complaint,
                 "FERRY_HOST_ALLOCATOR=%.40s is none of auto, jemalloc, mmap; it counts as auto",
                 wanted);
    else if (!found)
        snprintf(complaint, sizeof complaint, "%s",
                 "FERRY_HOST_ALLOCATOR=jemalloc, but this program carries no jemalloc that gives "
                 "an arena: host memory comes from mmap. "
                 "Link ferry::jemalloc, or preload it");
    atomic_store(&has_complaint, complaint[0] != 0);
}

/* Outside the once: the log function may call Ferry. */
static void decide(void)
{
    pthread_once(&once, choose);
    if (FY_UNLIKELY(atomic_load_explicit(&has_complaint, memory_order_relaxed)) &&
        atomic_exchange(&has_complaint, false))
        fy_log_write(FY_LOG_WARNING, "%s", complaint);
}

const char *fy__host_allocator_name(void)
{
    decide();
    return jemalloc_flags ? "jemalloc" : "mmap";
}

static inline int shift_for(uint64_t nbytes)
{
    return nbytes >= huge_nbytes ? HUGE_SHIFT : ALIGN_SHIFT;
}

/* Maps nbytes (a multiple of the page) so that a large segment begins at a huge-page boundary. */
static void *map(uint64_t nbytes)
{
    const uint64_t slack = nbytes >= huge_nbytes ? huge_nbytes : 0;
    char *base =
        mmap(NULL, nbytes + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) return NULL;
    if (!slack) return base;
    const uint64_t before = -(uintptr_t)base & (huge_nbytes - 1);
    if (before) (void)munmap(base, before);
    if (slack - before) (void)munmap(base + before + nbytes, slack - before);
    base += before;
    return base;
}

/* ---- kept (warm) segments ---- */

enum { WARM_SEGMENTS = 32 };
/* several devices' rings and slabs; more is returned to the system */
static const uint64_t warm_most_nbytes = 64ull << 20;

/* guards the list; a leaf, never held over a call of jemalloc or the kernel */
pthread_mutex_t fy__host_segments_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    void *address;
    uint64_t nbytes;
} warm[WARM_SEGMENTS]; /* the oldest release first */
static int warm_count;
static uint64_t warm_nbytes;

/* The lock is held. */
static void *take_out(int at)
{
    void *address = warm[at].address;
    warm_nbytes -= warm[at].nbytes;
    memmove(&warm[at], &warm[at + 1], (size_t)(--warm_count - at) * sizeof *warm);
    return address;
}

/* Only the exact size: a larger one may fit another request, and a limit counts requested bytes. */
static void *take_warm(uint64_t nbytes)
{
    void *address = NULL;
    pthread_mutex_lock(&fy__host_segments_lock);
    for (int i = warm_count; i-- && !address;)
        if (warm[i].nbytes == nbytes) address = take_out(i);
    pthread_mutex_unlock(&fy__host_segments_lock);
    return address;
}

static void give_to_system(void *address, uint64_t nbytes)
{
    if (jemalloc_flags)
        dallocx(address, jemalloc_flags);
    else
        (void)munmap(address, nbytes);
}

/* Unmaps the oldest until at most this much stays. The lock is held on entry and return. */
static void make_room(uint64_t most_nbytes, int most_count)
{
    while (warm_count && (warm_nbytes > most_nbytes || warm_count > most_count)) {
        const uint64_t nbytes = warm[0].nbytes;
        void *address = take_out(0);
        pthread_mutex_unlock(&fy__host_segments_lock);
        give_to_system(address, nbytes);
        pthread_mutex_lock(&fy__host_segments_lock);
    }
}

uint64_t fy__host_segments_warm(void)
{
    pthread_mutex_lock(&fy__host_segments_lock);
    const uint64_t nbytes = warm_nbytes;
    pthread_mutex_unlock(&fy__host_segments_lock);
    return nbytes;
}

void fy__host_segments_trim(uint64_t keep_nbytes)
{
    pthread_mutex_lock(&fy__host_segments_lock);
    make_room(keep_nbytes, WARM_SEGMENTS);
    pthread_mutex_unlock(&fy__host_segments_lock);
}

/* ---- segments ---- */

static void *from_system(uint64_t nbytes)
{
    void *address = jemalloc_flags
                        ? mallocx(nbytes, jemalloc_flags | MALLOCX_LG_ALIGN(shift_for(nbytes)))
                        : map(nbytes);
    /* Advice: refused where the kernel has none. Only whole huge pages, so that memory beside the
     * segment is unaffected. */
    if (address && nbytes >= huge_nbytes)
        (void)madvise(address, nbytes & ~(huge_nbytes - 1), MADV_HUGEPAGE);
    return address;
}

fy_status_t fy__host_segment_alloc(uint64_t nbytes, void **out_address)
{
    uint64_t mapped;
    *out_address = NULL;
    decide();
    const bool fits = fy__round_up_u64(nbytes, 1u << ALIGN_SHIFT, &mapped) &&
                      mapped <= (uint64_t)PTRDIFF_MAX - huge_nbytes;
    if (nbytes && fits && !(*out_address = take_warm(mapped)) &&
        !(*out_address = from_system(mapped)) && fy__host_segments_warm()) {
        fy__host_segments_trim(0); /* kept segments may be the missing memory */
        *out_address = from_system(mapped);
    }
    if (*out_address) return FY_STATUS_OK;
    return FY_FAIL(OUT_OF_MEMORY, "host: %s gives no segment of %llu bytes",
                   fy__host_allocator_name(), (unsigned long long)nbytes);
}

void fy__host_segment_free(void *address, uint64_t nbytes)
{
    uint64_t mapped;
    if (!address || !fy__round_up_u64(nbytes, 1u << ALIGN_SHIFT, &mapped)) return;
    if (mapped > warm_most_nbytes) {
        give_to_system(address, mapped);
        return;
    }
    pthread_mutex_lock(&fy__host_segments_lock);
    make_room(warm_most_nbytes - mapped, WARM_SEGMENTS - 1);
    warm[warm_count].address = address;
    warm[warm_count++].nbytes = mapped;
    warm_nbytes += mapped;
    pthread_mutex_unlock(&fy__host_segments_lock);
}
