/* libfailing_malloc.so, preloaded: the n-th allocation of one thread fails, once. For programs that
 * cannot be linked with wrapped calls (host_memory.h): Python, whose own allocations come here with
 * PYTHONMALLOC=malloc_debug. The C library exports its allocator as __libc_...; GNU only. */
#include <errno.h>
#include <stdlib.h>

void *__libc_malloc(size_t nbytes);
void *__libc_calloc(size_t count, size_t nbytes);
void *__libc_realloc(void *block, size_t nbytes);
void *__libc_memalign(size_t alignment, size_t nbytes);

static _Thread_local long left __attribute__((tls_model("initial-exec")));

/* The n-th allocation of the calling thread from here on fails; 0: none. */
void failing_malloc_arm(long n);
void failing_malloc_arm(long n) { left = n; }
/* How many allocations are missing to the one that fails; 0: it has failed. Disarms. */
long failing_malloc_disarm(void);
long failing_malloc_disarm(void)
{
    const long missing = left;
    left = 0;
    return missing;
}

static int fails(void)
{
    if (left == 0 || --left > 0) return 0;
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t nbytes) { return fails() ? NULL : __libc_malloc(nbytes); }
void *calloc(size_t count, size_t nbytes) { return fails() ? NULL : __libc_calloc(count, nbytes); }
void *realloc(void *block, size_t nbytes) { return fails() ? NULL : __libc_realloc(block, nbytes); }
void *aligned_alloc(size_t alignment, size_t nbytes)
{
    return fails() ? NULL : __libc_memalign(alignment, nbytes);
}
int posix_memalign(void **out_block, size_t alignment, size_t nbytes)
{
    void *block = fails() ? NULL : __libc_memalign(alignment, nbytes);
    if (!block) return ENOMEM;
    *out_block = block;
    return 0;
}
