/* Wrapped calls of the allocator; see host_memory.h. */
#include "tests/support/host_memory.h"

#include <stddef.h>

static __thread int g_left = -1; /* allocations of this thread until one fails; < 0: none fails */
static int fails_now(void) { return g_left >= 0 && g_left-- == 0; }
void *__real_malloc(size_t nbytes);
void *__real_calloc(size_t count, size_t nbytes);
void *__real_realloc(void *memory, size_t nbytes);
void *__real_aligned_alloc(size_t alignment, size_t nbytes);
void *__wrap_malloc(size_t nbytes);
void *__wrap_calloc(size_t count, size_t nbytes);
void *__wrap_realloc(void *memory, size_t nbytes);
void *__wrap_aligned_alloc(size_t alignment, size_t nbytes);
void *__wrap_malloc(size_t nbytes) { return fails_now() ? NULL : __real_malloc(nbytes); }
void *__wrap_calloc(size_t count, size_t nbytes)
{
    return fails_now() ? NULL : __real_calloc(count, nbytes);
}
void *__wrap_realloc(void *memory, size_t nbytes)
{
    return fails_now() ? NULL : __real_realloc(memory, nbytes);
}
void *__wrap_aligned_alloc(size_t alignment, size_t nbytes)
{
    return fails_now() ? NULL : __real_aligned_alloc(alignment, nbytes);
}

void ts_fail_allocation(int left) { g_left = left; }
int ts_allocation_failed(void) { return g_left < 0; }
