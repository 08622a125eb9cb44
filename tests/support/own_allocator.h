/* An allocator of the program for fy_device_open_with: counts its bytes, refuses on request, and
 * fails the test if a block is freed twice, with another size, or not at all. */
#ifndef FERRY_TESTS_SUPPORT_OWN_ALLOCATOR_H_
#define FERRY_TESTS_SUPPORT_OWN_ALLOCATOR_H_

#include <stdlib.h>
#include <string.h>

#include <ferry/device.h>

enum { OWN_DEVICE, OWN_PINNED, OWN_KINDS, OWN_BLOCKS = 256 };

typedef struct own_allocator {
    uint64_t live[OWN_KINDS], peak[OWN_KINDS];
    int calls, frees, errors;
    int fail_at;   /* this call returns NULL; 0: none */
    int fail_ever; /* and all after it */
    int fail_kind; /* of this kind only; OWN_KINDS: any */
    int shift;     /* of the returned addresses, in bytes */
    /* of device memory, if it is not host memory */
    void *(*device_alloc)(uint64_t nbytes);
    void (*device_free)(void *address);
    struct {
        void *address, *whole;
        uint64_t nbytes;
        int kind;
    } block[OWN_BLOCKS];
} own_allocator_t;

static inline void *own_alloc(own_allocator_t *own, int kind, uint64_t nbytes, uint64_t alignment)
{
    int i = 0;
    if (own->fail_kind == OWN_KINDS || own->fail_kind == kind) {
        own->calls++;
        if (own->fail_at &&
            (own->fail_ever ? own->calls >= own->fail_at : own->calls == own->fail_at))
            return NULL;
    }
    while (i < OWN_BLOCKS && own->block[i].address) i++;
    if (i == OWN_BLOCKS || !nbytes || !alignment || (alignment & (alignment - 1))) {
        own->errors++;
        return NULL;
    }
    const uint64_t whole = (nbytes + 2 * alignment - 1) & ~(alignment - 1);
    own->block[i].whole = kind == OWN_DEVICE && own->device_alloc ? own->device_alloc(nbytes)
                                                                  : aligned_alloc(alignment, whole);
    if (!own->block[i].whole) return NULL;
    own->block[i].address = (char *)own->block[i].whole + own->shift;
    own->block[i].nbytes = nbytes;
    own->block[i].kind = kind;
    own->live[kind] += nbytes;
    if (own->peak[kind] < own->live[kind]) own->peak[kind] = own->live[kind];
    return own->block[i].address;
}

static inline void own_free(own_allocator_t *own, int kind, void *address, uint64_t nbytes)
{
    int i = 0;
    while (i < OWN_BLOCKS && own->block[i].address != address) i++;
    own->frees++;
    if (i == OWN_BLOCKS || own->block[i].nbytes != nbytes || own->block[i].kind != kind) {
        own->errors++;
        return;
    }
    if (kind == OWN_DEVICE && own->device_alloc)
        own->device_free(own->block[i].whole);
    else
        free(own->block[i].whole);
    own->block[i].address = NULL;
    own->live[kind] -= nbytes;
}

static inline void *own_alloc_device(void *user, uint64_t nbytes, uint64_t alignment)
{
    return own_alloc(user, OWN_DEVICE, nbytes, alignment);
}
static inline void own_free_device(void *user, void *address, uint64_t nbytes)
{
    own_free(user, OWN_DEVICE, address, nbytes);
}
static inline void *own_alloc_pinned(void *user, uint64_t nbytes, uint64_t alignment)
{
    return own_alloc(user, OWN_PINNED, nbytes, alignment);
}
static inline void own_free_pinned(void *user, void *address, uint64_t nbytes)
{
    own_free(user, OWN_PINNED, address, nbytes);
}

static inline fy_device_options_t own_options(own_allocator_t *own)
{
    fy_device_options_t options = FY_DEVICE_OPTIONS_INIT;
    memset(own, 0, sizeof *own);
    own->fail_kind = OWN_KINDS;
    options.user = own;
    options.alloc_device = own_alloc_device;
    options.free_device = own_free_device;
    options.alloc_pinned = own_alloc_pinned;
    options.free_pinned = own_free_pinned;
    return options;
}

#endif
