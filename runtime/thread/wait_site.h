/* Wait sites: every place that makes a request, or the host, wait for another request has a name
 * and a number here. A test may drop one (fy__wait_dropped) and must then detect wrong bytes: a
 * site that can be dropped undetected is dead code or an untested rule (tests/mutation/). Only
 * tests set it, and only on simulated devices. In release builds no wait can be dropped
 * (CMake's FERRY_WAIT_SITES).
 * Not here: how a wait works (hazard.h, stream.h). */
#ifndef FERRY_RUNTIME_WAIT_SITE_H_
#define FERRY_RUNTIME_WAIT_SITE_H_

#include <stdbool.h>

/* Name, and the fault without it. */
#define FY__WAIT_SITE_LIST(X)                                                                     \
    X(DISPATCH_READ, "an op reads bytes that another stream still writes")                        \
    X(DISPATCH_WRITE, "an op writes bytes that another stream still reads or writes")             \
    X(DISPATCH_WORKSPACE, "an op's scratch memory is still used by another op")                   \
    X(GRAPH_READ, "a replay reads bytes that another stream still writes")                        \
    X(GRAPH_WRITE, "a replay writes bytes that another stream, or an earlier replay, still uses") \
    X(GRAPH_MEMORY, "a graph's memory is freed while a replay, or a reader, still uses it")       \
    X(GRAPH_INHERITED, "a graph reuses memory that a request still uses")                         \
    X(CONVERT_READ, "a conversion reads bytes that another request still writes")                 \
    X(CONVERT_WRITE, "a conversion writes bytes that another request still uses")                 \
    X(UPLOAD_WRITE, "an upload overwrites bytes that an op still uses")                           \
    X(COALESCE_WRITE, "a packed upload overwrites bytes that an op still uses")                   \
    X(COALESCE_SCRATCH, "a packed run overwrites memory that another request still uses")         \
    X(QUEUE_JOB, "a queued transfer starts before the requests on which it depends are done")     \
    X(RING_SLOT, "the host refills a slot of the ring before the device has emptied it")          \
    X(RING_BORROWED, "a download takes a slot of the ring that an upload still reads")            \
    X(DOWNLOAD_READ, "a download reads bytes that an op still writes")                            \
    X(DOWNLOAD_ARRIVE, "a download returns its bytes before they arrived")                        \
    X(DOWNLOAD_TRY, "a poll of a download returns its bytes before they arrived")                 \
    X(DOWNLOAD_INTO,                                                                              \
      "a download into host memory returns, or empties a slot, before its bytes arrived")         \
    X(FILE_WRITE, "a file's bytes overwrite bytes that an op still uses")                         \
    X(FILE_READ, "a download to a file reads bytes that an op still writes")                      \
    X(FILE_ARRIVE, "a slot is written to a file before its bytes arrived")                        \
    X(PREFETCH_ROOM,                                                                              \
      "a batch is filled while the upload of an earlier one still reads its buffer")              \
    X(PEER_READ, "a peer transfer reads bytes that an op still writes")                           \
    X(PEER_WRITE, "a peer transfer overwrites bytes that an op of the destination still uses")    \
    X(PEER_FAULT, "a tensor is sent to another device before its faults are known")               \
    X(COLLECT_READ, "a packed download collects tensors that an op still writes")                 \
    X(COLLECT_TABLE, "a packed download uses its table before the table arrived")                 \
    X(COLLECT_SCRATCH, "a packed download overwrites memory that another request still uses")     \
    X(FAULT_WINDOW, "a fault flag is cleared and reused before its last request has raised it")   \
    X(NATIVE_USE, "the caller's native work on a stream uses bytes that other streams still use") \
    X(STREAM_WAIT, "a stream that waits for a ticket starts before the ticket's request is done") \
    X(TICKET, "a ticket's wait returns before its request is done")                               \
    X(DRAIN, "a wait for the device returns before its requests are done")                        \
    X(TEARDOWN, "a device is closed before its requests are done")                                \
    X(READERS_SHARE,                                                                              \
      "two streams read the same bytes, and a later write waits for only one of them")            \
    X(BLOCK_GIVEN_BACK, "a block is free for all streams while a request still uses it")          \
    X(BLOCK_INHERITED,                                                                            \
      "a tensor in a reused block does not wait for a request that still uses it")                \
    X(PENDING_POLL, "a pending block becomes free before its stream has reached the point")       \
    X(PENDING_SEVERAL, "a block that several streams use waits for only one of them")             \
    X(PENDING_JOINED,                                                                             \
      "two adjacent pending blocks are merged, and the result waits for only one of them")        \
    X(PENDING_SPLIT, "the rest of a split pending block does not wait")                           \
    X(PENDING_STRETCH, "adjacent blocks that are allocated as one wait for only the last one")    \
    X(POOL_SYNC,                                                                                  \
      "the allocator reports that memory ran out instead of waiting for pending blocks")          \
    X(DELETER, "a deleter runs while a request still uses the caller's memory")                   \
    X(DELETER_LATER, "a deferred deleter runs before the request is done")                        \
    X(DELETER_LAST,                                                                               \
      "the close of a device does not wait for its last use, and deleters never run")             \
    X(UNPIN, "memory that was page-locked in place is unlocked while a transfer still uses it")   \
    X(BORROWED, "the host writes bytes that an upload still reads in place")                      \
    X(TICKET_POLL, "a ticket reports its request as done too early")                              \
    X(STREAM_SLOT,                                                                                \
      "a closed stream's slot is reused, and its tickets are done, while its work runs")

typedef enum fy__wait_site {
    FY__WAIT_NONE,
#define X(name, text) FY__WAIT_##name,
    FY__WAIT_SITE_LIST(X)
#undef X
        FY__WAIT_SITE_COUNT
} fy__wait_site_t;

/* "RING_SLOT", and the text of the list. */
const char *fy__wait_site_name(fy__wait_site_t site);
const char *fy__wait_site_text(fy__wait_site_t site);

#ifdef FERRY_WAIT_SITES
/* The site that a test has dropped; else FY__WAIT_NONE. */
extern fy__wait_site_t fy__wait_dropped;
static inline bool fy__wait_drops(fy__wait_site_t site)
{
    return __builtin_expect(fy__wait_dropped == site, 0) && site != FY__WAIT_NONE;
}
#else
static inline bool fy__wait_drops(fy__wait_site_t site)
{
    (void)site;
    return false;
}
#endif

#endif
