/* Virtual memory of the fake: reservations of addresses, memory with handles, mappings. Stricter
 * than the driver: sizes are multiples of the granularity, a mapping is unmapped as a whole and
 * alone, addresses are released only when nothing is mapped there. */
#include <stdlib.h>
#include <string.h>

#include "tests/support/fake_cuda/fake.h"

#define GRANULARITY (2ull << 20)

enum { MOST = 8192 };

typedef struct memory {
    uint64_t nbytes; /* 0: the slot is free */
    int device, has_handle, is_mapped;
} memory_t;
typedef struct mapping {
    uint64_t address, nbytes; /* 0: the slot is free */
    memory_t *memory;
    unsigned access; /* bits of the devices that may use it */
} mapping_t;
typedef struct reservation {
    uint64_t address, nbytes;
} reservation_t;

static memory_t memories[MOST];
static mapping_t mappings[MOST];
static reservation_t reservations[64];

static int overlaps(uint64_t a, uint64_t na, uint64_t b, uint64_t nb)
{
    return a < b + nb && b < a + na;
}

int64_t fake_virtual_live(void)
{
    int64_t n = 0;
    for (int i = 0; i < MOST; i++) n += memories[i].nbytes != 0;
    for (int i = 0; i < 64; i++) n += reservations[i].nbytes != 0;
    return n;
}

/* The mapping that holds this address, or NULL. */
static mapping_t *mapping_at(uint64_t address)
{
    for (int i = 0; i < MOST; i++)
        if (mappings[i].nbytes != 0 && address >= mappings[i].address &&
            address < mappings[i].address + mappings[i].nbytes)
            return &mappings[i];
    return NULL;
}

int fake_virtual_holds(int device, uint64_t address, uint64_t nbytes)
{
    const uint64_t base = fake_virtual_base();
    const uint64_t end = base + ((uint64_t)FAKE_VIRTUAL_GIB << 30);
    if (address < base || address > end || nbytes > end - address) return 0;
    for (uint64_t at = address; at < address + nbytes;) {
        const mapping_t *mapping = mapping_at(at);
        if (mapping == NULL || (mapping->access & 1u << device) == 0) return 0;
        at = mapping->address + mapping->nbytes;
    }
    return 1;
}

static void forget(memory_t *memory)
{
    if (memory->has_handle || memory->is_mapped) return;
    fake_memory_give(memory->device, memory->nbytes);
    memory->nbytes = 0;
}

CUresult fake_cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
                                            CUmemAllocationGranularity_flags option)
{
    int code = fake_enter(FAKE_cuMemGetAllocationGranularity);
    (void)option;
    if (code == 0 && prop->type != CU_MEM_ALLOCATION_TYPE_PINNED) code = CUDA_ERROR_INVALID_VALUE;
    *granularity = code == 0 ? GRANULARITY : 0;
    return (CUresult)fake_leave(code);
}

CUresult fake_cuMemAddressReserve(CUdeviceptr *out, size_t nbytes, size_t alignment,
                                  CUdeviceptr wish, unsigned long long flags)
{
    int code = fake_enter(FAKE_cuMemAddressReserve), place = -1;
    uint64_t at = (fake_virtual_base() + GRANULARITY - 1) / GRANULARITY * GRANULARITY;
    *out = 0;
    if (code == 0 && (nbytes == 0 || nbytes % GRANULARITY != 0 ||
                      (alignment & (alignment - 1)) != 0 || wish != 0 || flags != 0))
        code = CUDA_ERROR_INVALID_VALUE;
    if (code == 0 && alignment > GRANULARITY) at = (at + alignment - 1) / alignment * alignment;
    for (int i = 0; code == 0 && i < 64; i++) {
        if (reservations[i].nbytes == 0)
            place = place < 0 ? i : place;
        else if (overlaps(at, nbytes, reservations[i].address, reservations[i].nbytes)) {
            at = reservations[i].address + reservations[i].nbytes;
            i = -1; /* look at all of them again */
            place = -1;
        }
    }
    if (code == 0 &&
        (place < 0 || at + nbytes > fake_virtual_base() + ((uint64_t)FAKE_VIRTUAL_GIB << 30)))
        code = CUDA_ERROR_OUT_OF_MEMORY;
    if (code == 0) {
        reservations[place] = (reservation_t){ at, nbytes };
        *out = at;
    }
    return (CUresult)fake_leave(code);
}

CUresult fake_cuMemAddressFree(CUdeviceptr address, size_t nbytes)
{
    int code = fake_enter(FAKE_cuMemAddressFree), place = -1;
    for (int i = 0; i < 64; i++)
        if (reservations[i].nbytes == nbytes && reservations[i].address == address && nbytes != 0)
            place = i;
    for (int i = 0; i < MOST; i++)
        if (mappings[i].nbytes != 0 &&
            overlaps(address, nbytes, mappings[i].address, mappings[i].nbytes))
            place = -1;
    if (code == 0 && place < 0) {
        fake_count_misuse();
        code = CUDA_ERROR_INVALID_VALUE;
    }
    if (place >= 0) reservations[place].nbytes = 0;
    return (CUresult)fake_leave(code);
}

CUresult fake_cuMemCreate(CUmemGenericAllocationHandle *out, size_t nbytes,
                          const CUmemAllocationProp *prop, unsigned long long flags)
{
    int code = fake_enter(FAKE_cuMemCreate);
    const int device = prop->location.id;
    memory_t *memory = memories;
    *out = 0;
    if (code == 0 && (nbytes == 0 || nbytes % GRANULARITY != 0 || flags != 0 ||
                      prop->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
                      prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE || device < 0 ||
                      device >= FAKE_DEVICES))
        code = CUDA_ERROR_INVALID_VALUE;
    while (code == 0 && memory < memories + MOST && memory->nbytes != 0) memory++;
    if (code == 0 && (memory == memories + MOST || !fake_memory_take(device, nbytes)))
        code = CUDA_ERROR_OUT_OF_MEMORY;
    if (code == 0) {
        *memory = (memory_t){ nbytes, device, 1, 0 };
        *out = (CUmemGenericAllocationHandle)(memory - memories + 1);
    }
    return (CUresult)fake_leave(code);
}

static memory_t *memory_of(CUmemGenericAllocationHandle handle)
{
    memory_t *memory = handle >= 1 && handle <= MOST ? &memories[handle - 1] : NULL;
    if (memory != NULL && memory->nbytes != 0 && memory->has_handle) return memory;
    fake_count_misuse();
    return NULL;
}

CUresult fake_cuMemRelease(CUmemGenericAllocationHandle handle)
{
    int code = fake_enter(FAKE_cuMemRelease);
    memory_t *memory = memory_of(handle);
    if (memory == NULL) code = CUDA_ERROR_INVALID_VALUE;
    if (memory != NULL) {
        memory->has_handle = 0;
        forget(memory);
    }
    return (CUresult)fake_leave(code);
}

CUresult fake_cuMemMap(CUdeviceptr address, size_t nbytes, size_t offset,
                       CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    int code = fake_enter(FAKE_cuMemMap), is_reserved = 0;
    memory_t *memory = memory_of(handle);
    mapping_t *place = mappings;
    for (int i = 0; i < 64; i++)
        is_reserved |= reservations[i].nbytes != 0 && address >= reservations[i].address &&
                       address + nbytes <= reservations[i].address + reservations[i].nbytes;
    if (code == 0 && (memory == NULL || nbytes != memory->nbytes || offset != 0 || flags != 0 ||
                      !is_reserved || address % GRANULARITY != 0))
        code = CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; code == 0 && i < MOST; i++)
        if (mappings[i].nbytes != 0 &&
            overlaps(address, nbytes, mappings[i].address, mappings[i].nbytes))
            code = CUDA_ERROR_INVALID_VALUE;
    while (code == 0 && place < mappings + MOST && place->nbytes != 0) place++;
    if (code == 0 && place == mappings + MOST) code = CUDA_ERROR_OUT_OF_MEMORY;
    if (code == 0) {
        *place = (mapping_t){ address, nbytes, memory, 0 };
        memory->is_mapped = 1;
        fake_virtual_clear(address, nbytes);
    }
    return (CUresult)fake_leave(code);
}

CUresult fake_cuMemSetAccess(CUdeviceptr address, size_t nbytes, const CUmemAccessDesc *desc,
                             size_t count)
{
    int code = fake_enter(FAKE_cuMemSetAccess);
    unsigned access = 0;
    for (size_t i = 0; code == 0 && i < count; i++) {
        if (desc[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || desc[i].location.id < 0 ||
            desc[i].location.id >= FAKE_DEVICES ||
            desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
            code = CUDA_ERROR_INVALID_VALUE;
        else
            access |= 1u << desc[i].location.id;
    }
    for (uint64_t at = address; code == 0 && at < address + nbytes;) {
        mapping_t *mapping = mapping_at(at);
        if (mapping == NULL || mapping->address != at || at + mapping->nbytes > address + nbytes) {
            code = CUDA_ERROR_INVALID_VALUE;
            break;
        }
        mapping->access = access;
        at += mapping->nbytes;
    }
    return (CUresult)fake_leave(code);
}

CUresult fake_cuMemUnmap(CUdeviceptr address, size_t nbytes)
{
    int code = fake_enter(FAKE_cuMemUnmap);
    mapping_t *mapping = mapping_at(address);
    if (mapping == NULL || mapping->address != address || mapping->nbytes != nbytes) {
        fake_count_misuse();
        return (CUresult)fake_leave(CUDA_ERROR_INVALID_VALUE);
    }
    mapping->memory->is_mapped = 0;
    forget(mapping->memory);
    mapping->nbytes = 0;
    return (CUresult)fake_leave(code);
}
