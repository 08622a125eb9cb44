/* The kinds of events of an event file. Needs nothing of Ferry: the commands that read a file have
 * the same list. Not here: the keys of each kind (docs/internals/events.md). */
#ifndef FERRY_RUNTIME_EVENT_LIST_H_
#define FERRY_RUNTIME_EVENT_LIST_H_

/* X(kind, name in the file) */
#define FY__EVENT_LIST(X)             \
    X(SCOPE_BEGIN, scope_begin)       \
    X(SCOPE_END, scope_end)           \
    X(OP, op)                         \
    X(OPERANDS, operands)             \
    X(LAUNCH, launch)                 \
    X(TRANSFER, transfer)             \
    X(COPY, copy)                     \
    X(COLLECTIVE, collective)         \
    X(EXCHANGE, exchange)             \
    X(COLLECTIVE_RAN, collective_ran) \
    X(STARTED, started)               \
    X(WAIT, wait)                     \
    X(MAP, map)                       \
    X(SYNC, sync)                     \
    X(THROTTLE, throttle)             \
    X(ARRIVED, arrived)               \
    X(REFUSAL, refusal)               \
    X(FAULT, fault)                   \
    X(DEVICE, device)                 \
    X(STREAM, stream)                 \
    X(STORAGE, storage)               \
    X(NAMED, named)                   \
    X(POOL, pool)                     \
    X(SEGMENT_ALLOC, segment_alloc)   \
    X(SEGMENT_FREE, segment_free)     \
    X(BLOCK_ALLOC, block_alloc)       \
    X(BLOCK_FREE, block_free)         \
    X(BLOCKS_REACHED, blocks_reached) \
    X(DEVICE_ALLOC, device_alloc)

#endif
