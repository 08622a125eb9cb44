/* Shadow memory: one mapping per segment, laid out as [bytes, readable and writable][device
 * addresses, PROT_NONE]. A kernel that runs past its end therefore faults at the first device
 * address; the bytes cost nothing until they are touched. With numerics=off there are only the
 * addresses.
 * Lock: `fy__sim_memory_lock` guards the map of all segments of the process and every device's
 * account. It is held for lookups, never while bytes move or the system maps memory; no other lock
 * is taken under it. */
#include "backends/sim/memory.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "backends/builtin.h"
#include "backends/sim/sim.h"
#include "runtime/base/c_locale.h"

pthread_mutex_t fy__sim_memory_lock = PTHREAD_MUTEX_INITIALIZER;
static fy__sim_ranges_t segments; /* owner: the device; bytes: NULL with numerics=off */

/* ---- mappings ---- */

static uint64_t round_to_page(uint64_t nbytes)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    return (nbytes + page - 1) / page * page;
}

/* Address space of a segment: twice its size if it has bytes. The caller has checked that nbytes <=
 * INT64_MAX / 2. */
static uint64_t mapping_nbytes(const fy__sim_device_t *dev, uint64_t nbytes)
{
    return round_to_page(nbytes) * (dev->numerics ? 2 : 1);
}

static fy_status_t fail_mapping(const fy__sim_device_t *dev, uint64_t nbytes, int error)
{
    struct rlimit limit;
    uint64_t space = mapping_nbytes(dev, nbytes);
    if (error == ENOMEM && getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        return FY__SIM_FAIL(
            FY_STATUS_OUT_OF_MEMORY,
            "%s: a block of %" PRIu64 " bytes needs %" PRIu64
            " bytes of address space, which the limit of %" PRIu64
            " refuses\n  Raise it (ulimit -v), or open the device with a smaller capacity=BYTES%s",
            dev->name, nbytes, space, (uint64_t)limit.rlim_cur,
            dev->numerics ? " or numerics=off" : "");
    return FY__SIM_FAIL(FY_STATUS_OUT_OF_MEMORY,
                        "%s: a block of %" PRIu64 " bytes needs %" PRIu64
                        " bytes of address space, which the system refuses: %s",
                        dev->name, nbytes, space, fy__strerror(error));
}

/* How far a new block may grow: over all the device has, where it may. */
static uint64_t space_for(const fy__sim_device_t *dev, uint64_t nbytes)
{
    const fy__sim_memory_t *memory = &dev->memory;
    const bool grows = memory->resize_nbytes && nbytes % memory->resize_nbytes == 0 &&
                       nbytes < memory->capacity_nbytes;
    return grows && memory->capacity_nbytes <= INT64_MAX / 4 ? memory->capacity_nbytes : nbytes;
}

/* On success fills range->begin, bytes and space_nbytes. */
static int map_segment(const fy__sim_device_t *dev, fy__sim_range_t *range)
{
    range->space_nbytes = space_for(dev, range->nbytes);
    uint64_t size = round_to_page(range->space_nbytes),
             space = mapping_nbytes(dev, range->space_nbytes);
    char *base = mmap(NULL, space, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return errno;
    if (!dev->numerics) {
        range->begin = (uintptr_t)base;
        range->bytes = NULL;
        return 0;
    }
    if (mprotect(base, round_to_page(range->nbytes), PROT_READ | PROT_WRITE) != 0) {
        int error = errno;
        munmap(base, space);
        return error;
    }
    range->begin = (uintptr_t)base + size;
    range->bytes = base;
    return 0;
}

static void unmap_segment(const fy__sim_range_t *range)
{
    const fy__sim_device_t *dev = range->owner;
    if (range->is_adopted) return;
    munmap(range->bytes ? range->bytes : (void *)range->begin,
           mapping_nbytes(dev, range->space_nbytes));
}

/* ---- slots ---- */

/* Counts nbytes more as used, if the device has them and its script lets it. */
static fy_status_t take(fy__sim_device_t *dev, uint64_t nbytes)
{
    FY_TRY(fy__sim_device_check(dev));
    uint64_t struck = fy__sim_device_strikes(dev, FY__SIM_FAULT_ALLOC, NULL);
    if (struck > 0)
        return FY__SIM_FAIL(FY_STATUS_OUT_OF_MEMORY,
                            "%s: allocation %" PRIu64 " (%" PRIu64
                            " bytes) fails, as the device's faults= says",
                            dev->name, struck, nbytes);
    pthread_mutex_lock(&fy__sim_memory_lock);
    uint64_t capacity = dev->memory.capacity_nbytes, used_nbytes = dev->memory.used_nbytes;
    uint64_t free_nbytes = used_nbytes < capacity ? capacity - used_nbytes : 0;
    bool fits = nbytes <= (dev->memory.overcommits ? INT64_MAX - used_nbytes : free_nbytes);
    if (fits) dev->memory.used_nbytes += nbytes;
    pthread_mutex_unlock(&fy__sim_memory_lock);
    if (!fits)
        return FY__SIM_FAIL(FY_STATUS_OUT_OF_MEMORY,
                            "%s: %" PRIu64 " bytes asked for, %" PRIu64 " of %" PRIu64 " are free",
                            dev->name, nbytes, free_nbytes, capacity);
    return FY_STATUS_OK;
}

static void give(fy__sim_device_t *dev, uint64_t nbytes)
{
    pthread_mutex_lock(&fy__sim_memory_lock);
    dev->memory.used_nbytes -= nbytes;
    pthread_mutex_unlock(&fy__sim_memory_lock);
}

/* Adds a range whose bytes were taken from the account; false: no memory for it, and the bytes are
 * returned to the account. */
static bool note_segment(fy__sim_device_t *dev, const fy__sim_range_t *range)
{
    pthread_mutex_lock(&fy__sim_memory_lock);
    bool noted = fy__sim_ranges_reserve(&segments);
    if (noted)
        fy__sim_ranges_insert(&segments, range);
    else
        dev->memory.used_nbytes -= range->nbytes;
    pthread_mutex_unlock(&fy__sim_memory_lock);
    return noted;
}

static fy_status_t fail_noting(const fy__sim_device_t *dev)
{
    return FY__SIM_FAIL(FY_STATUS_OUT_OF_MEMORY, "%s: no host memory to note a block", dev->name);
}

fy_status_t fy__sim_memory_alloc(void *dev_, uint64_t nbytes, void **out_address)
{
    fy__sim_device_t *dev = dev_;
    *out_address = NULL;
    FY_TRY(take(dev, nbytes));
    fy__sim_range_t range = { .nbytes = nbytes, .owner = dev };
    int error = nbytes > INT64_MAX / 4 ? ENOMEM : map_segment(dev, &range);
    if (error) {
        give(dev, nbytes);
        return fail_mapping(dev, nbytes, error);
    }
    if (!note_segment(dev, &range)) {
        unmap_segment(&range);
        return fail_noting(dev);
    }
    *out_address = (void *)range.begin;
    return FY_STATUS_OK;
}

/* The program's memory is its own shadow: host code can access it, so reading a device pointer is
 * not caught there. */
fy_status_t fy__sim_memory_adopt(void *dev_, void *address, uint64_t nbytes)
{
    fy__sim_device_t *dev = dev_;
    fy__sim_range_t range = { .begin = (uintptr_t)address,
                              .nbytes = nbytes,
                              .owner = dev,
                              .bytes = dev->numerics ? address : NULL,
                              .space_nbytes = nbytes,
                              .is_adopted = true };
    pthread_mutex_lock(&fy__sim_memory_lock);
    const bool overlaps = fy__sim_ranges_touching(&segments, range.begin, nbytes) != NULL;
    pthread_mutex_unlock(&fy__sim_memory_lock);
    if (overlaps)
        return FY__SIM_FAIL(FY_STATUS_INVALID_ARGUMENT,
                            "%s: the program's allocator returned %p for %" PRIu64
                            " bytes, which overlap memory in use",
                            dev->name, address, nbytes);
    FY_TRY(take(dev, nbytes));
    return note_segment(dev, &range) ? FY_STATUS_OK : fail_noting(dev);
}

/* What lies behind an address; NULL if nothing does. */
static const void *bytes_behind(const void *address)
{
    pthread_mutex_lock(&fy__sim_memory_lock);
    const fy__sim_range_t *found = fy__sim_ranges_below(&segments, (uintptr_t)address);
    const void *bytes = found && fy__sim_range_holds(found, (uintptr_t)address, 1) && found->bytes
                            ? (const char *)found->bytes + ((uintptr_t)address - found->begin)
                            : NULL;
    pthread_mutex_unlock(&fy__sim_memory_lock);
    return bytes;
}

static void set_size(const fy__sim_range_t *range, uint64_t nbytes)
{
    pthread_mutex_lock(&fy__sim_memory_lock);
    fy__sim_ranges_resize(&segments, range->begin, nbytes);
    pthread_mutex_unlock(&fy__sim_memory_lock);
}

static fy_status_t grow(fy__sim_device_t *dev, const fy__sim_range_t *range, uint64_t new_nbytes)
{
    const uint64_t more = new_nbytes - range->nbytes;
    FY_TRY(take(dev, more));
    int error = new_nbytes > range->space_nbytes ? ENOMEM : 0;
    if (!error && range->bytes &&
        mprotect(range->bytes, round_to_page(new_nbytes), PROT_READ | PROT_WRITE) != 0)
        error = errno;
    if (error) {
        give(dev, more);
        return FY__SIM_FAIL(FY_STATUS_OUT_OF_MEMORY,
                            "%s: a block of %" PRIu64 " bytes cannot grow to %" PRIu64
                            " where it stands: %s",
                            dev->name, range->nbytes, new_nbytes, fy__strerror(error));
    }
    set_size(range, new_nbytes);
    return FY_STATUS_OK;
}

fy_status_t fy__sim_memory_resize(void *dev_, void *address, uint64_t nbytes, uint64_t new_nbytes)
{
    fy__sim_device_t *dev = dev_;
    pthread_mutex_lock(&fy__sim_memory_lock);
    const fy__sim_range_t *found = fy__sim_ranges_below(&segments, (uintptr_t)address);
    const fy__sim_range_t range = found ? *found : (fy__sim_range_t){ 0 };
    pthread_mutex_unlock(&fy__sim_memory_lock);
    const uint64_t step = dev->memory.resize_nbytes;
    if (range.begin != (uintptr_t)address || range.owner != dev || range.nbytes != nbytes ||
        !step || nbytes % step || new_nbytes % step || !new_nbytes)
        return FY__SIM_FAIL(FY_STATUS_INVALID_ARGUMENT,
                            "%s: resize of %p from %" PRIu64 " to %" PRIu64
                            " bytes: no such block here, or no multiples of %" PRIu64,
                            dev->name, address, nbytes, new_nbytes, step);
    if (new_nbytes > nbytes) return grow(dev, &range, new_nbytes);
    char *end = (char *)address + new_nbytes;
    fy__sim_queue_settle(dev, "resize", end, nbytes - new_nbytes, bytes_behind(end));
    set_size(&range, new_nbytes);
    if (range.bytes) {
        char *bytes = (char *)range.bytes + new_nbytes;
        (void)madvise(bytes, nbytes - new_nbytes, MADV_DONTNEED);
        (void)mprotect(bytes, nbytes - new_nbytes, PROT_NONE);
    }
    give(dev, nbytes - new_nbytes);
    return FY_STATUS_OK;
}

void fy__sim_memory_free(void *dev_, void *address, uint64_t nbytes)
{
    fy__sim_device_t *dev = dev_;
    fy__sim_queue_settle(dev, "free", address, nbytes, bytes_behind(address));
    pthread_mutex_lock(&fy__sim_memory_lock);
    const fy__sim_range_t *found = fy__sim_ranges_below(&segments, (uintptr_t)address);
    bool ours = found && found->begin == (uintptr_t)address && found->owner == dev &&
                found->nbytes == nbytes;
    fy__sim_range_t range = { 0 };
    if (ours) {
        fy__sim_ranges_remove(&segments, (uintptr_t)address, &range);
        fy__sim_ranges_trim(&segments);
        dev->memory.used_nbytes -= nbytes;
    }
    pthread_mutex_unlock(&fy__sim_memory_lock);
    if (ours)
        unmap_segment(&range);
    else
        fy__sim_host->log(FY_LOG_ERROR,
                          "%s: free of %p, %" PRIu64 " bytes: no such block here; ignored",
                          dev->name, address, nbytes);
}

fy_status_t fy__sim_memory_register_host(void *dev_, void *address, uint64_t nbytes)
{
    fy__sim_device_t *dev = dev_;
    FY_TRY(fy__sim_device_check(dev));
    fy__sim_range_t range = {
        .begin = (uintptr_t)address, .nbytes = nbytes, .owner = dev, .bytes = address
    };
    FY_TRY(fy__sim_memory_check_host(dev, "register_host", address, nbytes, 0));
    FY_TRY(fy__sim_device_refuses(dev, FY__SIM_FAULT_PIN, "registration of host memory"));
    pthread_mutex_lock(&fy__sim_memory_lock);
    const fy__sim_range_t *found =
        fy__sim_ranges_touching(&dev->memory.pinned, range.begin, nbytes);
    fy__sim_range_t other = found ? *found : (fy__sim_range_t){ 0 };
    bool noted = !found && fy__sim_ranges_reserve(&dev->memory.pinned);
    if (noted) {
        fy__sim_ranges_insert(&dev->memory.pinned, &range);
        dev->memory.pinned_nbytes += nbytes;
    }
    pthread_mutex_unlock(&fy__sim_memory_lock);
    if (found)
        return FY__SIM_FAIL(FY_STATUS_INVALID_ARGUMENT,
                            "%s: %" PRIu64 " bytes of host memory at %p overlap %" PRIu64
                            " bytes at %p that are page-locked already",
                            dev->name, nbytes, address, other.nbytes, (void *)other.begin);
    if (!noted)
        return FY__SIM_FAIL(FY_STATUS_OUT_OF_MEMORY,
                            "%s: no host memory to note a page-locked range", dev->name);
    return FY_STATUS_OK;
}

void fy__sim_memory_unregister_host(void *dev_, void *address, uint64_t nbytes)
{
    fy__sim_device_t *dev = dev_;
    fy__sim_range_t range;
    fy__sim_queue_settle(dev, "unregister", address, nbytes, NULL);
    pthread_mutex_lock(&fy__sim_memory_lock);
    bool ours = fy__sim_ranges_remove(&dev->memory.pinned, (uintptr_t)address, &range);
    if (ours) dev->memory.pinned_nbytes -= range.nbytes;
    fy__sim_ranges_trim(&dev->memory.pinned);
    pthread_mutex_unlock(&fy__sim_memory_lock);
    if (!ours)
        fy__sim_host->log(FY_LOG_ERROR,
                          "%s: unregister of %p, %" PRIu64 " bytes: not page-locked here; ignored",
                          dev->name, address, nbytes);
}

/* ---- the account ---- */

uint64_t fy__sim_memory_used(fy__sim_device_t *dev)
{
    pthread_mutex_lock(&fy__sim_memory_lock);
    uint64_t nbytes = dev->memory.used_nbytes;
    pthread_mutex_unlock(&fy__sim_memory_lock);
    return nbytes;
}

uint64_t fy__sim_memory_pinned(fy__sim_device_t *dev)
{
    pthread_mutex_lock(&fy__sim_memory_lock);
    uint64_t nbytes = dev->memory.pinned_nbytes;
    pthread_mutex_unlock(&fy__sim_memory_lock);
    return nbytes;
}

void fy__sim_memory_close(fy__sim_device_t *dev)
{
    size_t nleft = 0;
    uint64_t nbytes_left = 0;
    pthread_mutex_lock(&fy__sim_memory_lock);
    for (size_t i = segments.count; i-- > 0;) {
        fy__sim_range_t range = segments.items[i];
        if (range.owner != dev) continue;
        fy__sim_ranges_remove(&segments, range.begin, NULL);
        unmap_segment(&range);
        nleft++;
        nbytes_left += range.nbytes;
    }
    fy__sim_ranges_trim(&segments);
    dev->memory.pinned.count = 0;
    fy__sim_ranges_trim(&dev->memory.pinned);
    pthread_mutex_unlock(&fy__sim_memory_lock);
    if (nleft > 0)
        fy__sim_host->log(FY_LOG_ERROR,
                          "%s: closed with %zu blocks (%" PRIu64
                          " bytes) not freed; their memory is released",
                          dev->name, nleft, nbytes_left);
}

/* ---- lookup ---- */

/* Explains why [address, address + nbytes) is not in one live segment of `dev` (NULL: of any
 * device). `below` is a copy of the last segment that begins at or below it, of 0 bytes if there is
 * none. */
static fy_status_t fail_address(const fy__sim_device_t *dev, fy__sim_use_t use, const void *address,
                                uint64_t nbytes, const fy__sim_range_t *below)
{
    char what[64];
    if (use.index < 0)
        snprintf(what, sizeof(what), "%s: %s", use.op, use.operand);
    else
        snprintf(what, sizeof(what), "%s: %s[%d]", use.op, use.operand, use.index);
    const char *whose = dev ? dev->name : "any simulated device";
    const fy__sim_device_t *owner = below->owner;
    uint64_t offset = (uintptr_t)address - below->begin;
    if (offset >= below->nbytes)
        return FY__SIM_FAIL(FY_STATUS_INVALID_ARGUMENT,
                            "%s at %p (%" PRIu64 " bytes) is not an address of %s", what, address,
                            nbytes, whose);
    if (dev && owner != dev)
        return FY__SIM_FAIL(FY_STATUS_INVALID_ARGUMENT,
                            "%s at %p (%" PRIu64 " bytes) is not an address of %s but of %s", what,
                            address, nbytes, whose, owner->name);
    return FY__SIM_FAIL(FY_STATUS_INVALID_ARGUMENT,
                        "%s at %p needs %" PRIu64
                        " bytes; the block of %s that it lies in ends after %" PRIu64,
                        what, address, nbytes, owner->name, below->nbytes - offset);
}

/* dev NULL: a segment of any. pinned_too: page-locked host memory of dev will do. */
static fy_status_t find(const fy__sim_device_t *dev, bool pinned_too, fy__sim_use_t use,
                        const void *address, uint64_t nbytes, void **out_bytes,
                        fy__sim_device_t **out_owner)
{
    uintptr_t begin = (uintptr_t)address;
    fy__sim_range_t range = { 0 };
    pthread_mutex_lock(&fy__sim_memory_lock);
    const fy__sim_range_t *found = fy__sim_ranges_below(&segments, begin);
    if (found) range = *found;
    if (pinned_too && !fy__sim_range_holds(&range, begin, nbytes)) {
        found = fy__sim_ranges_below(&dev->memory.pinned, begin);
        if (found && fy__sim_range_holds(found, begin, nbytes)) range = *found;
    }
    pthread_mutex_unlock(&fy__sim_memory_lock);

    *out_bytes = NULL;
    *out_owner = range.owner;
    if (!fy__sim_range_holds(&range, begin, nbytes) || (dev && range.owner != dev))
        return fail_address(dev, use, address, nbytes, &range);
    if (range.bytes) *out_bytes = (char *)range.bytes + (begin - range.begin);
    return FY_STATUS_OK;
}

fy_status_t fy__sim_memory_find(fy__sim_device_t *dev, fy__sim_use_t use, const void *address,
                                uint64_t nbytes, void **out_bytes)
{
    fy__sim_device_t *owner;
    return find(dev, false, use, address, nbytes, out_bytes, &owner);
}

fy_status_t fy__sim_memory_find_any(fy__sim_use_t use, const void *address, uint64_t nbytes,
                                    void **out_bytes, fy__sim_device_t **out_owner)
{
    return find(NULL, false, use, address, nbytes, out_bytes, out_owner);
}

fy_status_t fy__sim_memory_find_operand(fy__sim_device_t *dev, fy__sim_use_t use,
                                        const void *address, uint64_t nbytes, void **out_bytes)
{
    fy__sim_device_t *owner;
    return find(dev, true, use, address, nbytes, out_bytes, &owner);
}

fy_status_t fy__sim_memory_check_host(fy__sim_device_t *dev, const char *op, const void *address,
                                      uint64_t nbytes, int is_pinned)
{
    uintptr_t begin = (uintptr_t)address;
    fy__sim_range_t segment = { 0 };
    bool registered = true;
    pthread_mutex_lock(&fy__sim_memory_lock);
    const fy__sim_range_t *found = fy__sim_ranges_touching(&segments, begin, nbytes);
    if (found) segment = *found;
    if (is_pinned) {
        found = fy__sim_ranges_below(&dev->memory.pinned, begin);
        registered = found && fy__sim_range_holds(found, begin, nbytes);
    }
    pthread_mutex_unlock(&fy__sim_memory_lock);

    if (segment.nbytes > 0)
        return FY__SIM_FAIL(FY_STATUS_INVALID_ARGUMENT,
                            "%s: the host end at %p (%" PRIu64 " bytes) is device memory of %s", op,
                            address, nbytes, ((const fy__sim_device_t *)segment.owner)->name);
    if (!registered)
        return FY__SIM_FAIL(FY_STATUS_INVALID_ARGUMENT,
                            "%s: host memory at %p (%" PRIu64
                            " bytes) is said to be page-locked, but is not registered with %s",
                            op, address, nbytes, dev->name);
    return FY_STATUS_OK;
}
