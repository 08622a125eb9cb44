/* The table of orders, and what a request is: running it, copying it, what it touches.
 * Not here: when it runs (queue.c), times. */
#include "backends/sim/order.h"

#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backends/executed.h"
#include "backends/kernels/kernels.h"
#include "backends/kernels/threads.h"
#include "backends/sim/sim.h"

static const fy__sim_order_t orders[] = {
    { "eager", false, false },
    { "lazy", true, false },
    { "random", true, true },
};

const fy__sim_order_t *fy__sim_order_at(size_t index)
{
    return index < sizeof(orders) / sizeof(orders[0]) ? &orders[index] : NULL;
}

const fy__sim_order_t *fy__sim_order_find(const char *name)
{
    for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++)
        if (strcmp(orders[i].name, name) == 0) return &orders[i];
    return NULL;
}

/* ---- running ---- */

/* Zeros without pages: page-locked memory of a device without numerics is counted, not held. Whole
 * pages are dropped, which makes them zero; those of a mapped file, which a program page-locks
 * itself, have the file's bytes then. Others are written. */
static void clear(char *dst, uint64_t nbytes, bool is_pinned)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    const uint64_t head = -(uintptr_t)dst & (page - 1);
    const uint64_t pages = nbytes > head ? (nbytes - head) & ~(page - 1) : 0;
    if (!is_pinned || !pages || madvise(dst + head, pages, MADV_DONTNEED) != 0) {
        memset(dst, 0, nbytes);
        return;
    }
    memset(dst, 0, head);
    memset(dst + head + pages, 0, nbytes - head - pages);
}

/* An end without bytes reads as zero and ignores writes. */
static void move(const fy__sim_request_t *request)
{
    void *dst = request->copy.dst;
    if (!dst) return;
    if (request->copy.src)
        memmove(dst, request->copy.src, request->copy.nbytes);
    else
        clear(dst, request->copy.nbytes, request->copy.is_pinned);
}

static fy_status_t run_copy(const fy__sim_request_t *request)
{
    if (!request->copy.fails) {
        move(request);
        fy__executed_count(request->copy.kind, request->copy.nbytes);
        return FY_STATUS_OK;
    }
    if (request->copy.dst) memset(request->copy.dst, FY__SIM_GARBAGE, request->copy.nbytes);
    fy__executed_count_failed(request->copy.kind, request->copy.nbytes);
    if (!request->copy.fault)
        return FY__SIM_FAIL(
            FY_STATUS_INTERNAL,
            "%s: a copy fails, as the device's faults= says, and has no flag to raise",
            request->dev->name);
    __atomic_store_n(request->copy.fault, 1, __ATOMIC_RELEASE);
    return FY_STATUS_OK;
}

void fy__sim_request_drop(const fy__sim_request_t *request)
{
    if (request->kind == FY__SIM_COPY)
        fy__executed_count_failed(request->copy.kind, request->copy.nbytes);
}

/* Packed runs. The table is in the device's memory and has device addresses, so both are known only
 * when the request runs. Each address is looked up then, and one outside the live blocks fails the
 * request. Where copies can fail, a failed copy leaves a table of garbage: then no byte is touched,
 * and the copy's flag reports the failure to dependent requests. */
static bool has_come(const fy__sim_device_t *dev, const fy_packed_entry_t *table, uint32_t count)
{
    const unsigned char *bytes = (const void *)table;
    if (!fy__sim_script_has(&dev->script, FY__SIM_FAULT_COPY)) return true;
    for (size_t i = 0; i < count * sizeof *table; i++)
        if (bytes[i] != FY__SIM_GARBAGE) return true;
    return false;
}

/* `launch`: the request's own, its descriptors point at bytes. */
static fy_status_t run_packed(fy__sim_device_t *dev, const fy_launch_t *launch)
{
    const bool gather = launch->op == FY_LAUNCH_GATHER;
    const fy_packed_t *attrs = launch->attrs;
    const fy_desc_t *run = gather ? launch->dst : launch->src;
    const fy_packed_entry_t *table =
        (const void *)((const char *)launch->src[0].data + attrs->table_offset);
    if (!has_come(dev, table, attrs->count)) return FY_STATUS_OK;
    for (uint32_t i = 0; i < attrs->count; i++) {
        void *piece;
        if (table[i].offset > (uint64_t)run->dims[0] ||
            table[i].nbytes > (uint64_t)run->dims[0] - table[i].offset)
            return FY__SIM_FAIL(FY_STATUS_INVALID_ARGUMENT,
                                "%s: piece %u ends %" PRIu64 " bytes into a run of %" PRId64,
                                dev->name, i, table[i].offset + table[i].nbytes, run->dims[0]);
        FY_TRY(fy__sim_memory_find(
            dev, (fy__sim_use_t){ gather ? "gather packed" : "scatter packed", "piece", (int)i },
            (const void *)(uintptr_t)table[i].address, table[i].nbytes, &piece));
        char *in_run = (char *)run->data + table[i].offset;
        if (gather)
            memcpy(in_run, piece, table[i].nbytes);
        else
            memcpy(piece, in_run, table[i].nbytes);
    }
    return FY_STATUS_OK;
}

static fy_status_t run_launch(fy__sim_device_t *dev, const fy_launch_t *launch)
{
    if (!dev->numerics) return FY_STATUS_OK;
    if (fy__sim_is_scatter(launch)) return run_packed(dev, launch);
    if (launch->kernel) return launch->kernel(launch, NULL);
    if (dev->threads == FY__THREADS_INHERIT) return fy__kernels_launch(fy__sim_host, launch);
    const int before = fy__threads_override(dev->threads);
    const fy_status_t status = fy__kernels_launch(fy__sim_host, launch);
    (void)fy__threads_override(before);
    return status;
}

fy_status_t fy__sim_request_run(const fy__sim_request_t *request)
{
    switch (request->kind) {
    case FY__SIM_COPY: return run_copy(request);
    case FY__SIM_FILL:
        if (request->fill.dst) memset(request->fill.dst, request->fill.value, request->fill.nbytes);
        break;
    case FY__SIM_LAUNCH: return run_launch(request->dev, &request->launch);
    }
    return FY_STATUS_OK;
}

/* ---- what it is called ---- */

const char *fy__sim_launch_name(const fy_launch_t *launch)
{
    static const char *const names[] = {
#define X(name, text) #text,
        FY_OP_LIST(X)
#undef X
    };
    if (fy__sim_is_scatter(launch)) return "a packed transfer";
    if (launch->op == FY_LAUNCH_CHAIN) return "a chain";
    return launch->op < FY_OP_BUILTIN_COUNT ? names[launch->op] : "a registered op";
}

const char *fy__sim_request_name(const fy__sim_request_t *request)
{
    static const char *const copies[] = { "upload", "download", "local copy", "peer copy" };
    if (request->kind == FY__SIM_COPY) return copies[request->copy.kind];
    return request->kind == FY__SIM_FILL ? "fill" : fy__sim_launch_name(&request->launch);
}

/* ---- what it touches ---- */

static uint64_t element_nbytes(int32_t dtype)
{
    static const uint8_t sizes[] = {
#define X(name, text, nbytes, is_float) nbytes,
        FY_DTYPE_LIST(X)
#undef X
    };
    return dtype >= 0 && dtype < FY_DTYPE_COUNT ? sizes[dtype] : 0;
}

uint64_t fy__sim_desc_extent(const fy_desc_t *desc, uint64_t *out_before)
{
    uint64_t size = element_nbytes(desc->dtype), before = 0, after = 0;
    for (int32_t i = 0; i < desc->rank; i++) {
        if (desc->dims[i] == 0) return 0;
        int64_t reach = (desc->dims[i] - 1) * desc->strides[i];
        if (reach < 0)
            before += (uint64_t)-reach;
        else
            after += (uint64_t)reach;
    }
    *out_before = before * size;
    return (before + after + 1) * size;
}

/* The range asked about: addresses, and the bytes behind them. */
typedef struct area {
    uintptr_t begin, bytes;
    uint64_t nbytes;
} area_t;

static bool overlap(uintptr_t a, uint64_t a_nbytes, uintptr_t b, uint64_t b_nbytes)
{
    return a_nbytes > 0 && b_nbytes > 0 && (a < b ? b - a < a_nbytes : a - b < b_nbytes);
}

static bool in_area(const area_t *area, const void *address, uint64_t nbytes)
{
    if (!address) return false;
    return overlap((uintptr_t)address, nbytes, area->begin, area->nbytes) ||
           (area->bytes && overlap((uintptr_t)address, nbytes, area->bytes, area->nbytes));
}

static bool desc_in_area(const area_t *area, const fy_desc_t *desc)
{
    uint64_t before = 0, nbytes = fy__sim_desc_extent(desc, &before);
    return nbytes > 0 && in_area(area, (const char *)desc->data - before, nbytes);
}

bool fy__sim_request_touches(const fy__sim_request_t *request, const void *begin, uint64_t nbytes,
                             const void *bytes)
{
    const area_t area = { (uintptr_t)begin, (uintptr_t)bytes, nbytes };
    const fy_launch_t *launch = &request->launch;
    switch (request->kind) {
    case FY__SIM_COPY:
        return in_area(&area, request->copy.dst_address, request->copy.nbytes) ||
               in_area(&area, request->copy.src_address, request->copy.nbytes) ||
               in_area(&area, request->copy.fault, sizeof(*request->copy.fault));
    case FY__SIM_FILL: return in_area(&area, request->fill.dst_address, request->fill.nbytes);
    case FY__SIM_LAUNCH: break;
    }
    for (int i = 0; i < launch->ndst; i++)
        if (desc_in_area(&area, &launch->dst[i])) return true;
    for (int i = 0; i < launch->nsrc; i++)
        if (desc_in_area(&area, &launch->src[i])) return true;
    return in_area(&area, launch->workspace, launch->workspace_nbytes) ||
           in_area(&area, launch->fault, sizeof(*launch->fault));
}

/* ---- a copy of the arguments ---- */

uint64_t fy__sim_request_extra_nbytes(const fy__sim_request_t *request)
{
    if (request->kind != FY__SIM_LAUNCH) return 0;
    const fy_launch_t *launch = &request->launch;
    return ((uint64_t)launch->ndst + launch->nsrc) * sizeof(fy_desc_t) + launch->attrs_nbytes;
}

void fy__sim_request_copy(fy__sim_request_t *dst, void *room, const fy__sim_request_t *request)
{
    *dst = *request;
    if (request->kind != FY__SIM_LAUNCH) return;
    const fy_launch_t *launch = &request->launch;
    fy_desc_t *descs = room;
    if (launch->ndst > 0) memcpy(descs, launch->dst, launch->ndst * sizeof(*descs));
    if (launch->nsrc > 0) memcpy(descs + launch->ndst, launch->src, launch->nsrc * sizeof(*descs));
    dst->launch.dst = descs;
    dst->launch.src = descs + launch->ndst;
    if (launch->attrs_nbytes > 0) {
        void *attrs = descs + launch->ndst + launch->nsrc;
        memcpy(attrs, launch->attrs, launch->attrs_nbytes);
        dst->launch.attrs = attrs;
    }
}
