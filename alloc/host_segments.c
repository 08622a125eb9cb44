/* Host segments: where the host's pool gets its memory. When the program carries jemalloc, it is found by weak symbols and gives us an
 * arena of our own; the library neither links nor needs it, and the application's malloc stays whatever it is. Otherwise mmap.
 * Which one is decided once, at the first call. Not here: blocks (cache.c), page-locked memory (a backend's). */
#include "alloc/host_segments.h"

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

#include "runtime/base/checked.h"
#include "runtime/base/fail.h"
#include "runtime/memory.h"

/* As declared by jemalloc 3.0 and later (jemalloc.3, "NON-STANDARD API"). */
extern void *mallocx(size_t size, int flags) __attribute__((weak));
extern void dallocx(void *memory, int flags) __attribute__((weak));
extern int mallctl(const char *name, void *old, size_t *old_nbytes, void *new_value, size_t new_nbytes) __attribute__((weak));

/* jemalloc's macros of the same names (jemalloc_macros.h): alignment as its logarithm in bits 0-5, the thread cache's index + 2 in bits
 * 8-19, where 1 means none, and the arena's index + 1 from bit 20. */
#define MALLOCX_LG_ALIGN(lg) ((int)(lg))
#define MALLOCX_TCACHE_NONE  (1 << 8)
#define MALLOCX_ARENA(arena) ((int)(((unsigned)(arena) + 1) << 20))

enum { ALIGN_SHIFT = 12, HUGE_SHIFT = 21 };
static const uint64_t huge_nbytes = 1ull << HUGE_SHIFT;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int jemalloc_flags; /* 0: mmap. Written once, under `once` */

static void choose(void)
{
    unsigned arena;
    size_t nbytes = sizeof arena;
    if (!mallocx || !dallocx || !mallctl) return;
    if (mallctl("arenas.create", &arena, &nbytes, NULL, 0) != 0 || arena >= 4095) return;
    jemalloc_flags = MALLOCX_ARENA(arena) | MALLOCX_TCACHE_NONE;
}

const char *fy__host_allocator_name(void)
{
    pthread_once(&once, choose);
    return jemalloc_flags ? "jemalloc" : "mmap";
}

static inline int shift_for(uint64_t nbytes) { return nbytes >= huge_nbytes ? HUGE_SHIFT : ALIGN_SHIFT; }

/* Maps nbytes (a multiple of the page) so that a large segment begins on a huge page. */
static void *map(uint64_t nbytes)
{
    const uint64_t slack = nbytes >= huge_nbytes ? huge_nbytes : 0;
    char *base = mmap(NULL, nbytes + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) return NULL;
    if (!slack) return base;
    const uint64_t before = -(uintptr_t)base & (huge_nbytes - 1);
    if (before) (void)munmap(base, before);
    if (slack - before) (void)munmap(base + before + nbytes, slack - before);
    base += before;
    (void)madvise(base, nbytes, MADV_HUGEPAGE); /* advice: refused where the kernel has none */
    return base;
}

fy_status_t fy__host_segment_alloc(uint64_t nbytes, void **out_address)
{
    uint64_t mapped;
    *out_address = NULL;
    pthread_once(&once, choose);
    const bool fits = fy__round_up_u64(nbytes, 1u << ALIGN_SHIFT, &mapped) && mapped <= (uint64_t)PTRDIFF_MAX - huge_nbytes;
    if (nbytes && fits) *out_address = jemalloc_flags ? mallocx(nbytes, jemalloc_flags | MALLOCX_LG_ALIGN(shift_for(nbytes))) : map(mapped);
    if (*out_address) return FY_STATUS_OK;
    return FY_FAIL(OUT_OF_MEMORY, "host: %s gives no segment of %llu bytes", fy__host_allocator_name(), (unsigned long long)nbytes);
}

void fy__host_segment_free(void *address, uint64_t nbytes)
{
    uint64_t mapped;
    if (!address) return;
    if (jemalloc_flags)
        dallocx(address, jemalloc_flags);
    else if (fy__round_up_u64(nbytes, 1u << ALIGN_SHIFT, &mapped))
        (void)munmap(address, mapped);
}
