/* Packed runs on a simulated device. The table is in the device's memory and has device addresses,
 * so both are known only when the request runs. Each address is looked up then, and one outside the
 * live blocks fails the request.
 * Where copies can fail, a failed copy leaves a table of garbage: then no byte is touched, and the
 * copy's flag reports the failure to dependent requests.
 * Not here: the time of the run (order.c), the format (backend.h). */
#include "backends/sim/scatter.h"

#include <inttypes.h>
#include <string.h>

#include "backends/sim/sim.h"

static bool has_come(const fy__sim_device_t *dev, const fy_packed_entry_t *table, uint32_t count)
{
    const unsigned char *bytes = (const void *)table;
    if (!fy__sim_script_has(&dev->script, FY__SIM_FAULT_COPY)) return true;
    for (size_t i = 0; i < count * sizeof *table; i++)
        if (bytes[i] != FY__SIM_GARBAGE) return true;
    return false;
}

fy_status_t fy__sim_scatter_run(fy__sim_device_t *dev, const fy_launch_t *launch)
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
