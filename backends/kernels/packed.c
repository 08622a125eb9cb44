/* Packed runs: many small pieces lie in one run of bytes with a table that says where each belongs;
 * they are spread (SCATTER) or collected (GATHER). Every address is host memory. Not here: whose
 * table it is and who may read it (transfer/coalesce.c, backend.h). */
#include "backends/kernels/family.h"

#include <string.h>

enum { SERIAL_BYTES = 1 << 19 };

typedef struct packed {
    const fy_packed_entry_t *table;
    char *run;
    int gather;
} packed_t;

static void move_piece(const void *context, int64_t i)
{
    const packed_t *packed = (const packed_t *)context;
    const fy_packed_entry_t *entry = &packed->table[i];
    char *piece = (char *)(uintptr_t)entry->address, *in_run = packed->run + entry->offset;
    if (packed->gather)
        memcpy(in_run, piece, (size_t)entry->nbytes);
    else
        memcpy(piece, in_run, (size_t)entry->nbytes);
}

fy_status_t fy__run_packed(const fy_launch_t *launch)
{
    const fy_packed_t *attrs = (const fy_packed_t *)launch->attrs;
    const packed_t packed = {
        .table = (const fy_packed_entry_t *)((uintptr_t)launch->src[0].data + attrs->table_offset),
        .run = (char *)(launch->op == FY_LAUNCH_GATHER ? launch->dst : launch->src)[0].data,
        .gather = launch->op == FY_LAUNCH_GATHER,
    };
    fy__for_each(attrs->count, fy__threads_for((int64_t)launch->nelem, SERIAL_BYTES), move_piece,
                 &packed);
    return FY_STATUS_OK;
}
