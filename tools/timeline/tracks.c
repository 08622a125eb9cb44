/* From events to slices, arrows and counters, in one pass: what is kept is what later events can
 * refer to. */
#include "tools/timeline/tracks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/event_totals.h"
#include "tools/cli/tool.h"

enum { DEVICE_PROCESS = 10, THREADS_MOST = 1 << 20, OPERANDS = 64, SEQ_BITS = 40 };

typedef struct tracks_thread {
    uint64_t last_ns[TRACKS_CLOCKS];   /* of its last event */
    uint64_t called_ns[TRACKS_CLOCKS]; /* of its last event that is not a part of a later call */
    uint64_t waited_ns[TRACKS_CLOCKS]; /* end of its last wait, if that took time; else 0 */
    uint32_t depth[TRACKS_CLOCKS];     /* open scopes that the file has */
    uint64_t ranks_end_ns;             /* of its last call between ranks, on the wall clock */
    uint64_t sent_nbytes, sent_ns;     /* of its last exchange */
    uint32_t number;
    bool calls_ranks;
} thread_t;

typedef struct tracks_pool {
    char name[96];
    uint64_t live, reserved;
} pool_t;

typedef struct tracks_wait {
    uint64_t request, on; /* keys of requests */
    char reason[40];
} wait_t;

typedef struct tracks_queued {
    uint64_t request;
    uint64_t nbytes;
    uint64_t src[2], dst[2]; /* storage and version; 0: none */
    char name[32], scope[192], site[96];
} queued_t;

typedef struct tracks_arrival {
    uint64_t end_ns, nbytes;
} arrival_t;

static uint64_t key_of(uint64_t stream, uint64_t seq)
{
    return stream << SEQ_BITS | (seq & (~0ull >> (64 - SEQ_BITS)));
}

static uint32_t host_of(tracks_clock_t clock) { return TRACKS_HOST_PROCESS + (uint32_t)clock; }

/* ---- tracks ---- */

static thread_t *thread_of(tracks_t *tracks, uint64_t number)
{
    if (number >= THREADS_MOST) number = THREADS_MOST - 1;
    uint32_t *index = number_table_at(&tracks->thread_numbers, number);
    if (*index == NUMBER_TABLE_NONE) {
        char name[40];
        *index = (uint32_t)tracks->nthreads++;
        tracks->threads = tool_grow(tracks->threads, *index, sizeof(thread_t));
        tracks->threads[*index] = (thread_t){ .number = (uint32_t)number };
        snprintf(name, sizeof name, "host thread %u", (unsigned)number);
        for (int clock = 0; clock < TRACKS_CLOCKS; clock++)
            if (tracks->shows[clock])
                trace_track(tracks->trace,
                            (track_t){ host_of((tracks_clock_t)clock), (uint32_t)number + 1 }, name,
                            (uint32_t)number);
    }
    return &tracks->threads[*index];
}

static track_t track_of(tracks_clock_t clock, uint64_t thread)
{
    return (track_t){ host_of(clock),
                      (uint32_t)(thread < THREADS_MOST ? thread : THREADS_MOST - 1) + 1 };
}

static uint32_t process_of(tracks_t *tracks, const char *device)
{
    char name[96];
    bool is_new;
    size_t *number = text_index_at(&tracks->devices, device, &is_new);
    if (!is_new) return (uint32_t)*number;
    const uint32_t process = DEVICE_PROCESS + (uint32_t)tracks->devices.count - 1;
    *number = process;
    snprintf(name, sizeof name, "%s (model clock)", device);
    trace_process(tracks->trace, process, name, process);
    return process;
}

/* A stream's track; a stream that was not announced gets its number as a name. */
static track_t stream_track(tracks_t *tracks, const char *device, uint64_t number, const char *name)
{
    const uint32_t index = (uint32_t)number;
    char text[24];
    uint32_t *process = number_table_at(&tracks->stream_processes, index);
    if (*process == NUMBER_TABLE_NONE) {
        snprintf(text, sizeof text, "stream %u", index);
        *process = process_of(tracks, device);
        trace_track(tracks->trace, (track_t){ *process, index }, name ? name : text, index);
    }
    return (track_t){ *process, index };
}

/* ---- bytes under way: the count falls at times that come after later events ---- */

static void sift_down(arrival_t *heap, size_t count)
{
    for (size_t i = 0, child; (child = 2 * i + 1) < count; i = child) {
        if (child + 1 < count && heap[child + 1].end_ns < heap[child].end_ns) child++;
        if (heap[i].end_ns <= heap[child].end_ns) return;
        const arrival_t swapped = heap[i];
        heap[i] = heap[child];
        heap[child] = swapped;
    }
}

static void count_flying(tracks_t *tracks, uint64_t at_ns)
{
    trace_counter(tracks->trace, TRACKS_HOST_PROCESS, at_ns, "bytes in flight",
                  tracks->flying_nbytes);
}

/* Transfers that have ended by now. */
static void land(tracks_t *tracks, uint64_t now_ns)
{
    while (tracks->nflying && tracks->flying[0].end_ns <= now_ns) {
        const arrival_t landed = tracks->flying[0];
        tracks->flying[0] = tracks->flying[--tracks->nflying];
        sift_down(tracks->flying, tracks->nflying);
        tracks->flying_nbytes -= landed.nbytes;
        count_flying(tracks, landed.end_ns);
    }
}

static void take_off(tracks_t *tracks, uint64_t at_ns, uint64_t end_ns, uint64_t nbytes)
{
    tracks->flying = tool_grow(tracks->flying, tracks->nflying, sizeof(arrival_t));
    size_t i = tracks->nflying++;
    for (; i && tracks->flying[(i - 1) / 2].end_ns > end_ns; i = (i - 1) / 2)
        tracks->flying[i] = tracks->flying[(i - 1) / 2];
    tracks->flying[i] = (arrival_t){ end_ns, nbytes };
    tracks->flying_nbytes += nbytes;
    count_flying(tracks, at_ns);
}

/* ---- requests on their streams ---- */

/* A moment inside the place, as near to its end as there is: an arrow begins there. */
static uint64_t end_of(const place_t *place)
{
    return place->end_ns - (place->end_ns > place->start_ns);
}

static void draw_data_arrow(tracks_t *tracks, const uint64_t bytes[2], const place_t *reader)
{
    const place_t *writer = place_table_get(&tracks->writers, bytes[0]);
    if (!writer || writer->version > bytes[1] ||
        (writer->track.process == reader->track.process &&
         writer->track.thread == reader->track.thread))
        return;
    trace_flow(tracks->trace, writer->track, end_of(writer), reader->track, reader->start_ns,
               "data");
}

static void draw_wait_arrows(tracks_t *tracks, uint64_t request, const place_t *place)
{
    for (size_t i = 0; i < tracks->nwaits;) {
        const wait_t *wait = &tracks->waits[i];
        if (wait->request >> SEQ_BITS != request >> SEQ_BITS || wait->request > request) {
            i++;
            continue;
        }
        const place_t *awaited = place_table_get(&tracks->requests, wait->on);
        if (awaited)
            trace_flow(tracks->trace, awaited->track, end_of(awaited), place->track,
                       place->start_ns, wait->reason);
        tracks->waits[i] = tracks->waits[--tracks->nwaits];
    }
}

static void add_operands(tracks_t *tracks, const event_t *event, const place_t *place)
{
    uint64_t pairs[OPERANDS][2];
    size_t count = event_pairs(event, "src", pairs, OPERANDS);
    for (size_t i = 0; i < count && i < OPERANDS; i++) draw_data_arrow(tracks, pairs[i], place);
    count = event_pairs(event, "dst", pairs, OPERANDS);
    for (size_t i = 0; i < count && i < OPERANDS; i++) {
        place_t written = *place;
        written.version = pairs[i][1];
        place_table_set(&tracks->writers, pairs[i][0], written);
    }
}

static void keep_queued(tracks_t *tracks, const event_t *event, const char *name)
{
    queued_t queued = { .request = key_of(event_whole(event, "stream"), event_whole(event, "seq")),
                        .nbytes = event_whole(event, "bytes") };
    (void)event_pairs(event, "src", &queued.src, 1);
    (void)event_pairs(event, "dst", &queued.dst, 1);
    snprintf(queued.name, sizeof queued.name, "%s", name);
    snprintf(queued.scope, sizeof queued.scope, "%s", event_text(event, "scope"));
    snprintf(queued.site, sizeof queued.site, "%s", event_text(event, "site"));
    tracks->queued = tool_grow(tracks->queued, tracks->nqueued, sizeof queued);
    tracks->queued[tracks->nqueued++] = queued;
}

static bool take_queued(tracks_t *tracks, uint64_t request, queued_t *out_queued)
{
    for (size_t i = 0; i < tracks->nqueued; i++) {
        if (tracks->queued[i].request != request) continue;
        *out_queued = tracks->queued[i];
        tracks->queued[i] = tracks->queued[--tracks->nqueued];
        return true;
    }
    return false;
}

static place_t place_of(tracks_t *tracks, const event_t *event, const char *stream)
{
    return (place_t){ stream_track(tracks, event_text(event, "device"), event_whole(event, stream),
                                   NULL),
                      event_whole(event, "model_start_ns"), event_whole(event, "model_end_ns"), 0 };
}

static void add_slice(tracks_t *tracks, const event_t *event, const place_t *place,
                      const char *name, bool is_transfer)
{
    trace_file_t *trace = tracks->trace;
    trace_slice(trace, place->track, place->start_ns, place->end_ns - place->start_ns, name,
                is_transfer ? "transfer" : "op");
    trace_arg_text(trace, "scope", event_text(event, "scope"));
    trace_arg(trace, "bytes", event_whole(event, "bytes"));
    if (is_transfer) {
        trace_arg_text(trace, "path", event_text(event, "path"));
        if (event_has(event, "reason"))
            trace_arg_text(trace, "reason", event_text(event, "reason"));
        if (event_has(event, "pinned"))
            trace_arg_text(trace, "pinned", event_whole(event, "pinned") ? "yes" : "no");
    } else
        trace_arg(trace, "flops", event_whole(event, "flops"));
    trace_arg_text(trace, "site", event_text(event, "site"));
    if (*event_text(event, "names")) trace_arg_text(trace, "tensors", event_text(event, "names"));
    if (!is_transfer && event->signature) {
        trace_arg_text(trace, "dtypes", event_text(event, "dtypes"));
        trace_arg_text(trace, "shapes", event_text(event, "shapes"));
    }
    trace_end(trace);
}

/* An op or a transfer that was submitted at once. A replay has the slices of its launches. */
static void add_request(tracks_t *tracks, const event_t *event, const char *name, bool is_transfer)
{
    const uint64_t request = key_of(event_whole(event, "stream"), event_whole(event, "seq"));
    const place_t place = place_of(tracks, event, "stream");
    if (!event_whole(event, "launches")) add_slice(tracks, event, &place, name, is_transfer);
    add_operands(tracks, event, &place);
    draw_wait_arrows(tracks, request, &place);
    place_table_set(&tracks->requests, request, place);
    if (is_transfer)
        take_off(tracks, event_whole(event, "model_ns"), place.end_ns, event_whole(event, "bytes"));
}

/* A transfer that was queued is submitted now, as another request. */
static void add_started(tracks_t *tracks, const event_t *event)
{
    const uint64_t job = key_of(event_whole(event, "stream"), event_whole(event, "seq")),
                   request = key_of(event_whole(event, "as_stream"), event_whole(event, "as_seq"));
    queued_t queued = { .name = "transfer" };
    const place_t place = place_of(tracks, event, "as_stream");
    trace_file_t *trace = tracks->trace;
    (void)take_queued(tracks, job, &queued);
    trace_slice(trace, place.track, place.start_ns, place.end_ns - place.start_ns, queued.name,
                "transfer");
    trace_arg_text(trace, "scope", queued.scope);
    trace_arg(trace, "bytes", event_whole(event, "bytes"));
    trace_arg_text(trace, "site", queued.site);
    trace_end(trace);
    if (queued.src[0]) draw_data_arrow(tracks, queued.src, &place);
    if (queued.dst[0]) {
        place_t written = place;
        written.version = queued.dst[1];
        place_table_set(&tracks->writers, queued.dst[0], written);
    }
    draw_wait_arrows(tracks, request, &place);
    place_table_set(&tracks->requests, request, place);
    place_table_set(&tracks->requests, job, place);
    take_off(tracks, event_whole(event, "model_ns"), place.end_ns, event_whole(event, "bytes"));
}

static void add_to_devices(tracks_t *tracks, const event_t *event, const char *kind,
                           const char *name)
{
    const bool is_transfer = strcmp(kind, "transfer") == 0,
               is_known = event_has(event, "model_end_ns");
    if (strcmp(kind, "started") == 0 && is_known)
        add_started(tracks, event);
    else if ((is_transfer || strcmp(kind, "op") == 0) && is_known && event_has(event, "stream"))
        add_request(tracks, event, name, is_transfer);
    else if (strcmp(kind, "launch") == 0 && is_known && event_has(event, "stream")) {
        const place_t place = place_of(tracks, event, "stream");
        add_slice(tracks, event, &place, event_text(event, "op"), false);
    } else if (is_transfer && event_has(event, "stream"))
        keep_queued(tracks, event, name);
    else if (strcmp(kind, "stream") == 0)
        (void)stream_track(tracks, event_text(event, "device"), event_whole(event, "stream"),
                           event_text(event, "name"));
    else if (strcmp(kind, "wait") == 0) {
        wait_t wait = { key_of(event_whole(event, "stream"), event_whole(event, "seq")),
                        key_of(event_whole(event, "on_stream"), event_whole(event, "on_seq")), "" };
        snprintf(wait.reason, sizeof wait.reason, "wait: %s", event_text(event, "site"));
        tracks->waits = tool_grow(tracks->waits, tracks->nwaits, sizeof wait);
        tracks->waits[tracks->nwaits++] = wait;
    }
}

/* ---- the host's threads ---- */

/* Does a call, a wait or a scope end with the event? Other lines come before the line of the call
 * that made them, and their time is the call's. */
static bool ends_call(const char *kind)
{
    static const char *const kinds[] = { "op",      "transfer", "sync",        "throttle",
                                         "arrived", "map",      "scope_begin", "scope_end" };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i], kind) == 0) return true;
    return false;
}

/* What a call is called, and whether it is one. */
static bool name_call(const event_t *event, const char *kind, char *out_name, size_t size)
{
    if (strcmp(kind, "op") == 0)
        snprintf(out_name, size, "%s", event_text(event, "op"));
    else if (strcmp(kind, "transfer") == 0)
        snprintf(out_name, size, "%s", event_text(event, "direction"));
    else if (strcmp(kind, "sync") == 0)
        snprintf(out_name, size, "wait: %s", event_text(event, "what"));
    else if (strcmp(kind, "throttle") == 0)
        snprintf(out_name, size, "wait: the device is too far behind");
    else
        return false;
    return true;
}

static void add_call(tracks_t *tracks, const event_t *event, const char *kind, const char *name,
                     tracks_clock_t clock, thread_t *thread, uint64_t at_ns)
{
    const bool is_wait = strcmp(kind, "sync") == 0 || strcmp(kind, "throttle") == 0,
               is_host_op = strcmp(kind, "op") == 0 &&
                            strcmp(event_text(event, "device"), "host") == 0;
    const uint64_t blocked_ns = event_whole(event, "blocked_ns"),
                   last_ns = is_wait ? thread->last_ns[clock] : thread->called_ns[clock];
    uint64_t start_ns = clock == TRACKS_MODEL ? last_ns
                        : blocked_ns < at_ns  ? at_ns - blocked_ns
                                              : 0;
    if (start_ns < last_ns) start_ns = last_ns;
    if (start_ns > at_ns) start_ns = at_ns;
    if (start_ns == at_ns && (is_wait || clock == TRACKS_MODEL)) return;
    trace_call(tracks->trace, track_of(clock, event_whole(event, "thread")), start_ns,
               at_ns - start_ns, name,
               is_wait      ? "wait"
               : is_host_op ? "op"
                            : "call");
    if (event_has(event, "site")) trace_arg_text(tracks->trace, "site", event_text(event, "site"));
    if (is_wait && event_has(event, "reason"))
        trace_arg_text(tracks->trace, "reason", event_text(event, "reason"));
    if (event_has(event, "bytes")) trace_arg(tracks->trace, "bytes", event_whole(event, "bytes"));
    if (event_has(event, "seq")) trace_arg(tracks->trace, "request", event_whole(event, "seq"));
    trace_end(tracks->trace);
    if (is_wait) thread->waited_ns[clock] = at_ns;
}

/* An arrow from the download to the wait that it ended. */
static void add_arrival(tracks_t *tracks, const event_t *event, const thread_t *thread,
                        uint64_t at_ns)
{
    const place_t *place = place_table_get(
        &tracks->requests, key_of(event_whole(event, "stream"), event_whole(event, "seq")));
    if (place && thread->waited_ns[TRACKS_MODEL] == at_ns)
        trace_flow(tracks->trace, place->track, end_of(place),
                   track_of(TRACKS_MODEL, event_whole(event, "thread")), at_ns - 1, "arrived");
}

static void add_to_thread(tracks_t *tracks, const event_t *event, const char *kind,
                          const char *name, bool is_call, tracks_clock_t clock, thread_t *thread,
                          uint64_t at_ns)
{
    const track_t track = track_of(clock, event_whole(event, "thread"));
    const char *scope = event_text(event, "scope"), *slash = strrchr(scope, '/');
    if (is_call)
        add_call(tracks, event, kind, name, clock, thread, at_ns);
    else if (strcmp(kind, "arrived") == 0 && clock == TRACKS_MODEL)
        add_arrival(tracks, event, thread, at_ns);
    else if (strcmp(kind, "scope_begin") == 0) {
        trace_push(tracks->trace, track, at_ns, slash ? slash + 1 : scope);
        trace_arg_text(tracks->trace, "scope", scope);
        trace_end(tracks->trace);
        thread->depth[clock]++;
    } else if (strcmp(kind, "scope_end") == 0 && thread->depth[clock]) {
        trace_pop(tracks->trace, track, at_ns);
        thread->depth[clock]--;
    }
}

/* ---- calls between ranks ---- */

/* Calls of several threads overlap, as each waits for the group. So each thread has a track. */
static void add_ranks_call(tracks_t *tracks, const event_t *event, thread_t *thread)
{
    const uint64_t end_ns = event_whole(event, "t_ns"), lasted_ns = event_whole(event, "lasted_ns");
    track_t track = track_of(TRACKS_WALL, event_whole(event, "thread"));
    uint64_t start_ns = lasted_ns < end_ns ? end_ns - lasted_ns : 0;
    char name[64];
    track.thread += TRACKS_RANKS;
    if (!thread->calls_ranks) {
        snprintf(name, sizeof name, "host thread %u: calls between ranks",
                 (unsigned)(track.thread - TRACKS_RANKS - 1));
        trace_track(tracks->trace, track, name, track.thread - TRACKS_RANKS - 1);
        thread->calls_ranks = true;
    }
    const bool has_sent = thread->sent_ns >= start_ns && thread->sent_ns <= end_ns;
    if (end_ns < thread->ranks_end_ns) return; /* no writer makes times that go back */
    if (start_ns < thread->ranks_end_ns) start_ns = thread->ranks_end_ns;
    trace_slice(tracks->trace, track, start_ns, end_ns - start_ns, event_text(event, "op"), "wait");
    trace_arg_text(tracks->trace, "scope", event_text(event, "scope"));
    trace_arg(tracks->trace, "bytes", has_sent ? thread->sent_nbytes : 0);
    trace_arg(tracks->trace, "rank", event_whole(event, "rank"));
    trace_arg(tracks->trace, "number", event_whole(event, "number"));
    trace_arg_text(tracks->trace, "status", event_text(event, "status"));
    trace_end(tracks->trace);
    thread->ranks_end_ns = end_ns;
    thread->sent_nbytes = 0;
}

/* The `exchange` line of a call comes before its `collective_ran` line. */
static void add_ranks(tracks_t *tracks, const event_t *event, const char *kind, bool is_inside,
                      thread_t *thread)
{
    if (strcmp(kind, "exchange") == 0) {
        thread->sent_nbytes = event_whole(event, "bytes");
        thread->sent_ns = event_whole(event, "t_ns");
    } else if (strcmp(kind, "collective_ran") == 0 && is_inside && tracks->shows[TRACKS_WALL])
        add_ranks_call(tracks, event, thread);
}

/* ---- memory ---- */

static pool_t *pool_of(tracks_t *tracks, const char *name)
{
    size_t number;
    if (!text_index_number(&tracks->pool_index, name, tracks->npools, &number))
        return &tracks->pools[number];
    tracks->pools = tool_grow(tracks->pools, tracks->npools, sizeof(pool_t));
    pool_t *pool = &tracks->pools[tracks->npools++];
    *pool = (pool_t){ .live = 0 };
    snprintf(pool->name, sizeof pool->name, "%s", name);
    return pool;
}

static void add_memory(tracks_t *tracks, const event_t *event, const char *kind,
                       const uint64_t *at_ns, const bool *is_timed)
{
    pool_t *pool = pool_of(tracks, event_text(event, "pool"));
    const pool_t before = *pool;
    const uint64_t nbytes = event_whole(event, "bytes");
    char name[128];
    if (strcmp(kind, "pool") == 0) {
        pool->live = event_whole(event, "live_bytes");
        pool->reserved = event_whole(event, "reserved_bytes");
    } else if (strcmp(kind, "block_alloc") == 0)
        pool->live += nbytes;
    else if (strcmp(kind, "block_free") == 0)
        pool->live -= nbytes < pool->live ? nbytes : pool->live;
    else if (strcmp(kind, "segment_alloc") == 0)
        pool->reserved += nbytes;
    else if (strcmp(kind, "segment_free") == 0)
        pool->reserved -= nbytes < pool->reserved ? nbytes : pool->reserved;
    for (int clock = 0; clock < TRACKS_CLOCKS; clock++) {
        if (!is_timed[clock]) continue;
        const uint32_t process = host_of((tracks_clock_t)clock);
        snprintf(name, sizeof name, "live: %s", pool->name);
        if (pool->live != before.live)
            trace_counter(tracks->trace, process, at_ns[clock], name, pool->live);
        snprintf(name, sizeof name, "reserved: %s", pool->name);
        if (pool->reserved != before.reserved)
            trace_counter(tracks->trace, process, at_ns[clock], name, pool->reserved);
    }
}

/* ---- all of it ---- */

static void name_hosts(tracks_t *tracks)
{
    static const char *const names[] = { "host (model clock)", "host (wall clock)" };
    for (int clock = 0; clock < TRACKS_CLOCKS; clock++)
        if (tracks->shows[clock])
            trace_process(tracks->trace, host_of((tracks_clock_t)clock), names[clock],
                          (uint32_t)clock);
}

void tracks_add(void *user, const event_t *event)
{
    tracks_t *tracks = user;
    const char *kind = event_text(event, "ev");
    const uint64_t at_ns[] = { event_whole(event, "model_ns"), event_whole(event, "t_ns") };
    bool is_timed[] = { event_has(event, "model_ns"), true };
    char name[64];
    if (!tracks->nthreads) name_hosts(tracks);
    for (int clock = 0; clock < TRACKS_CLOCKS; clock++) {
        tracks->taken[clock] += is_timed[clock];
        if (is_timed[clock] && at_ns[clock] > tracks->last_ns[clock])
            tracks->last_ns[clock] = at_ns[clock];
        is_timed[clock] &= tracks->shows[clock];
    }
    if (is_timed[TRACKS_MODEL]) land(tracks, tracks->last_ns[TRACKS_MODEL]);
    thread_t *thread = thread_of(tracks, event_whole(event, "thread"));
    if (event_has(event, "pool")) add_memory(tracks, event, kind, at_ns, is_timed);
    const bool is_inside = event_is_inside(event_text(event, "scope"), tracks->under),
               is_call = name_call(event, kind, name, sizeof name);
    for (int clock = 0; is_inside && clock < TRACKS_CLOCKS; clock++)
        if (is_timed[clock])
            add_to_thread(tracks, event, kind, name, is_call, (tracks_clock_t)clock, thread,
                          at_ns[clock]);
    add_ranks(tracks, event, kind, is_inside, thread);
    if (tracks->shows[TRACKS_MODEL] &&
        (is_inside || strcmp(kind, "stream") == 0 || strcmp(kind, "started") == 0))
        add_to_devices(tracks, event, kind, name);
    for (int clock = 0; clock < TRACKS_CLOCKS; clock++) {
        if (!is_timed[clock]) continue;
        thread->last_ns[clock] = at_ns[clock];
        if (ends_call(kind)) thread->called_ns[clock] = at_ns[clock];
    }
}

void tracks_finish(tracks_t *tracks)
{
    land(tracks, UINT64_MAX);
    for (size_t i = 0; i < tracks->nthreads; i++)
        for (int clock = 0; clock < TRACKS_CLOCKS; clock++)
            for (; tracks->threads[i].depth[clock]; tracks->threads[i].depth[clock]--)
                trace_pop(tracks->trace, track_of((tracks_clock_t)clock, tracks->threads[i].number),
                          tracks->last_ns[clock]);
}

void tracks_free(tracks_t *tracks)
{
    free(tracks->threads);
    number_table_free(&tracks->thread_numbers);
    number_table_free(&tracks->stream_processes);
    text_index_free(&tracks->devices);
    text_index_free(&tracks->pool_index);
    free(tracks->pools);
    free(tracks->waits);
    free(tracks->queued);
    free(tracks->flying);
    place_table_free(&tracks->requests);
    place_table_free(&tracks->writers);
}
