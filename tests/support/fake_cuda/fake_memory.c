/* Memory of the fake: a reserved range of device addresses, the bytes behind it, registered host
 * memory, copies. Blocks are kept apart by a gap, so that one byte too many is an illegal address;
 * fresh blocks hold garbage. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/support/fake_cuda/fake.h"

#define SPACE     (8ull << 30)                       /* addresses a device */
#define VIRTUAL   ((uint64_t)FAKE_VIRTUAL_GIB << 30) /* addresses of virtual memory, after those */
#define ALIGNMENT 512ull
#define GAP       512ull

typedef struct block {
    uint64_t address, nbytes;
    struct block *next; /* by address */
} block_t;

typedef struct registration {
    uint64_t address, nbytes;
    CUcontext context; /* the owner: it must not end before */
    struct registration *next;
} registration_t;

static char *reserved, *bytes; /* device addresses; the bytes of those */
static block_t *blocks[FAKE_DEVICES];
static uint64_t used[FAKE_DEVICES], capacity = 4ull << 30;
static int64_t live_blocks, live_registrations;
static registration_t *registrations;
static uint64_t moved[FAKE_BYTES];
static uint64_t ncopies[FAKE_BYTES];

int64_t fake_memory_live(int kind);
int64_t fake_memory_live(int kind)
{
    return kind == FAKE_BLOCKS ? live_blocks + fake_virtual_live() : live_registrations;
}
uint64_t fake_cuda_bytes(int kind) { return moved[kind]; }
uint64_t fake_cuda_copies(int kind) { return ncopies[kind]; }
void fake_cuda_capacity(uint64_t nbytes) { capacity = nbytes; }

int fake_memory_init(void)
{
    if (reserved != NULL) return 0;
    char *addresses = mmap(NULL, SPACE * FAKE_DEVICES + VIRTUAL, PROT_NONE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    char *behind = mmap(NULL, SPACE * FAKE_DEVICES + VIRTUAL, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (addresses == MAP_FAILED || behind == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    reserved = addresses;
    bytes = behind;
    return 0;
}

static int is_device_address(uint64_t address)
{
    return address >= (uint64_t)(uintptr_t)reserved &&
           address < (uint64_t)(uintptr_t)reserved + SPACE * FAKE_DEVICES + VIRTUAL;
}

static void *behind(uint64_t address) { return bytes + (address - (uint64_t)(uintptr_t)reserved); }

uint64_t fake_virtual_base(void) { return (uint64_t)(uintptr_t)reserved + SPACE * FAKE_DEVICES; }
/* New memory for these addresses: filled with garbage. */
void fake_virtual_clear(uint64_t address, uint64_t nbytes)
{
    madvise(behind(address), nbytes, MADV_DONTNEED);
    memset(behind(address), 0xA5, nbytes < 65536 ? nbytes : 65536);
}

int fake_memory_take(int device, uint64_t nbytes)
{
    if (nbytes > capacity - used[device]) return 0;
    used[device] += nbytes;
    return 1;
}
void fake_memory_give(int device, uint64_t nbytes) { used[device] -= nbytes; }

/* Addresses may be any that a kernel computes: the sum with `nbytes` may overflow. */
static int is_inside(uint64_t address, uint64_t nbytes, uint64_t begin, uint64_t length)
{
    return address >= begin && address - begin <= length && nbytes <= length - (address - begin);
}

static const block_t *block_at(int device, uint64_t address, uint64_t nbytes)
{
    static const block_t virtual_block;
    if (fake_virtual_holds(device, address, nbytes)) return &virtual_block;
    for (block_t *block = blocks[device]; block != NULL; block = block->next)
        if (is_inside(address, nbytes, block->address, block->nbytes)) return block;
    return NULL;
}

static registration_t *registration_at(uint64_t address, uint64_t nbytes)
{
    for (registration_t *r = registrations; r != NULL; r = r->next)
        if (is_inside(address, nbytes, r->address, r->nbytes)) return r;
    return NULL;
}

void *fake_translate(int device, uint64_t address, uint64_t nbytes)
{
    if (block_at(device, address, nbytes) != NULL) return behind(address);
    if (registration_at(address, nbytes) != NULL) return (void *)(uintptr_t)address;
    return NULL;
}

CUresult fake_cuMemGetInfo(size_t *available, size_t *total)
{
    FAKE_ENTER(cuMemGetInfo);
    *available = *total = 0;
    if (code == 0) {
        *total = capacity;
        *available = capacity - used[context->device];
    }
    return (CUresult)fake_leave(code);
}

CUresult fake_cuMemAlloc(CUdeviceptr *out, size_t nbytes)
{
    FAKE_ENTER(cuMemAlloc);
    *out = 0;
    if (code == 0 && nbytes == 0) code = CUDA_ERROR_INVALID_VALUE;
    if (code != 0) return (CUresult)fake_leave(code);
    const int device = context->device;
    uint64_t base = (uint64_t)(uintptr_t)reserved + SPACE * (uint64_t)device, at = base + ALIGNMENT;
    block_t **link = &blocks[device];
    for (; *link != NULL && (*link)->address < at + nbytes + GAP; link = &(*link)->next)
        at = ((*link)->address + (*link)->nbytes + GAP + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (nbytes > capacity - used[device] || at + nbytes > base + SPACE)
        return (CUresult)fake_leave(CUDA_ERROR_OUT_OF_MEMORY);
    block_t *block = malloc(sizeof *block);
    *block = (block_t){ at, nbytes, *link };
    *link = block;
    used[device] += nbytes;
    live_blocks++;
    memset(behind(at), 0xA5, nbytes < 65536 ? nbytes : 65536);
    *out = at;
    return (CUresult)fake_leave(0);
}

static void drop(int device, block_t **link)
{
    block_t *block = *link;
    *link = block->next;
    used[device] -= block->nbytes;
    live_blocks--;
    uint64_t begin = (block->address + 4095) / 4096 * 4096,
             end = (block->address + block->nbytes) / 4096 * 4096;
    if (end > begin) madvise(behind(begin), end - begin, MADV_DONTNEED);
    free(block);
}

CUresult fake_cuMemFree(CUdeviceptr address)
{
    FAKE_ENTER_RELEASE(cuMemFree);
    if (code != 0) return (CUresult)fake_leave(code);
    block_t **link = &blocks[context->device];
    while (*link != NULL && (*link)->address != address) link = &(*link)->next;
    if (*link == NULL) {
        fake_count_misuse();
        return (CUresult)fake_leave(CUDA_ERROR_INVALID_VALUE);
    }
    drop(context->device, link);
    return (CUresult)fake_leave(told);
}

void fake_memory_close(int device, int lost)
{
    while (blocks[device] != NULL) {
        if (!lost) fake_count_leak(1);
        drop(device, &blocks[device]);
    }
    for (const registration_t *r = registrations; r != NULL && !lost; r = r->next)
        if (r->context->refs == 0 && r->context->device == device) fake_count_leak(1);
}

/* ---- host memory ---- */

CUresult fake_cuMemHostRegister(void *address, size_t nbytes, unsigned int flags)
{
    FAKE_ENTER(cuMemHostRegister);
    const uint64_t at = (uint64_t)(uintptr_t)address;
    if (code == 0 &&
        (nbytes == 0 || flags != (CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP)))
        code = CUDA_ERROR_INVALID_VALUE;
    for (registration_t *r = registrations; code == 0 && r != NULL; r = r->next)
        if (at < r->address + r->nbytes && r->address < at + nbytes)
            code = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    if (code == 0) {
        registration_t *r = malloc(sizeof *r);
        *r = (registration_t){ at, nbytes, context, registrations };
        registrations = r;
        live_registrations++;
    }
    return (CUresult)fake_leave(code);
}

CUresult fake_cuMemHostUnregister(void *address)
{
    FAKE_ENTER_RELEASE(cuMemHostUnregister);
    registration_t **link = &registrations;
    while (*link != NULL && (*link)->address != (uint64_t)(uintptr_t)address) link = &(*link)->next;
    if (code == 0 && *link == NULL) {
        fake_count_misuse();
        code = CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    }
    /* a lost context releases its pages too */
    if (*link != NULL && (code == 0 || context != NULL)) {
        registration_t *r = *link;
        *link = r->next;
        free(r);
        live_registrations--;
    }
    return (CUresult)fake_leave(code != 0 ? code : told);
}

CUresult fake_cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr address)
{
    int code = fake_enter(FAKE_cuPointerGetAttribute);
    const registration_t *registration = registration_at(address, 1);
    /* the only supported attribute */
    if (code == 0 && registration == NULL) code = CUDA_ERROR_INVALID_VALUE;
    if (code == 0) switch ((int)attribute) {
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: *(unsigned int *)data = CU_MEMORYTYPE_HOST; break;
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
            *(CUdeviceptr *)data = registration->address;
            break;
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *(size_t *)data = registration->nbytes; break;
        default: code = CUDA_ERROR_INVALID_VALUE;
        }
    return (CUresult)fake_leave(code);
}

/* ---- copies ---- */

/* A device address must be inside a block, a host address must not be in the device range. */
static void *end_of(CUcontext context, uint64_t address, uint64_t nbytes, int on_device)
{
    if (on_device)
        return block_at(context->device, address, nbytes) != NULL ? behind(address) : NULL;
    return is_device_address(address) ? NULL : (void *)(uintptr_t)address;
}

typedef struct copied {
    uint64_t dst, src, nbytes;
    int dst_on_device, src_on_device, kind;
} copied_t;

static CUresult run_copy(CUcontext context, const void *work)
{
    const copied_t *c = work;
    void *to = end_of(context, c->dst, c->nbytes, c->dst_on_device),
         *from = end_of(context, c->src, c->nbytes, c->src_on_device);
    if (to == NULL || from == NULL) return context->lost = CUDA_ERROR_ILLEGAL_ADDRESS;
    memmove(to, from, c->nbytes);
    moved[c->kind] += c->nbytes;
    ncopies[c->kind]++;
    return CUDA_SUCCESS;
}

static CUresult copy(enum fake_entry entry, uint64_t dst, int dst_on_device, uint64_t src,
                     int src_on_device, size_t nbytes, CUstream stream, int kind)
{
    CUcontext context;
    int code = fake_enter_context(entry, &context);
    if (code == 0 && !fake_stream_is_valid(stream, context)) code = CUDA_ERROR_INVALID_HANDLE;
    /* A graph with a copy from or to memory that may be paged out: not refused by every driver, but
     * by this one. */
    if (code == 0 && ((!dst_on_device && registration_at(dst, nbytes) == NULL) ||
                      (!src_on_device && registration_at(src, nbytes) == NULL)))
        code = fake_capture_refuses(stream);
    const copied_t work = { dst, src, nbytes, dst_on_device, src_on_device, kind };
    if (code == 0) code = fake_submit(context, stream, run_copy, &work, sizeof work);
    return (CUresult)fake_leave(code);
}

CUresult fake_cuMemcpyHtoDAsync(CUdeviceptr dst, const void *src, size_t nbytes, CUstream stream)
{
    return copy(FAKE_cuMemcpyHtoDAsync, dst, 1, (uint64_t)(uintptr_t)src, 0, nbytes, stream,
                FAKE_H2D);
}

CUresult fake_cuMemcpyDtoHAsync(void *dst, CUdeviceptr src, size_t nbytes, CUstream stream)
{
    return copy(FAKE_cuMemcpyDtoHAsync, (uint64_t)(uintptr_t)dst, 0, src, 1, nbytes, stream,
                FAKE_D2H);
}

CUresult fake_cuMemcpyDtoDAsync(CUdeviceptr dst, CUdeviceptr src, size_t nbytes, CUstream stream)
{
    return copy(FAKE_cuMemcpyDtoDAsync, dst, 1, src, 1, nbytes, stream, FAKE_D2D);
}

/* Each end on the device of the given context; the source's is the current one. */
CUresult fake_cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src,
                                CUcontext src_context, size_t nbytes, CUstream stream)
{
    FAKE_ENTER(cuMemcpyPeerAsync);
    if (code == 0 && !fake_stream_is_valid(stream, context)) code = CUDA_ERROR_INVALID_HANDLE;
    if (code == 0) code = fake_capture_refuses(stream); /* Ferry's graphs have no peer copies */
    if (code == 0 &&
        (dst_context == NULL || dst_context->refs == 0 || src_context != context || nbytes == 0)) {
        fake_count_misuse();
        code = CUDA_ERROR_INVALID_CONTEXT;
    }
    if (code == 0 && (block_at(dst_context->device, dst, nbytes) == NULL ||
                      block_at(src_context->device, src, nbytes) == NULL))
        code = context->lost = CUDA_ERROR_ILLEGAL_ADDRESS;
    if (code == 0) {
        memmove(behind(dst), behind(src), nbytes);
        moved[FAKE_PEER] += nbytes;
        ncopies[FAKE_PEER]++;
    }
    return (CUresult)fake_leave(code);
}

typedef struct filled {
    uint64_t dst, nbytes;
    unsigned char value;
} filled_t;

static CUresult run_fill(CUcontext context, const void *work)
{
    const filled_t *f = work;
    if (block_at(context->device, f->dst, f->nbytes) == NULL)
        return context->lost = CUDA_ERROR_ILLEGAL_ADDRESS;
    memset(behind(f->dst), f->value, f->nbytes);
    return CUDA_SUCCESS;
}

CUresult fake_cuMemsetD8Async(CUdeviceptr dst, unsigned char value, size_t nbytes, CUstream stream)
{
    FAKE_ENTER(cuMemsetD8Async);
    if (code == 0 && !fake_stream_is_valid(stream, context)) code = CUDA_ERROR_INVALID_HANDLE;
    const filled_t work = { dst, nbytes, value };
    if (code == 0) code = fake_submit(context, stream, run_fill, &work, sizeof work);
    return (CUresult)fake_leave(code);
}

/* ---- batches ---- */

#if CUDA_VERSION >= 12080

/* One end: on this device, or on the host and then page-locked, as a batch in stream order
 * requires. *out_on_device: which one. */
static void *batch_end(CUcontext context, uint64_t address, uint64_t nbytes, int *out_on_device)
{
    *out_on_device = is_device_address(address);
    if (*out_on_device) return end_of(context, address, nbytes, 1);
    return registration_at(address, nbytes) != NULL ? (void *)(uintptr_t)address : NULL;
}

static int batch_overlaps(const CUdeviceptr *dsts, const CUdeviceptr *srcs, const size_t *sizes,
                          size_t count)
{
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < count; j++) {
            if (i != j && dsts[i] < dsts[j] + sizes[j] && dsts[j] < dsts[i] + sizes[i]) return 1;
            if (dsts[i] < srcs[j] + sizes[j] && srcs[j] < dsts[i] + sizes[i]) return 1;
        }
    return 0;
}

/* Checks all arguments first, so that a refused batch has copied nothing. *failed: the index of the
 * wrong copy, or SIZE_MAX. */
static CUresult batch(enum fake_entry entry, const CUdeviceptr *dsts, const CUdeviceptr *srcs,
                      const size_t *sizes, size_t count, const CUmemcpyAttributes *attrs,
                      const size_t *indices, size_t nattrs, CUstream stream, size_t *failed)
{
    CUcontext context;
    int code = fake_enter_context(entry, &context), to_device = 0, from_device = 0;
    *failed = SIZE_MAX;
    if (code == 0 && !fake_stream_is_valid(stream, context)) code = CUDA_ERROR_INVALID_HANDLE;
    if (code == 0) code = fake_capture_refuses(stream); /* Ferry's graphs have no batches */
    if (code == 0 && stream == CU_STREAM_LEGACY) code = CUDA_ERROR_INVALID_VALUE;
    if (code == 0 && (count == 0 || nattrs == 0 || nattrs > count || indices[0] != 0))
        code = CUDA_ERROR_INVALID_VALUE;
    for (size_t k = 0; code == 0 && k < nattrs; k++)
        if (attrs[k].srcAccessOrder != CU_MEMCPY_SRC_ACCESS_ORDER_STREAM || attrs[k].flags > 1 ||
            (k > 0 && indices[k] <= indices[k - 1]) || indices[k] >= count)
            code = CUDA_ERROR_INVALID_VALUE;
    /* undefined there, an error here */
    if (code == 0 && batch_overlaps(dsts, srcs, sizes, count)) code = CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; code == 0 && i < count; i++)
        if (sizes[i] == 0 || batch_end(context, dsts[i], sizes[i], &to_device) == NULL ||
            batch_end(context, srcs[i], sizes[i], &from_device) == NULL) {
            code = CUDA_ERROR_INVALID_VALUE;
            *failed = i;
        }
    for (size_t i = 0; code == 0 && i < count; i++) {
        void *to = batch_end(context, dsts[i], sizes[i], &to_device);
        memmove(to, batch_end(context, srcs[i], sizes[i], &from_device), sizes[i]);
        const int kind = !from_device ? FAKE_H2D : to_device ? FAKE_D2D : FAKE_D2H;
        moved[kind] += sizes[i];
        ncopies[kind]++;
    }
    return (CUresult)fake_leave(code);
}

CUresult fake_cuMemcpyBatchAsync_v12080(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes,
                                        size_t count, CUmemcpyAttributes *attrs, size_t *indices,
                                        size_t nattrs, size_t *failed, CUstream stream)
{
    return batch(FAKE_cuMemcpyBatchAsync_v12080, dsts, srcs, sizes, count, attrs, indices, nattrs,
                 stream, failed);
}

CUresult fake_cuMemcpyBatchAsync_v13000(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes,
                                        size_t count, CUmemcpyAttributes *attrs, size_t *indices,
                                        size_t nattrs, CUstream stream)
{
    size_t failed;
    return batch(FAKE_cuMemcpyBatchAsync_v13000, dsts, srcs, sizes, count, attrs, indices, nattrs,
                 stream, &failed);
}

#endif
