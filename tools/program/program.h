/* A recorded program in memory: all events of a file in its order, and tables of what they name:
 * devices, streams, storages, blocks, scopes, steps. For tools that look at a run more than once.
 * Items refer to others by index into the tables; PROGRAM_NONE: none. Texts that are equal are the
 * same pointer, and are never NULL; "" is none.
 * Not here: lines of the file (tools/cli/event_file.h), sums (tools/cli/event_totals.h), model
 * times on another device (predict.h). Next: program.c. */
#ifndef FERRY_TOOLS_PROGRAM_H_
#define FERRY_TOOLS_PROGRAM_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferry/status.h>

#include "runtime/base/event_list.h"
#include "tools/cli/event_file.h"
#include "tools/cli/tables.h"

#define PROGRAM_NONE    UINT32_MAX
#define PROGRAM_NO_TIME UINT64_MAX

/* A kind that the list does not have is PROGRAM_OTHER. */
typedef enum program_kind {
    PROGRAM_OTHER,
#define X(name, text) PROGRAM_##name,
    FY__EVENT_LIST(X)
#undef X
} program_kind_t;

/* A request on a stream's timeline. stream PROGRAM_NONE: done when its call returned. */
typedef struct program_point {
    uint32_t stream; /* of program_t.streams */
    uint64_t seq;
} program_point_t;

/* Bytes that an event reads or writes, in one version. A file, or an operand that is left out, is
 * none. */
typedef struct program_operand {
    uint32_t storage;
    uint32_t
        writer; /* bytes that are read: the event that wrote them; PROGRAM_NONE: host code, or it
                         was before the recording. Bytes that are written: the event itself */
    uint64_t version;
} program_operand_t;

/* 0 and "" where the file has no such key. */
typedef struct program_event {
    uint8_t kind;                           /* program_kind_t */
    int8_t direction;                       /* TRANSFER, COPY: program_direction_t; else -1 */
    int8_t pinned, blocking;                /* TRANSFER: 0 or 1; -1: unknown */
    uint16_t nsrc, ndst;                    /* of operands, sources first */
    uint32_t thread, scope, device, stream; /* scope: of program_t.scopes */
    uint64_t line;                          /* in the file, from 1 */
    uint64_t t_ns, model_ns;                /* of the host; PROGRAM_NO_TIME: no model clock yet */
    uint64_t seq, nbytes, blocked_ns;
    uint64_t start_ns, end_ns; /* by the model clock; end_ns 0: unknown */
    size_t operands;           /* first in program_t.operands */
    /* name: the op; of a SYNC what waits; of a WAIT, TRANSFER, THROTTLE the reason; of a REFUSAL,
     * FAULT its text; of memory the pool. path: of a TRANSFER, MAP ("read", ...). detail: of a
     * TRANSFER the contract, of a BLOCK_ALLOC the category, of an OP the shapes of
     * its operands as a list, sources first, else the status. */
    const char *name, *path, *detail, *site, *dtype;
    /* names of the operands of an OP, a TRANSFER: "x, w1, -"; "": none has one */
    const char *tensors;
    uint64_t flops;     /* OP */
    uint32_t nlaunches; /* OP: of a graph's replay, in program_t.launches; 0: one, or unknown */
    size_t launches;    /* the first of them */
    uint64_t number;    /* OP: in the recording; TRANSFER, STARTED: its pieces */
    program_point_t on; /* WAIT, SYNC: the awaited point; STARTED: the request */
    uint32_t other;     /* TRANSFER: the device at the other end of a peer copy */
    uint32_t block;     /* BLOCK_*: of program_t.blocks */
    /* event; COPY: the TRANSFER or STARTED of which it is a piece; STARTED: its TRANSFER */
    uint32_t parent;
} program_event_t;

/* One launch of a graph's replay. */
typedef struct program_launch {
    uint64_t model_ns; /* when the host had submitted it */
    uint64_t start_ns, end_ns, flops, nbytes;
} program_launch_t;

typedef enum program_direction {
    PROGRAM_UPLOAD,
    PROGRAM_DOWNLOAD,
    PROGRAM_PEER
} program_direction_t;

typedef struct program_device {
    const char *name;    /* "sim:0" */
    const char *profile; /* "h200", a file's name for itself; "" if the file does not say */
    const char *backend, *options;
    uint64_t memory_nbytes; /* 0: unknown */
    bool is_simulated;
} program_device_t;

/* Streams have their numbers in the file as index; `device` is PROGRAM_NONE if it has no such. */
typedef struct program_stream {
    const char *name; /* "compute", "upload", ... */
    uint32_t device;
} program_stream_t;

typedef struct program_storage {
    uint64_t id; /* in the file */
    uint64_t nbytes;
    uint32_t device, block; /* block PROGRAM_NONE: memory of the program */
    bool pinned;
} program_storage_t;

typedef struct program_block {
    const char *pool, *category;
    uint64_t id, nbytes, requested_nbytes;
    /* events; allocated PROGRAM_NONE: before the recording; freed PROGRAM_NONE: not by its end */
    uint32_t allocated, freed;
} program_block_t;

/* One run of a scope. */
typedef struct program_scope {
    const char *path;
    uint32_t parent;     /* the scope around it */
    uint32_t begin, end; /* events; PROGRAM_NONE: before the recording, after its end */
    uint32_t thread;
    uint32_t step; /* the step around it, or itself; PROGRAM_NONE: none */
} program_scope_t;

typedef struct program {
    program_event_t *events;
    program_operand_t *operands;
    program_launch_t *launches;
    program_device_t *devices;
    program_stream_t *streams;
    program_storage_t *storages;
    program_block_t *blocks;
    program_scope_t *scopes; /* 0: outside of any */
    uint32_t *steps;         /* scopes, in the order in which they begin */
    size_t nevents, noperands, nlaunches, ndevices, nstreams, nstorages, nblocks, nscopes, nsteps;
    const char *step_path;                 /* of the steps; "" if there are none */
    uint64_t begin_model_ns, end_model_ns; /* of the first and the last event that has one */
    uint64_t end_t_ns;                     /* of the last event */
    uint64_t memory_nbytes;                /* of the host; 0: unknown */
    uint64_t lost;                         /* events that the ring had no room for */
    bool is_whole;      /* the file has its end, and as many lines as that says */
    bool is_cut;        /* lines were left out: there were more than `most` */
    text_index_t texts; /* the program's own */
} program_t;

/* Reads a file's first `most` lines; 0: all. Steps are the runs of one scope that repeats: one
 * called "step" with at least a fifth of the requests that the largest such scope has; else, of
 * those with at least four fifths, the one that repeats most often.
 * Free *out_program, also after a failure. Fails: IO, CORRUPT_DATA (with the line), OUT_OF_MEMORY.
 * A file that just ends is OK; is_whole is false then. */
fy_status_t program_read(const char *path, uint64_t most, program_t *out_program);
void program_free(program_t *program);
/* pieces.c, for program_read: sets `parent` of COPY events, and `number` of what they belong to. */
void program_claim_pieces(program_t *program);
/* steps.c, for program_read: sets `step_path`, `steps` and each scope's `step`. */
void program_find_steps(program_t *program);
/* The event's operand `i`, sources first. */
static inline const program_operand_t *program_operand(const program_t *program,
                                                       const program_event_t *event, size_t i)
{
    return &program->operands[event->operands + i];
}

#endif
