/* Finds the peers. A program that carries jemalloc has jemalloc's malloc, so glibc's is asked for
 * from libc itself, and believed only if it lies there; mimalloc comes by dlopen, local, so nothing
 * else is bound to it. */
#include "tools/bench/peers.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef void *(*malloc_fn)(size_t nbytes);
typedef void (*free_fn)(void *block);
typedef void *(*mallocx_fn)(size_t nbytes, int flags);
typedef void (*dallocx_fn)(void *block, int flags);

/* What a peer is called through. One of each kind: found once. */
typedef struct plain {
    malloc_fn malloc;
    free_fn free;
} plain_t;

static plain_t glibc, mimalloc;
static struct {
    mallocx_fn mallocx;
    dallocx_fn dallocx;
} jemalloc;

static void *plain_take(void *context, size_t nbytes)
{
    return ((const plain_t *)context)->malloc(nbytes);
}
static void plain_give(void *context, void *block) { ((const plain_t *)context)->free(block); }

static void *jemalloc_take(void *context, size_t nbytes)
{
    (void)context;
    return jemalloc.mallocx(nbytes, 0);
}

static void jemalloc_give(void *context, void *block)
{
    (void)context;
    jemalloc.dallocx(block, 0);
}

/* ISO C has no cast from object to function pointers. */
static int look_up(void *library, const char *name, void *out_function)
{
    void *symbol = dlsym(library, name);
    if (symbol) memcpy(out_function, &symbol, sizeof symbol);
    return symbol != NULL;
}

static const void *home_of(void *library, const char *name)
{
    Dl_info info;
    const void *symbol = dlsym(library, name);
    return symbol && dladdr(symbol, &info) ? info.dli_fbase : NULL;
}

static int find_glibc(void)
{
    void *library = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
    const void *home = library ? home_of(library, "gnu_get_libc_version") : NULL;
    if (!home || home_of(library, "malloc") != home || home_of(library, "free") != home) return 0;
    return look_up(library, "malloc", &glibc.malloc) && look_up(library, "free", &glibc.free);
}

static int find_mimalloc(void)
{
    void *library = dlopen("libmimalloc.so.2", RTLD_NOW | RTLD_LOCAL);
    return library && look_up(library, "mi_malloc", &mimalloc.malloc) &&
           look_up(library, "mi_free", &mimalloc.free);
}

size_t peer_alloc_find(allocator_t allocators[PEER_ALLOC_MAX], const char **out_missing)
{
    static char missing[256];
    size_t count = 0;
    missing[0] = 0;
    if (find_glibc())
        allocators[count++] = (allocator_t){ "malloc", plain_take, plain_give, &glibc };
    else
        strcat(missing, "malloc is left out: no libc.so.6 that has malloc. ");
    if (look_up(RTLD_DEFAULT, "mallocx", &jemalloc.mallocx) &&
        look_up(RTLD_DEFAULT, "dallocx", &jemalloc.dallocx))
        allocators[count++] = (allocator_t){ "jemalloc", jemalloc_take, jemalloc_give, NULL };
    else
        strcat(missing, "jemalloc is left out: this program was built without it. ");
    if (find_mimalloc())
        allocators[count++] = (allocator_t){ "mimalloc", plain_take, plain_give, &mimalloc };
    else
        strcat(missing, "mimalloc is left out: no libmimalloc.so.2 (scripts/setup.sh --peers). ");
    *out_missing = missing;
    return count;
}

static void *ferry_take(void *context, size_t nbytes)
{
    const int64_t dims[1] = { (int64_t)nbytes };
    fy_tensor_t *tensor;
    return fy_tensor_create(context, FY_DTYPE_U8, 1, dims, &tensor) == FY_STATUS_OK ? tensor : NULL;
}

static void *pinned_take(void *context, size_t nbytes)
{
    const int64_t dims[1] = { (int64_t)nbytes };
    fy_tensor_t *tensor;
    return fy_tensor_create_pinned(context, FY_DTYPE_U8, 1, dims, &tensor) == FY_STATUS_OK ? tensor
                                                                                           : NULL;
}

static void ferry_give(void *context, void *block)
{
    (void)context;
    fy_tensor_destroy(block);
}

allocator_t peer_alloc_ferry(const char *name, fy_device_t *device)
{
    return (allocator_t){ name, ferry_take, ferry_give, device };
}
allocator_t peer_alloc_pinned(const char *name, fy_device_t *device)
{
    return (allocator_t){ name, pinned_take, ferry_give, device };
}
