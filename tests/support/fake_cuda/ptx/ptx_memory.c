/* Memory of the PTX machine: where an address leads, and what the checks say about it. */
#include <string.h>

#include "tests/support/fake_cuda/ptx/machine.h"

/* Pages of global memory that were used last, by their number. A page that allocations cover in
 * part is asked for at each access. */
enum { SLOTS = 1024 };
static struct slot {
    uint64_t number, launch; /* 0: empty */
    char *bytes;
    ptx_page_t *page;
} slots[SLOTS];

static uint64_t launch_number;

/* Pieces that cp.async has read, and whose threads have not waited for them. */
enum { PIECE = 16, MOST_PENDING = 1 << 14 };
static struct pending {
    uint32_t thread;
    uint64_t to;
    unsigned char bytes[PIECE];
} pending[MOST_PENDING];
static uint32_t npending;

void ptx_memory_begin(void)
{
    launch_number++;
    npending = 0;
}

static void *global_bytes(ptx_machine_t *m, uint64_t address, uint32_t nbytes, uint32_t thread,
                          unsigned flags)
{
    const ptx_launch_t *launch = m->launch;
    const uint64_t number = address / PTX_PAGE;
    struct slot *slot = &slots[number % SLOTS];
    if (slot->number != number || slot->launch != launch_number)
        *slot = (struct slot){ number, launch_number,
                               launch->translate(launch->device, number * PTX_PAGE, PTX_PAGE),
                               ptx_checks_page(address) };
    char *bytes = slot->bytes != NULL ? slot->bytes + address % PTX_PAGE
                                      : launch->translate(launch->device, address, nbytes);
    if (bytes == NULL) {
        ptx_fail(m, PTX_OUTSIDE, thread, "%s %u bytes at 0x%llx, outside any allocation",
                 (flags & PTX_WRITES) != 0 ? "writes" : "reads", nbytes,
                 (unsigned long long)address);
        return NULL;
    }
    if ((flags & PTX_VOLATILE) == 0 &&
        !ptx_checks_global(m, slot->page, address, nbytes, thread, (flags & PTX_WRITES) != 0))
        return NULL;
    return bytes;
}

/* Bytes of an array that only this launch has; one that may not be written has length 0 then. */
static void *array_bytes(ptx_machine_t *m, const char *name, const void *array,
                         uint64_t array_nbytes, uint64_t at, uint32_t nbytes, uint32_t thread)
{
    if (at < array_nbytes && nbytes <= array_nbytes - at) return (char *)array + at;
    ptx_fail(m, PTX_OUTSIDE, thread, "uses %u bytes at %llu of %llu bytes of %s", nbytes,
             (unsigned long long)at, (unsigned long long)array_nbytes, name);
    return NULL;
}

void *ptx_reach(ptx_machine_t *m, unsigned space, uint64_t address, uint32_t nbytes,
                uint32_t thread, unsigned flags)
{
    const ptx_kernel_t *kernel = m->kernel;
    const uint64_t in_window = address & (PTX_WINDOW(1) - 1);
    const int is_write = (flags & PTX_WRITES) != 0;
    if (address % nbytes != 0) {
        ptx_fail(m, PTX_MISALIGNED, thread, "uses %u bytes at 0x%llx", nbytes,
                 (unsigned long long)address);
        return NULL;
    }
    const uint64_t window = PTX_WINDOW_OF(address);
    const int is_generic = space == PTX_GENERIC;
    if (window == PTX_WINDOW_DATA && (is_generic || space == PTX_GLOBAL))
        return array_bytes(m, "the module's arrays", kernel->data,
                           is_write ? 0 : kernel->data_nbytes, in_window, nbytes, thread);
    if (is_generic)
        space = window == PTX_WINDOW_SHARED  ? PTX_SHARED
                : window == PTX_WINDOW_LOCAL ? PTX_LOCAL
                : window == PTX_WINDOW_PARAM ? PTX_PARAM
                                             : PTX_GLOBAL;
    if (space == PTX_GLOBAL) return global_bytes(m, address, nbytes, thread, flags);
    const uint64_t at = is_generic ? in_window : address;
    if (space == PTX_LOCAL)
        return array_bytes(m, "local memory", m->local + thread * kernel->local_nbytes,
                           kernel->local_nbytes, at, nbytes, thread);
    if (space == PTX_PARAM)
        return array_bytes(m, "arguments", m->launch->arguments,
                           is_write ? 0 : m->launch->arguments_nbytes, at, nbytes, thread);
    void *bytes =
        array_bytes(m, "shared memory", m->shared, kernel->shared_nbytes, at, nbytes, thread);
    if (bytes == NULL || !ptx_checks_shared(m, at, nbytes, thread, is_write)) return NULL;
    return bytes;
}

/* A register may be wider than the type: the value is extended. */
static inline uint64_t read_bytes(const unsigned char *bytes, unsigned nbytes, int is_signed)
{
    uint64_t u64;
    uint32_t u32;
    uint16_t u16;
    switch (nbytes) {
    case 1: return is_signed ? (uint64_t)(int8_t)*bytes : *bytes;
    case 2: memcpy(&u16, bytes, sizeof u16); return is_signed ? (uint64_t)(int16_t)u16 : u16;
    case 4: memcpy(&u32, bytes, sizeof u32); return is_signed ? (uint64_t)(int32_t)u32 : u32;
    default: memcpy(&u64, bytes, sizeof u64); return u64;
    }
}

void ptx_load_or_store(ptx_machine_t *m, ptx_warp_t *warp, const ptx_instruction_t *i,
                       uint32_t mask)
{
    const int is_store = i->code == PTX_ST, is_signed = ptx_type_is_signed(i->type);
    const ptx_operand_t *registers = &i->operands[is_store];
    const uint64_t *addresses = ptx_row(m, warp, i->operands[!is_store].row);
    const unsigned nbytes = ptx_type_nbytes(i->type), all = nbytes * i->vector;
    const unsigned flags = (i->flags & PTX_VOLATILE) | (is_store ? PTX_WRITES : 0u);
    uint64_t *rows[PTX_VECTOR];
    for (uint32_t k = 0; k < i->vector; k++)
        rows[k] = ptx_row(m, warp,
                          registers->count == 0 ? registers->row
                                                : m->kernel->lists[(uint32_t)registers->row + k]);
    if (m->launch->counts != NULL)
        ptx_count_access(&m->counts, i->space, addresses, i->offset, mask, all, is_store);
    for (uint32_t l = 0; l < PTX_LANES; l++) {
        if ((mask >> l & 1) == 0) continue;
        unsigned char *bytes =
            ptx_reach(m, i->space, addresses[l] + (uint64_t)i->offset, all, warp->first + l, flags);
        if (bytes == NULL) return;
        for (uint32_t k = 0; k < i->vector; k++)
            if (is_store)
                memcpy(bytes + nbytes * k, &rows[k][l], nbytes); /* little-endian */
            else
                rows[k][l] = read_bytes(bytes + nbytes * k, nbytes, is_signed);
    }
}

/* A piece of fewer bytes than 16 is completed by zeros. Until the thread has waited, shared memory
 * there has any contents, and no other thread may use it. */
static int begin_copy(ptx_machine_t *m, uint64_t to, uint64_t from, uint32_t nbytes,
                      uint32_t thread)
{
    struct pending piece = { .thread = thread, .to = to };
    void *place = ptx_reach(m, PTX_SHARED, to, PIECE, thread, PTX_WRITES);
    const void *bytes =
        nbytes == 0 || place == NULL ? NULL : ptx_reach(m, PTX_GLOBAL, from, PIECE, thread, 0);
    if (place == NULL || (bytes == NULL && nbytes > 0)) return 0;
    if (nbytes > PIECE || npending == MOST_PENDING) {
        ptx_fail(m, PTX_UNKNOWN, thread, "copies %u bytes, after %u pieces", nbytes, npending);
        return 0;
    }
    memset(place, 0xA5, PIECE);
    if (nbytes > 0) memcpy(piece.bytes, bytes, nbytes);
    pending[npending++] = piece;
    return 1;
}

static void wait_for_copies(ptx_machine_t *m, const ptx_warp_t *warp, uint32_t mask)
{
    uint32_t kept = 0;
    for (uint32_t k = 0; k < npending; k++) {
        const struct pending *piece = &pending[k];
        const uint32_t lane = piece->thread - warp->first;
        if (lane >= PTX_LANES || (mask >> lane & 1) == 0) {
            pending[kept++] = *piece;
            continue;
        }
        void *place = ptx_reach(m, PTX_SHARED, piece->to, PIECE, piece->thread, PTX_WRITES);
        if (place == NULL) return;
        memcpy(place, piece->bytes, PIECE);
    }
    npending = kept;
}

void ptx_copy_async(ptx_machine_t *m, ptx_warp_t *warp, const ptx_instruction_t *i, uint32_t mask)
{
    if ((i->flags & PTX_WAIT) != 0) {
        wait_for_copies(m, warp, mask);
        return;
    }
    const uint64_t *to = ptx_row(m, warp, i->operands[0].row),
                   *from = ptx_row(m, warp, i->operands[1].row),
                   *nbytes = ptx_row(m, warp, i->operands[3].row);
    uint32_t reads = 0;
    for (uint32_t l = 0; l < PTX_LANES; l++) {
        if ((mask >> l & 1) == 0) continue;
        if ((uint32_t)nbytes[l] > 0) reads |= 1u << l;
        if (!begin_copy(m, to[l], from[l], (uint32_t)nbytes[l], warp->first + l)) return;
    }
    if (m->launch->counts == NULL) return;
    ptx_count_access(&m->counts, PTX_GLOBAL, from, 0, reads, PIECE, 0);
    ptx_count_access(&m->counts, PTX_SHARED, to, 0, mask, PIECE, 1);
}
