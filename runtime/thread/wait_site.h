/* Where Ferry waits: every place that makes one request, or the host, wait for another has a name
 * and a number here. A test may drop one (fy__wait_dropped) and must then see wrong bytes: a site
 * that can be dropped unnoticed is dead code or an untested rule (tests/mutation/). Nothing but
 * tests sets it, and only simulated devices are ever run that way.
 * Not here: how waiting is done (hazard.h, stream.h). */
#ifndef FERRY_RUNTIME_WAIT_SITE_H_
#define FERRY_RUNTIME_WAIT_SITE_H_

#include <stdbool.h>

/* Name, and what goes wrong without it. */
#define FY__WAIT_SITE_LIST(X)                                                                      \
    X(DISPATCH_READ, "an op reads bytes that another stream still writes")                         \
    X(DISPATCH_WRITE, "an op writes bytes that another stream still reads or writes")              \
    X(DISPATCH_WORKSPACE, "an op's scratch is still another op's")                                 \
    X(GRAPH_READ, "a replay reads bytes that another stream still writes")                         \
    X(GRAPH_WRITE, "a replay writes bytes that another stream, or an earlier replay, still uses")  \
    X(GRAPH_MEMORY, "a graph's memory is free while a replay, or a reader, still uses it")         \
    X(GRAPH_INHERITED, "a graph takes memory over and forgets that a request still uses it")       \
    X(CONVERT_READ, "a conversion reads bytes that are still written")                             \
    X(CONVERT_WRITE, "a conversion writes bytes that are still used")                              \
    X(UPLOAD_WRITE, "an upload overwrites bytes that an op still uses")                            \
    X(COALESCE_WRITE, "a packed upload is spread over bytes that an op still uses")                \
    X(COALESCE_SCRATCH, "a packed run lands in memory that another request still uses")            \
    X(QUEUE_JOB, "a transfer that stood in its queue starts before what it depends on is done")    \
    X(RING_SLOT, "the host refills a slot of the ring before the device has emptied it")           \
    X(RING_BORROWED, "a download takes a slot of the ring that an upload still reads")             \
    X(DOWNLOAD_READ, "a download reads bytes that an op still writes")                             \
    X(DOWNLOAD_ARRIVE, "a download's bytes are handed out before they came")                       \
    X(DOWNLOAD_TRY, "a look for a download's bytes finds them before they came")                   \
    X(DOWNLOAD_INTO,                                                                               \
      "a download into host memory returns, or empties a slot, before its bytes came")             \
    X(FILE_WRITE, "a file's bytes overwrite what an op still uses")                                \
    X(FILE_READ, "bytes on their way to a file are read while an op still writes them")            \
    X(FILE_ARRIVE, "a slot is written to a file before its bytes came")                            \
    X(PREFETCH_ROOM, "a batch is filled while the upload of an earlier one still reads the room")  \
    X(PEER_READ, "bytes on their way to another device are read while an op still writes them")    \
    X(PEER_WRITE, "bytes from another device overwrite what an op here still uses")                \
    X(PEER_FAULT, "a tensor leaves its device before it is known whether its bytes are good")      \
    X(COLLECT_READ, "small tensors are collected while an op still writes them")                   \
    X(COLLECT_TABLE, "small tensors are collected by a table that has not come yet")               \
    X(COLLECT_SCRATCH,                                                                             \
      "a table, or what is collected, lands in memory that another request still uses")            \
    X(FAULT_WINDOW, "a fault flag is cleared and taken before its last request has raised it")     \
    X(NATIVE_USE, "the caller's own work on a stream meets bytes that other streams still use")    \
    X(TICKET, "a ticket's wait returns before its request is done")                                \
    X(DRAIN, "a wait for the device returns while it works")                                       \
    X(TEARDOWN, "a device is taken apart while it works")                                          \
    X(READERS_SHARE,                                                                               \
      "two streams read the same bytes, and a later write waits for one of them only")             \
    X(BLOCK_GIVEN_BACK, "a block is free for everybody while a request still uses it")             \
    X(BLOCK_INHERITED, "a tensor in a block that others had forgets that a request still uses it") \
    X(PENDING_POLL, "a block that waits for a stream is free before the stream is there")          \
    X(PENDING_SEVERAL, "a block that several streams use waits for one of them only")              \
    X(PENDING_JOINED, "two pending neighbours become one block that waits for one of them only")   \
    X(PENDING_SPLIT, "what is left of a pending block that was cut does not wait any more")        \
    X(PENDING_STRETCH, "neighbours that are handed out as one block wait for the last one only")   \
    X(POOL_SYNC, "the allocator is to wait for what is pending, and says that there is no memory") \
    X(DELETER, "a deleter runs while a request still uses the caller's memory")                    \
    X(DELETER_LATER, "a deleter that was put off runs before the request is done")                 \
    X(DELETER_LAST,                                                                                \
      "the last use of a closed device is not waited for, and its deleters never run")             \
    X(UNPIN, "memory that was page-locked in place is unlocked while a transfer still uses it")    \
    X(BORROWED, "the host writes bytes that an upload still reads in place")                       \
    X(TICKET_POLL, "a ticket says that its request is done before it is")                          \
    X(STREAM_SLOT,                                                                                 \
      "a closed stream's place is taken over, and its tickets are done, while its work runs")

typedef enum fy__wait_site {
    FY__WAIT_NONE,
#define X(name, text) FY__WAIT_##name,
    FY__WAIT_SITE_LIST(X)
#undef X
        FY__WAIT_SITE_COUNT
} fy__wait_site_t;

/* The site that a test has dropped; FY__WAIT_NONE otherwise. */
extern fy__wait_site_t fy__wait_dropped;
static inline bool fy__wait_drops(fy__wait_site_t site)
{
    return __builtin_expect(fy__wait_dropped == site, 0) && site != FY__WAIT_NONE;
}
/* "RING_SLOT", and the text of the list. */
const char *fy__wait_site_name(fy__wait_site_t site);
const char *fy__wait_site_text(fy__wait_site_t site);

#endif
