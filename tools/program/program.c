/* Makes a program of the events of a file, in one pass. */
#include "tools/program/program.h"

#include <stdlib.h>
#include <string.h>

#include "tools/cli/tool.h"
#include "tools/cli/tables.h"

enum { OPERANDS_MOST = 1024, DEVICES_MOST = 4096 };

typedef struct thread {
    uint32_t scope; /* the innermost; 0: outside of any */
} thread_t;

/* The last event that wrote a storage. */
typedef struct writer {
    uint32_t event;
    uint64_t version;
} writer_t;

/* A launch whose op's line has not come yet. */
typedef struct early_launch {
    program_launch_t launch;
    uint32_t previous; /* of the same op; NUMBER_TABLE_NONE: it is the first */
} early_launch_t;

/* An `operands` line has sources from `first` on, then destinations. */
typedef struct more_operands {
    uint32_t op;
    size_t first, nsrc, ndst;
    uint64_t line;
} more_operands_t;

typedef struct reader {
    program_t *program;
    thread_t *threads;
    writer_t *writers; /* by storage */
    early_launch_t *early;
    more_operands_t *more;
    size_t nthreads, nearly, nmore;
    number_table_t thread_numbers, stream_numbers, storages, ops; /* by numbers in the file */
    number_table_t launches; /* the last early launch of an op's number */
    text_index_t pools;
    pair_table_t blocks; /* by pool and number */
    pair_table_t queued; /* transfers, by stream and number */
    uint64_t line;
    const char *wrong; /* with the line `line`; NULL: nothing so far */
} reader_t;

#define ADD(list, count) ((list) = tool_grow((list), (count), sizeof *(list)), &(list)[(count)++])

static const char *keep(program_t *program, const char *text)
{
    return text_index_keep(&program->texts, text);
}

static const char *kept(program_t *program, const event_t *line, const char *key)
{
    return keep(program, event_text(line, key));
}

static void complain(reader_t *reader, const event_t *line, const char *wrong)
{
    if (reader->wrong) return;
    reader->wrong = wrong;
    reader->line = line->line;
}

/* ---- tables ---- */

static uint32_t device_of(program_t *program, const char *name)
{
    bool is_new;
    if (!*name) return PROGRAM_NONE;
    size_t *number = text_index_at(&program->texts, name, &is_new);
    if (*number != SIZE_MAX) return (uint32_t)*number;
    *number = program->ndevices;
    const char *none = keep(program, "");
    *ADD(program->devices, program->ndevices) =
        (program_device_t){ keep(program, name), none, none, none, 0, false };
    return (uint32_t)program->ndevices - 1;
}

static uint32_t stream_of(reader_t *reader, const event_t *line, const char *key)
{
    program_t *program = reader->program;
    const uint64_t number = event_whole(line, key);
    if (!event_has(line, key)) return PROGRAM_NONE;
    uint32_t *index = number_table_at(&reader->stream_numbers, number);
    if (*index == NUMBER_TABLE_NONE) {
        *index = (uint32_t)program->nstreams;
        *ADD(program->streams, program->nstreams) =
            (program_stream_t){ keep(program, ""), PROGRAM_NONE };
    }
    return *index;
}

static uint32_t storage_of(reader_t *reader, uint64_t id)
{
    program_t *program = reader->program;
    uint32_t *index = number_table_at(&reader->storages, id);
    if (*index != NUMBER_TABLE_NONE) return *index;
    *index = (uint32_t)program->nstorages;
    reader->writers = tool_grow(reader->writers, program->nstorages, sizeof(writer_t));
    reader->writers[program->nstorages] = (writer_t){ PROGRAM_NONE, 0 };
    *ADD(program->storages, program->nstorages) =
        (program_storage_t){ .id = id, .device = PROGRAM_NONE, .block = PROGRAM_NONE };
    return *index;
}

static uint32_t block_of(reader_t *reader, const char *pool, uint64_t id)
{
    program_t *program = reader->program;
    size_t number;
    (void)text_index_number(&reader->pools, pool, reader->pools.count, &number);
    uint32_t *index = pair_table_at(&reader->blocks, (uint32_t)number, id);
    if (*index == NUMBER_TABLE_NONE) {
        *index = (uint32_t)program->nblocks;
        *ADD(program->blocks, program->nblocks) = (program_block_t){ .pool = keep(program, pool),
                                                                     .category = keep(program, ""),
                                                                     .id = id,
                                                                     .allocated = PROGRAM_NONE,
                                                                     .freed = PROGRAM_NONE };
    }
    return *index;
}

/* ---- scopes ---- */

static uint32_t thread_of(reader_t *reader, const event_t *line)
{
    uint32_t *index = number_table_at(&reader->thread_numbers, event_whole(line, "thread"));
    if (*index == NUMBER_TABLE_NONE) {
        *index = (uint32_t)reader->nthreads;
        *ADD(reader->threads, reader->nthreads) = (thread_t){ 0 };
    }
    return *index;
}

static uint32_t add_scope(program_t *program, const char *path, uint32_t parent, uint32_t thread,
                          uint32_t begin)
{
    *ADD(program->scopes, program->nscopes) =
        (program_scope_t){ path, parent, begin, PROGRAM_NONE, thread, PROGRAM_NONE };
    return (uint32_t)program->nscopes - 1;
}

/* The open scope of that path; one that the file does not begin is added. A thread can continue the
 * scope of another one (prefetch). */
static uint32_t scope_of(program_t *program, const thread_t *thread, const char *path,
                         uint32_t number)
{
    for (uint32_t at = thread->scope; at; at = program->scopes[at].parent)
        if (program->scopes[at].path == path) return at;
    if (!*path) return 0;
    for (size_t i = program->nscopes; i-- > 1 && i + 64 > program->nscopes;)
        if (program->scopes[i].path == path && program->scopes[i].end == PROGRAM_NONE)
            return (uint32_t)i;
    return add_scope(program, path, thread->scope, number, PROGRAM_NONE);
}

static void enter_scope(reader_t *reader, thread_t *thread, const program_event_t *event,
                        const char *path, uint32_t index)
{
    program_t *program = reader->program;
    if (event->kind == PROGRAM_SCOPE_BEGIN)
        thread->scope = add_scope(program, path, thread->scope, event->thread, index);
    else if (!thread->scope || program->scopes[thread->scope].path != path)
        thread->scope = scope_of(program, thread, path, event->thread);
}

static void leave_scope(program_t *program, thread_t *thread, uint32_t index)
{
    program->scopes[thread->scope].end = index;
    thread->scope = program->scopes[thread->scope].parent;
}

/* ---- operands ---- */

static size_t add_operands(reader_t *reader, const event_t *line, const char *key, uint32_t index,
                           bool is_written)
{
    program_t *program = reader->program;
    uint64_t pairs[OPERANDS_MOST][2];
    size_t count = event_pairs(line, key, pairs, OPERANDS_MOST);
    if (count > OPERANDS_MOST) {
        complain(reader, line, "has more than 1024 operands");
        count = 0;
    }
    for (size_t i = 0; i < count; i++) {
        const uint32_t storage = storage_of(reader, pairs[i][0]);
        writer_t *writer = &reader->writers[storage];
        program_operand_t *operand = ADD(program->operands, program->noperands);
        *operand = (program_operand_t){ storage, PROGRAM_NONE, pairs[i][1] };
        if (is_written)
            *writer = (writer_t){ operand->writer = index, pairs[i][1] };
        else if (writer->event != PROGRAM_NONE && writer->version <= pairs[i][1])
            operand->writer = writer->event;
    }
    return count;
}

/* The operands of an op beyond eight: they join the op's own after the last line, so that many such
 * lines of one op cost no more than as many ops. */
static void add_more_operands(reader_t *reader, const event_t *line)
{
    const uint32_t op = number_table_find(&reader->ops, event_whole(line, "of"));
    if (op == NUMBER_TABLE_NONE) {
        complain(reader, line, "continues an op that the file does not have");
        return;
    }
    more_operands_t more = { .op = op, .first = reader->program->noperands, .line = line->line };
    more.nsrc = add_operands(reader, line, "src", op, false);
    more.ndst = add_operands(reader, line, "dst", op, true);
    *ADD(reader->more, reader->nmore) = more;
}

static int compare_more(const void *a, const void *b)
{
    const more_operands_t *x = a, *y = b;
    if (x->op != y->op) return x->op < y->op ? -1 : 1;
    return (x->first > y->first) - (x->first < y->first);
}

static void append(program_t *program, size_t first, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const program_operand_t operand = program->operands[first + i];
        *ADD(program->operands, program->noperands) = operand;
    }
}

static void join_operands(reader_t *reader)
{
    program_t *program = reader->program;
    if (reader->nmore) qsort(reader->more, reader->nmore, sizeof *reader->more, compare_more);
    for (size_t i = 0, end; i < reader->nmore && !reader->wrong; i = end) {
        program_event_t *event = &program->events[reader->more[i].op];
        const size_t first = program->noperands, from = event->operands;
        size_t nsrc = event->nsrc, ndst = event->ndst;
        append(program, from, nsrc);
        for (end = i; end < reader->nmore && reader->more[end].op == reader->more[i].op; end++) {
            append(program, reader->more[end].first, reader->more[end].nsrc);
            nsrc += reader->more[end].nsrc;
            ndst += reader->more[end].ndst;
        }
        append(program, from + event->nsrc, event->ndst);
        for (size_t k = i; k < end; k++)
            append(program, reader->more[k].first + reader->more[k].nsrc, reader->more[k].ndst);
        if (nsrc > UINT16_MAX || ndst > UINT16_MAX) {
            reader->wrong = "gives an op more than 65535 operands";
            reader->line = reader->more[end - 1].line;
        }
        event->operands = first;
        event->nsrc = (uint16_t)nsrc;
        event->ndst = (uint16_t)ndst;
    }
}

/* ---- kinds ---- */

static int direction_of(const char *name)
{
    static const char *const names[] = { "upload", "download", "peer" };
    for (int i = PROGRAM_UPLOAD; i <= PROGRAM_PEER; i++)
        if (strcmp(name, names[i]) == 0) return i;
    return -1;
}

static void add_device(program_t *program, const event_t *line)
{
    const uint32_t index = device_of(program, event_text(line, "device"));
    if (index == PROGRAM_NONE) return;
    program_device_t *device = &program->devices[index];
    device->profile = kept(program, line, "profile");
    device->backend = kept(program, line, "backend");
    device->options = kept(program, line, "options");
    device->memory_nbytes = event_whole(line, "bytes");
    device->is_simulated = *device->profile != 0;
}

static void add_storage(reader_t *reader, const event_t *line)
{
    program_t *program = reader->program;
    const uint32_t index = storage_of(reader, event_whole(line, "storage")),
                   device = device_of(program, event_text(line, "device"));
    program_storage_t *storage = &program->storages[index];
    storage->device = device;
    storage->nbytes = event_whole(line, "bytes");
    storage->pinned = event_whole(line, "pinned") != 0;
    if (!event_has(line, "block") || device == PROGRAM_NONE) return;
    char pool[160];
    const char *name = program->devices[device].name;
    snprintf(pool, sizeof pool, "%s%.120s",
             storage->pinned && strcmp(name, "host") != 0 ? "pinned memory of " : "", name);
    storage->block = block_of(reader, pool, event_whole(line, "block"));
}

static void fill_block(reader_t *reader, const event_t *line, program_event_t *event,
                       uint32_t index)
{
    program_t *program = reader->program;
    event->block = block_of(reader, event->name, event_whole(line, "block"));
    program_block_t *block = &program->blocks[event->block];
    block->nbytes = event->nbytes;
    block->requested_nbytes = event_whole(line, "requested_bytes");
    if (event->kind == PROGRAM_BLOCK_FREE)
        block->freed = index;
    else {
        block->allocated = index;
        block->category = event->detail = kept(program, line, "category");
    }
}

static void fill_transfer(reader_t *reader, const event_t *line, program_event_t *event,
                          uint32_t index)
{
    program_t *program = reader->program;
    event->path = kept(program, line, "path");
    event->name = kept(program, line, "reason");
    event->detail = kept(program, line, "contract");
    event->other = device_of(program, event_text(line, "other"));
    if (event_has(line, "pinned")) event->pinned = event_whole(line, "pinned") != 0;
    if (event_has(line, "blocking")) event->blocking = event_whole(line, "blocking") != 0;
    if (event->direction < 0) complain(reader, line, "has no direction of a transfer");
    if (event->stream != PROGRAM_NONE)
        *pair_table_at(&reader->queued, event->stream, event->seq) = index;
}

static void add_launch(reader_t *reader, const event_t *line)
{
    uint32_t *last = number_table_at(&reader->launches, event_whole(line, "of"));
    const uint32_t index = (uint32_t)reader->nearly;
    const program_launch_t launch = { .model_ns = event_whole(line, "model_ns"),
                                      .start_ns = event_whole(line, "model_start_ns"),
                                      .end_ns = event_whole(line, "model_end_ns"),
                                      .flops = event_whole(line, "flops"),
                                      .nbytes = event_whole(line, "bytes") };
    if (launch.end_ns < launch.start_ns) complain(reader, line, "ends before it starts");
    *ADD(reader->early, reader->nearly) = (early_launch_t){ launch, *last };
    *last = index;
}

/* The launches before the op's line become its own, if all are there and have model times. */
static void take_launches(reader_t *reader, const event_t *line, program_event_t *event)
{
    program_t *program = reader->program;
    const uint64_t count = event_whole(line, "launches");
    if (!count) return;
    uint32_t *last = number_table_at(&reader->launches, event->number);
    const uint32_t first = *last;
    uint64_t found = 0;
    *last = NUMBER_TABLE_NONE;
    for (uint32_t i = first; i != NUMBER_TABLE_NONE; i = reader->early[i].previous)
        found += reader->early[i].launch.end_ns != 0;
    if (found != count) return;
    event->launches = program->nlaunches;
    event->nlaunches = (uint32_t)count;
    for (uint64_t n = 0; n < count; n++) (void)ADD(program->launches, program->nlaunches);
    uint32_t early = first;
    for (uint64_t n = count; n-- > 0; early = reader->early[early].previous)
        program->launches[event->launches + n] = reader->early[early].launch;
}

/* Keys that some kinds have. */
static void fill(reader_t *reader, const event_t *line, program_event_t *event, uint32_t index)
{
    program_t *program = reader->program;
    switch ((program_kind_t)event->kind) {
    case PROGRAM_OP:
        event->name = kept(program, line, "op");
        event->dtype = kept(program, line, "dtype");
        event->detail = kept(program, line, "shapes");
        event->flops = event_whole(line, "flops");
        event->number = event_whole(line, "number");
        *number_table_at(&reader->ops, event->number) = index;
        take_launches(reader, line, event);
        if (!*event->name) complain(reader, line, "has no name of an op");
        break;
    case PROGRAM_TRANSFER: fill_transfer(reader, line, event, index); break;
    case PROGRAM_STARTED:
        event->on =
            (program_point_t){ stream_of(reader, line, "as_stream"), event_whole(line, "as_seq") };
        event->detail = kept(program, line, "status");
        if (event->stream != PROGRAM_NONE)
            event->parent = *pair_table_at(&reader->queued, event->stream, event->seq);
        break;
    case PROGRAM_WAIT:
        event->on =
            (program_point_t){ stream_of(reader, line, "on_stream"), event_whole(line, "on_seq") };
        event->name = kept(program, line, "site");
        event->site = keep(program, "");
        break;
    case PROGRAM_MAP: event->path = kept(program, line, "access"); break;
    case PROGRAM_SYNC:
        event->name = kept(program, line, "what");
        event->detail = kept(program, line, "reason");
        event->on = (program_point_t){ event->stream, event->seq };
        break;
    case PROGRAM_THROTTLE: event->name = kept(program, line, "reason"); break;
    case PROGRAM_ARRIVED: event->detail = kept(program, line, "status"); break;
    case PROGRAM_REFUSAL:
    case PROGRAM_FAULT:
        event->name = kept(program, line, "text");
        event->detail = kept(program, line, "status");
        break;
    case PROGRAM_POOL:
        event->name = kept(program, line, "pool");
        event->number = event_whole(line, "live_bytes");
        event->nbytes = event_whole(line, "reserved_bytes");
        break;
    case PROGRAM_SEGMENT_ALLOC:
    case PROGRAM_SEGMENT_FREE:
    case PROGRAM_BLOCKS_REACHED: event->name = kept(program, line, "pool"); break;
    case PROGRAM_BLOCK_ALLOC:
    case PROGRAM_BLOCK_FREE:
        event->name = kept(program, line, "pool");
        fill_block(reader, line, event, index);
        break;
    case PROGRAM_COPY:
    case PROGRAM_SCOPE_BEGIN:
    case PROGRAM_SCOPE_END:
    case PROGRAM_DEVICE_ALLOC:
    case PROGRAM_OPERANDS: /* these are no events of a program: add_line */
    case PROGRAM_LAUNCH:
    case PROGRAM_NAMED:
    case PROGRAM_COLLECTIVE:
    case PROGRAM_EXCHANGE:
    case PROGRAM_COLLECTIVE_RAN:
    case PROGRAM_DEVICE:
    case PROGRAM_STREAM:
    case PROGRAM_STORAGE:
    case PROGRAM_OTHER: break;
    }
}

static program_kind_t kind_of(const char *name)
{
    static const char *const names[] = { "",
#define X(name, text) #text,
                                         FY__EVENT_LIST(X)
#undef X
    };
    for (size_t i = 1; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) return (program_kind_t)i;
    return PROGRAM_OTHER;
}

static void add_times(program_t *program, program_event_t *event, const event_t *line)
{
    event->t_ns = event_whole(line, "t_ns");
    event->model_ns = event_has(line, "model_ns") ? event_whole(line, "model_ns") : PROGRAM_NO_TIME;
    event->start_ns = event_whole(line, "model_start_ns");
    event->end_ns = event_whole(line, "model_end_ns");
    if (program->end_t_ns < event->t_ns) program->end_t_ns = event->t_ns;
    if (event->model_ns == PROGRAM_NO_TIME) return;
    if (program->begin_model_ns == PROGRAM_NO_TIME) program->begin_model_ns = event->model_ns;
    if (program->end_model_ns < event->model_ns) program->end_model_ns = event->model_ns;
}

static void add_event(reader_t *reader, const event_t *line, program_kind_t kind)
{
    program_t *program = reader->program;
    const uint32_t index = (uint32_t)program->nevents;
    const char *none = keep(program, "");
    const uint32_t number = thread_of(reader, line);
    thread_t *thread = &reader->threads[number];
    program_event_t event = {
        .kind = (uint8_t)kind,
        .direction = (int8_t)direction_of(event_text(line, "direction")),
        .pinned = -1,
        .blocking = -1,
        .thread = number,
        .device = device_of(program, event_text(line, "device")),
        .stream = stream_of(reader, line, "stream"),
        .line = line->line,
        .seq = event_whole(line, "seq"),
        .nbytes = event_whole(line, "bytes"),
        .blocked_ns = event_whole(line, "blocked_ns"),
        .operands = program->noperands,
        .name = none,
        .path = none,
        .detail = none,
        .site = kept(program, line, "site"),
        .dtype = none,
        .tensors = kept(program, line, "names"),
        .on = { PROGRAM_NONE, 0 },
        .other = PROGRAM_NONE,
        .block = PROGRAM_NONE,
        .parent = PROGRAM_NONE,
    };
    add_times(program, &event, line);
    if (event.end_ns < event.start_ns) complain(reader, line, "ends before it starts");
    enter_scope(reader, thread, &event, kept(program, line, "scope"), index);
    event.scope = thread->scope;
    fill(reader, line, &event, index);
    if (kind == PROGRAM_OP || kind == PROGRAM_TRANSFER || kind == PROGRAM_MAP) {
        event.nsrc = (uint16_t)add_operands(reader, line, "src", index, false);
        event.ndst = (uint16_t)add_operands(reader, line, "dst", index, true);
    }
    if (kind == PROGRAM_SCOPE_END) leave_scope(program, thread, index);
    *ADD(program->events, program->nevents) = event;
}

static void add_line(void *user, const event_t *line)
{
    reader_t *reader = user;
    program_t *program = reader->program;
    const char *name = event_text(line, "ev");
    if (reader->wrong) return;
    if (program->nevents == PROGRAM_NONE - 1 || reader->nearly == PROGRAM_NONE - 1)
        complain(reader, line, "is beyond the 4294967294 events that a program can have");
    else if (strcmp(name, "stream") == 0) {
        const uint32_t stream = stream_of(reader, line, "stream");
        if (stream == PROGRAM_NONE) return;
        program->streams[stream] =
            (program_stream_t){ kept(program, line, "name"),
                                device_of(program, event_text(line, "device")) };
    } else if (strcmp(name, "device") == 0)
        add_device(program, line);
    else if (strcmp(name, "storage") == 0)
        add_storage(reader, line);
    else if (strcmp(name, "operands") == 0)
        add_more_operands(reader, line);
    else if (strcmp(name, "launch") == 0)
        add_launch(reader, line);
    else if (strcmp(name, "named") != 0)
        add_event(reader, line, kind_of(name));
    if (program->ndevices > DEVICES_MOST)
        complain(reader, line, "names a device beyond the 4096 that a program can have");
}

/* ---- all of it ---- */

fy_status_t program_read(const char *path, uint64_t most, program_t *out_program)
{
    program_t *program = out_program;
    reader_t reader = { .program = program };
    event_file_info_t info = { .is_whole = false };
    text_lines_t lines;
    *program = (program_t){ .begin_model_ns = PROGRAM_NO_TIME };
    (void)add_scope(program, keep(program, ""), 0, 0, PROGRAM_NONE);
    fy_status_t status = text_lines_open(&lines, path, "event file");
    if (status == FY_STATUS_OK) {
        lines.most = most;
        status = event_lines_read(&lines, add_line, &reader, &info);
        text_lines_close(&lines);
    }
    if (status == FY_STATUS_OK) join_operands(&reader);
    if (status == FY_STATUS_OK && reader.wrong)
        status = TOOL_FAIL(CORRUPT_DATA, "%s is damaged: line %llu %s", path,
                           (unsigned long long)reader.line, reader.wrong);
    program->lost = info.lost;
    program->memory_nbytes = info.memory_nbytes;
    program->is_whole = info.is_whole;
    program->is_cut = most && info.lines == most && !info.has_end;
    if (program->begin_model_ns == PROGRAM_NO_TIME) program->begin_model_ns = 0;
    if (status == FY_STATUS_OK) program_claim_pieces(program);
    program_find_steps(program);
    free(reader.threads);
    free(reader.writers);
    free(reader.early);
    free(reader.more);
    number_table_free(&reader.thread_numbers);
    number_table_free(&reader.stream_numbers);
    number_table_free(&reader.storages);
    number_table_free(&reader.ops);
    number_table_free(&reader.launches);
    text_index_free(&reader.pools);
    pair_table_free(&reader.blocks);
    pair_table_free(&reader.queued);
    return status;
}

void program_free(program_t *program)
{
    free(program->events);
    free(program->operands);
    free(program->launches);
    free(program->devices);
    free(program->streams);
    free(program->storages);
    free(program->blocks);
    free(program->scopes);
    free(program->steps);
    text_index_free(&program->texts);
    *program = (program_t){ 0 };
}
