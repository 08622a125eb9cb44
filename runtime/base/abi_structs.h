/* libferry's structs with a struct_size that callers make: one row each. Next: abi.h. */
#ifndef FERRY_RUNTIME_BASE_ABI_STRUCTS_H_
#define FERRY_RUNTIME_BASE_ABI_STRUCTS_H_

#include "runtime/base/abi.h"

/* X(name, NAME, last): fy_<name>_t with FY_<NAME>_INIT; `last` is the last field of the first
 * version, and stays when fields are added behind it. */
#define FY__ABI_OPTIONS(X)                                    \
    X(communicator_options, COMMUNICATOR_OPTIONS, is_counted) \
    X(device_options, DEVICE_OPTIONS, free_pinned)            \
    X(stream_options, STREAM_OPTIONS, native)                 \
    X(transfer_options, TRANSFER_OPTIONS, site)               \
    X(guard_options, GUARD_OPTIONS, memory_nbytes)            \
    X(plan_options, PLAN_OPTIONS, user)                       \
    X(pool_options, POOL_OPTIONS, keeps_segments)             \
    X(prefetch_options, PREFETCH_OPTIONS, threads)            \
    X(backward_options, BACKWARD_OPTIONS, accumulate)         \
    X(attach_options, ATTACH_OPTIONS, destroy)                \
    X(recompute_options, RECOMPUTE_OPTIONS, destroy)          \
    X(gradcheck_options, GRADCHECK_OPTIONS, seed)             \
    X(op_info, OP_INFO, dst)                                  \
    X(op_def, OP_DEF, user)
#define FY__ABI_FACTS(X)                                \
    X(device_info, DEVICE_INFO, numerics)               \
    X(device_clock, DEVICE_CLOCK, download_ns)          \
    X(plugin_info, PLUGIN_INFO, reason)                 \
    X(tensor_info, TENSOR_INFO, name)                   \
    X(graph_info, GRAPH_INFO, reason)                   \
    X(ledger_totals, LEDGER_TOTALS, throttle_ns)        \
    X(memory_stats, MEMORY_STATS, peak_by_category)     \
    X(memory_alloc_stats, MEMORY_ALLOC_STATS, verdicts) \
    X(plan, PLAN, verdict)                              \
    X(tape_info, TAPE_INFO, is_recording)               \
    X(autocast_info, AUTOCAST_INFO, reused)             \
    X(gradcheck_result, GRADCHECK_RESULT, numeric)

FY__ABI_OPTIONS(FY__ABI_DECLARATION)
FY__ABI_FACTS(FY__ABI_DECLARATION)

#endif
