/* Kinds of waste that the corpus can plant in a step: each is what a program does that knows no
 * better. Not here: which rule finds which kind (test_advise.sh). */
#ifndef FERRY_TESTS_ADVISOR_WASTE_H_
#define FERRY_TESTS_ADVISOR_WASTE_H_

#include <stdbool.h>

#include <ferry/ferry.h>

/* Name of the plant, and the waste. */
#define WASTE_LIST(X)                                                                     \
    X(SCALAR_READ, "scalar-read", "waits for one element in each step")                   \
    X(BLOCKING_READ, "blocking-read", "waits for a matrix in each step")                  \
    X(DEVICE_WAIT, "device-wait", "waits for the device in each step, and reads nothing") \
    X(SMALL_COPIES, "small-copies", "uploads many small tensors one by one")              \
    X(STAGED, "staged", "uploads a large batch from pageable memory in each step")        \
    X(ROUND_TRIP, "round-trip", "downloads a matrix and uploads the same bytes")          \
    X(AGAIN, "again", "uploads the same bytes a second time, now and then")               \
    X(RELOAD, "reload", "uploads unchanged weights in each step")                         \
    X(NEVER_READ, "never-read", "downloads what nothing waits for")                       \
    X(NEVER_USED, "never-used", "uploads what no request reads")                          \
    X(ONE_BUFFER, "one-buffer", "uploads into the buffer that the device still reads")    \
    X(HOST_OP, "host-op", "computes one op of the step on the host")                      \
    X(ALLOC, "alloc", "allocates device memory from the driver in each step")             \
    X(PIN, "pin", "page-locks a buffer in each step")                                     \
    X(PINNED_IDLE, "pinned-idle", "page-locks memory that no transfer uses")              \
    X(CHAIN, "chain", "submits elementwise ops on a large tensor one by one")             \
    X(HOST_WORK, "host-work", "computes a batch on the host in each step")                \
    X(PINNED_MOST, "pinned-most", "page-locks most of the host's memory")                 \
    X(COPY_INTO, "copy-into", "downloads into a tensor of the host in each step")         \
    X(EARLY_WRITE, "early-write", "writes a source that its upload still reads")          \
    X(TURNS, "turns", "uploads into the buffer that is still downloaded")                 \
    X(SLOW_COPY, "slow-copy", "uploads over a link that is slower than calibrated")       \
    X(TINY_OPS, "tiny-ops", "submits many small ops one by one in each step")             \
    X(LATE_UPLOAD, "late-upload", "uploads a matrix in the step that reads it")           \
    X(RAGGED_OPS, "ragged-ops", "submits small ops, of another length in each step")

typedef enum waste_kind {
    WASTE_NONE,
#define X(name, text, what) WASTE_##name,
    WASTE_LIST(X)
#undef X
        WASTE_COUNT
} waste_kind_t;

/* Options of a transfer with the call site of this line. */
#define HERE &(fy_transfer_options_t)FY_TRANSFER_OPTIONS_HERE

enum { SMALL = 24, SPARES = 4, TINY = 160 };

typedef struct waste {
    waste_kind_t kind;
    fy_device_t *device;
    fy_tensor_t *source, *target; /* host and device tensors of the plant, of one size */
    fy_tensor_t *noise;           /* on the host */
    fy_tensor_t *small_source[SMALL], *small_target[SMALL]; /* the targets are views of `target` */
    fy_ticket_t sent;
    fy_tensor_t *spare[SPARES];     /* targets that take turns */
    fy_download_t *replies[SPARES]; /* of `target`, read some steps later */
    int step;
} waste_t;

/* WASTE_COUNT: there is none of that name. "clean" is WASTE_NONE. */
waste_kind_t waste_named(const char *name);
/* Makes the tensors of the plant. */
fy_status_t waste_create(waste_t *waste, fy_device_t *device, waste_kind_t kind);
/* Once in a step, before its ops; *h [n, WIDTH] is an activation and may be replaced. */
fy_status_t waste_in_step(waste_t *waste, fy_tensor_t **h);
/* Copies a result into a tensor of the host, and reads it. */
fy_status_t waste_read(fy_tensor_t *result);
/* Once in a step, behind its ops. */
fy_status_t waste_after_ops(waste_t *waste);
/* After the last step: reads what is still on its way. */
fy_status_t waste_end(waste_t *waste);

#endif
