/* The format is that of torch.cuda.memory._snapshot() (PyTorch: torch/cuda/_memory_viz.py,
 * torch/csrc/cuda/memory_snapshot.cpp): for each device its trace, and the segments at the end.
 * Each pool is a device. Addresses are made up: segment N begins at N * 2^38. A freed block counts
 * as free at once, also while requests may still use it. */
#include "tools/cli/snapshot_file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/event_file.h"
#include "tools/cli/output.h"
#include "tools/cli/tables.h"
#include "tools/cli/tool.h"

/* ---- a pickle: Python's serialised objects, protocol 2. Any object may be kept and repeated by
 * its number. Python's Lib/pickletools.py documents the opcodes ---- */

enum { TEXT_LONGEST = 4096 };

typedef struct pickle {
    output_t output;
    uint32_t kept;
} pickle_t;

/* An opcode and a little-endian argument. */
static void put_code(pickle_t *pickle, unsigned char code, uint64_t argument, size_t nbytes)
{
    unsigned char bytes[9] = { code };
    for (size_t i = 0; i < nbytes; i++) bytes[1 + i] = (unsigned char)(argument >> 8 * i);
    output_write(&pickle->output, bytes, 1 + nbytes);
}

/* A dict has a text, its key, before each value. The opcodes are EMPTY_DICT, SETITEMS, EMPTY_LIST
 * and APPENDS; "(" is MARK. */
static void pickle_begin_dict(pickle_t *pickle) { put_code(pickle, '}', '(', 1); }
static void pickle_end_dict(pickle_t *pickle) { put_code(pickle, 'u', 0, 0); }
static void pickle_begin_list(pickle_t *pickle) { put_code(pickle, ']', '(', 1); }
static void pickle_end_list(pickle_t *pickle) { put_code(pickle, 'e', 0, 0); }

static void pickle_text(pickle_t *pickle, const char *text)
{
    size_t nbytes = strnlen(text, TEXT_LONGEST);
    while (nbytes == TEXT_LONGEST || (text[nbytes] & 0xC0) == 0x80) nbytes--; /* whole characters */
    put_code(pickle, 'X', nbytes, 4);                                         /* BINUNICODE */
    output_write(&pickle->output, text, nbytes);
}

static void pickle_whole(pickle_t *pickle, uint64_t number)
{
    if (number <= INT32_MAX) {
        put_code(pickle, 'J', number, 4); /* BININT */
        return;
    }
    put_code(pickle, 0x8a, 9, 1); /* LONG1 of 9 bytes, the last of which is the sign */
    put_code(pickle, (unsigned char)number, number >> 8, 8);
}

static void pickle_flag(pickle_t *pickle, bool flag) { put_code(pickle, flag ? 0x88 : 0x89, 0, 0); }

/* Keeps the object that was written last: its number, for pickle_again. */
static uint32_t pickle_keep(pickle_t *pickle)
{
    put_code(pickle, 'r', pickle->kept, 4); /* LONG_BINPUT */
    return pickle->kept++;
}

static void pickle_again(pickle_t *pickle, uint32_t kept)
{
    put_code(pickle, 'j', kept, 4); /* LONG_BINGET */
}

/* ---- the snapshot ---- */

enum { WINDOW_SHIFT = 38 };

typedef enum action {
    SEGMENT_ALLOC,
    SEGMENT_MAP,
    SEGMENT_UNMAP,
    SEGMENT_FREE,
    ALLOC,
    FREE
} action_t;

typedef struct entry {
    action_t action;
    uint64_t address, nbytes, stream, time_us;
    size_t frames; /* index in writer.frames */
} entry_t;

typedef struct segment {
    uint64_t id, address, nbytes; /* nbytes 0: freed */
    size_t frames;
} segment_t;

typedef struct block {
    uint64_t id, address, nbytes, requested, stream; /* nbytes 0: freed */
    size_t frames;
} block_t;

typedef struct pool {
    char name[96];
    bool is_over; /* its device was closed and opened again: numbers begin at 0 again */
    entry_t *entries;
    segment_t *segments;
    block_t *blocks; /* by id: ids rise */
    size_t nentries, nsegments, nblocks;
} pool_t;

/* Where a block was requested, as a call stack: the call site, then the scopes from the inside. */
typedef struct frames {
    char *site, *scope, *category;
    uint32_t kept; /* number in the pickle plus 1; 0: not yet written */
} frames_t;

typedef struct writer {
    pool_t *pools;
    frames_t *frames;
    size_t npools, nframes;
    uint64_t nsegments; /* of all pools, ever */
    text_index_t frames_index;
    pickle_t pickle;
} writer_t;

/* ---- from events ---- */

static pool_t *pool_of(writer_t *writer, const char *name)
{
    for (size_t i = 0; i < writer->npools; i++)
        if (!writer->pools[i].is_over && strcmp(writer->pools[i].name, name) == 0)
            return &writer->pools[i];
    writer->pools = tool_grow(writer->pools, writer->npools, sizeof(pool_t));
    pool_t *pool = &writer->pools[writer->npools++];
    *pool = (pool_t){ .nentries = 0 };
    snprintf(pool->name, sizeof pool->name, "%s", name);
    return pool;
}

static size_t frames_of(writer_t *writer, const event_t *event)
{
    char key[1024];
    size_t at;
    const char *site = event_text(event, "site"), *scope = event_text(event, "scope"),
               *category = event_text(event, "category");
    snprintf(key, sizeof key, "%s\n%s\n%s", site, category, scope);
    if (!text_index_number(&writer->frames_index, key, writer->nframes, &at)) return at;
    writer->frames = tool_grow(writer->frames, writer->nframes, sizeof(frames_t));
    writer->frames[writer->nframes] =
        (frames_t){ tool_copy_text(site), tool_copy_text(scope), tool_copy_text(category), 0 };
    return writer->nframes++;
}

static void add_entry(pool_t *pool, const event_t *event, action_t action, uint64_t address,
                      uint64_t nbytes, uint64_t stream, size_t frames)
{
    pool->entries = tool_grow(pool->entries, pool->nentries, sizeof(entry_t));
    pool->entries[pool->nentries++] =
        (entry_t){ action, address, nbytes, stream, event_whole(event, "t_ns") / 1000, frames };
}

/* The newest segment of that number; a new one if there is none. */
static segment_t *segment_of(writer_t *writer, pool_t *pool, uint64_t id, size_t frames)
{
    for (size_t i = pool->nsegments; i-- > 0;)
        if (pool->segments[i].id == id) return &pool->segments[i];
    pool->segments = tool_grow(pool->segments, pool->nsegments, sizeof(segment_t));
    segment_t *segment = &pool->segments[pool->nsegments++];
    *segment = (segment_t){ id, ++writer->nsegments << WINDOW_SHIFT, 0, frames };
    return segment;
}

static void add_segment(writer_t *writer, pool_t *pool, const event_t *event, bool is_alloc)
{
    const uint64_t nbytes = event_whole(event, "bytes");
    const size_t frames = frames_of(writer, event);
    segment_t *segment = segment_of(writer, pool, event_whole(event, "segment"), frames);
    if (is_alloc) {
        add_entry(pool, event, segment->nbytes ? SEGMENT_MAP : SEGMENT_ALLOC,
                  segment->address + segment->nbytes, nbytes, 0, frames);
        segment->nbytes += nbytes;
        return;
    }
    segment->nbytes -= nbytes < segment->nbytes ? nbytes : segment->nbytes;
    add_entry(pool, event, segment->nbytes ? SEGMENT_UNMAP : SEGMENT_FREE,
              segment->address + segment->nbytes, nbytes, 0, frames);
}

static void add_alloc(writer_t *writer, pool_t *pool, const event_t *event)
{
    const size_t frames = frames_of(writer, event);
    segment_t *segment = segment_of(writer, pool, event_whole(event, "segment"), frames);
    const uint64_t offset = event_whole(event, "offset");
    const block_t block = { event_whole(event, "block"),  segment->address + offset,
                            event_whole(event, "bytes"),  event_whole(event, "requested_bytes"),
                            event_whole(event, "stream"), frames };
    /* a segment from before the recording: as large as its blocks show */
    if (offset + block.nbytes > segment->nbytes) segment->nbytes = offset + block.nbytes;
    pool->blocks = tool_grow(pool->blocks, pool->nblocks, sizeof block);
    pool->blocks[pool->nblocks++] = block;
    add_entry(pool, event, ALLOC, block.address, block.nbytes, block.stream, frames);
}

static void add_free(pool_t *pool, const event_t *event)
{
    const uint64_t id = event_whole(event, "block");
    size_t low = 0, high = pool->nblocks;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (pool->blocks[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == pool->nblocks) return; /* older */
    block_t *block = &pool->blocks[low];
    if (block->id != id || !block->nbytes) return;
    add_entry(pool, event, FREE, block->address, block->nbytes, block->stream, block->frames);
    block->nbytes = 0;
}

static void add(void *user, const event_t *event)
{
    writer_t *writer = user;
    const bool is_alloc = event_is(event, "block_alloc"), is_free = event_is(event, "block_free"),
               is_segment_alloc = event_is(event, "segment_alloc");
    for (size_t i = 0; event_is(event, "pool") && i < writer->npools; i++)
        if (strcmp(writer->pools[i].name, event_text(event, "pool")) == 0)
            writer->pools[i].is_over = true;
    if (!is_alloc && !is_free && !is_segment_alloc && !event_is(event, "segment_free")) return;
    pool_t *pool = pool_of(writer, event_text(event, "pool"));
    if (is_alloc)
        add_alloc(writer, pool, event);
    else if (is_free)
        add_free(pool, event);
    else
        add_segment(writer, pool, event, is_segment_alloc);
}

/* ---- to the pickle ---- */

static void put_whole(pickle_t *pickle, const char *key, uint64_t number)
{
    pickle_text(pickle, key);
    pickle_whole(pickle, number);
}
static void put_text(pickle_t *pickle, const char *key, const char *text)
{
    pickle_text(pickle, key);
    pickle_text(pickle, text);
}

static void put_frame(pickle_t *pickle, const char *name, const char *file)
{
    pickle_begin_dict(pickle);
    put_text(pickle, "name", name);
    put_text(pickle, "filename", file);
    put_whole(pickle, "line", 0);
    pickle_end_dict(pickle);
}

static void put_frames(writer_t *writer, size_t index)
{
    frames_t *frames = &writer->frames[index];
    pickle_t *pickle = &writer->pickle;
    pickle_text(pickle, "frames");
    if (frames->kept) {
        pickle_again(pickle, frames->kept - 1);
        return;
    }
    pickle_begin_list(pickle);
    if (*frames->site) put_frame(pickle, frames->site, "site");
    char *scope = tool_copy_text(frames->scope), *slash;
    for (; (slash = strrchr(scope, '/')); *slash = 0) put_frame(pickle, slash + 1, "scope");
    if (*scope) put_frame(pickle, scope, "scope");
    if (*frames->category) put_frame(pickle, frames->category, "category");
    free(scope);
    pickle_end_list(pickle);
    frames->kept = pickle_keep(pickle) + 1;
}

static void put_action(writer_t *writer, const entry_t *entry, const char *action)
{
    pickle_t *pickle = &writer->pickle;
    pickle_begin_dict(pickle);
    put_text(pickle, "action", action);
    put_whole(pickle, "addr", entry->address);
    put_whole(pickle, "size", entry->nbytes);
    put_whole(pickle, "stream", entry->stream);
    put_whole(pickle, "time_us", entry->time_us);
    put_frames(writer, entry->frames);
    pickle_end_dict(pickle);
}

static void put_trace(writer_t *writer, const pool_t *pool)
{
    static const char *const names[] = { "segment_alloc", "segment_map", "segment_unmap",
                                         "segment_free",  "alloc",       "free_requested" };
    pickle_begin_list(&writer->pickle);
    for (size_t i = 0; i < pool->nentries; i++) {
        const entry_t *entry = &pool->entries[i];
        put_action(writer, entry, names[entry->action]);
        if (entry->action == FREE) put_action(writer, entry, "free_completed");
    }
    pickle_end_list(&writer->pickle);
}

static void put_block(writer_t *writer, uint64_t address, uint64_t nbytes, const block_t *block)
{
    pickle_t *pickle = &writer->pickle;
    pickle_begin_dict(pickle);
    put_whole(pickle, "address", address);
    put_whole(pickle, "size", nbytes);
    put_whole(pickle, "requested_size", block ? block->requested : 0);
    put_text(pickle, "state", block ? "active_allocated" : "inactive");
    if (block)
        put_frames(writer, block->frames);
    else {
        pickle_text(pickle, "frames");
        pickle_begin_list(pickle);
        pickle_end_list(pickle);
    }
    pickle_end_dict(pickle);
}

static int by_address(const void *a, const void *b)
{
    const block_t *x = a, *y = b;
    return (x->address > y->address) - (x->address < y->address);
}

/* `blocks`: the live ones of this segment, by address; the rest of it is inactive. */
static void put_segment(writer_t *writer, const segment_t *segment, size_t device,
                        const block_t *blocks, size_t count)
{
    pickle_t *pickle = &writer->pickle;
    uint64_t live = 0, requested = 0, at = segment->address;
    const uint64_t end = segment->address + segment->nbytes;
    for (size_t i = 0; i < count; i++) {
        live += blocks[i].nbytes;
        requested += blocks[i].requested;
    }
    pickle_begin_dict(pickle);
    put_whole(pickle, "device", device);
    put_whole(pickle, "address", segment->address);
    put_whole(pickle, "total_size", segment->nbytes);
    put_whole(pickle, "allocated_size", live);
    put_whole(pickle, "active_size", live);
    put_whole(pickle, "requested_size", requested);
    put_whole(pickle, "stream", 0);
    put_text(pickle, "segment_type", "large");
    pickle_text(pickle, "is_expandable");
    pickle_flag(pickle, false);
    put_frames(writer, segment->frames);
    pickle_text(pickle, "blocks");
    pickle_begin_list(pickle);
    for (size_t i = 0; i < count; i++) {
        if (blocks[i].address > at) put_block(writer, at, blocks[i].address - at, NULL);
        put_block(writer, blocks[i].address, blocks[i].nbytes, &blocks[i]);
        at = blocks[i].address + blocks[i].nbytes;
    }
    if (at < end) put_block(writer, at, end - at, NULL);
    pickle_end_list(pickle);
    pickle_end_dict(pickle);
}

/* Blocks of one segment follow each other: its addresses are those of no other segment. */
static void put_segments(writer_t *writer, size_t device)
{
    pool_t *pool = &writer->pools[device];
    size_t live = 0;
    for (size_t i = 0; i < pool->nblocks; i++)
        if (pool->blocks[i].nbytes) pool->blocks[live++] = pool->blocks[i];
    if (live) qsort(pool->blocks, live, sizeof *pool->blocks, by_address);
    for (size_t i = 0, from = 0; i < pool->nsegments; i++) {
        const segment_t *segment = &pool->segments[i];
        size_t to = from;
        while (to < live &&
               pool->blocks[to].address >> WINDOW_SHIFT == segment->address >> WINDOW_SHIFT)
            to++;
        const block_t *blocks = live ? &pool->blocks[from] : NULL;
        if (segment->nbytes) put_segment(writer, segment, device, blocks, to - from);
        from = to;
    }
}

static void put_all(writer_t *writer)
{
    pickle_t *pickle = &writer->pickle;
    pickle_begin_dict(pickle);
    pickle_text(pickle, "device_traces");
    pickle_begin_list(pickle);
    for (size_t i = 0; i < writer->npools; i++) put_trace(writer, &writer->pools[i]);
    pickle_end_list(pickle);
    pickle_text(pickle, "segments");
    pickle_begin_list(pickle);
    for (size_t i = 0; i < writer->npools; i++) put_segments(writer, i);
    pickle_end_list(pickle);
    pickle_text(pickle, "allocator_settings");
    pickle_begin_dict(pickle);
    pickle_end_dict(pickle);
    pickle_text(pickle, "external_annotations");
    pickle_begin_list(pickle);
    pickle_end_list(pickle);
    pickle_end_dict(pickle);
}

static void release(writer_t *writer)
{
    for (size_t i = 0; i < writer->npools; i++) {
        free(writer->pools[i].entries);
        free(writer->pools[i].segments);
        free(writer->pools[i].blocks);
    }
    for (size_t i = 0; i < writer->nframes; i++) {
        free(writer->frames[i].site);
        free(writer->frames[i].scope);
        free(writer->frames[i].category);
    }
    free(writer->pools);
    free(writer->frames);
    text_index_free(&writer->frames_index);
}

static fy_status_t write_all(writer_t *writer, const char *from, const char *to)
{
    event_file_info_t info;
    FY_TRY(tool_check_replaceable(to));
    FY_TRY(tool_check_not_input(to, from));
    FY_TRY(event_file_read(from, add, writer, &info));
    if (!writer->npools)
        return TOOL_FAIL(INVALID_ARGUMENT, "%s has no allocations: nothing is written", from);
    FY_TRY(output_begin(&writer->pickle.output, to));
    put_code(&writer->pickle, 0x80, 2, 1); /* PROTO 2 */
    put_all(writer);
    put_code(&writer->pickle, '.', 0, 0); /* STOP */
    FY_TRY(output_commit(&writer->pickle.output));
    printf("%s: open it at https://docs.pytorch.org/memory_viz\n", to);
    for (size_t i = 0; i < writer->npools; i++)
        printf("device %zu: %s, %zu events\n", i, writer->pools[i].name, writer->pools[i].nentries);
    if (!info.is_whole || info.lost)
        return TOOL_FAIL(CORRUPT_DATA,
                         "%s is not whole: %" PRIu64 " events were read, %" PRIu64
                         " lost; the picture has only those that were read",
                         from, info.events, info.lost);
    return FY_STATUS_OK;
}

fy_status_t memory_pytorch_write(const char *from, const char *to)
{
    writer_t writer = { .npools = 0 };
    const fy_status_t status = write_all(&writer, from, to);
    release(&writer);
    return status;
}
