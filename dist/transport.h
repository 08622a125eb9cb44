/* What a group needs of an MPI: messages between ranks that are polled. Each MPI has an ABI of its
 * constants and handles, so mpi.c is compiled once for each and loaded as a plugin. It includes
 * nothing else of Ferry. A group calls from one thread at a time. Next: exchange.c. */
#ifndef FERRY_DIST_TRANSPORT_H_
#define FERRY_DIST_TRANSPORT_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FYD_ERROR_SIZE = 256, FYD_NAME_SIZE = 64 };

/* Messages of one channel between two ranks keep their order. */
typedef enum fyd_channel { FYD_CALLS = 1, FYD_BEATS = 2 } fyd_channel_t;

typedef struct fyd_transport {
    void *context; /* for the functions */
    int rank, size, local_rank;
    /* The functions may be called by a thread that did not open it, also while the program calls
     * MPI. false: by the thread of fy_group_open only */
    bool has_threads;
    size_t eager_nbytes; /* messages up to here are sent at once, not when they are received */
    char engine[FYD_NAME_SIZE], host[FYD_NAME_SIZE];
    /* The functions return false after an error and write its text. `data` stays valid until the
     * request is done. At most INT_MAX bytes; a message may be shorter than its receiver's room. */
    bool (*post)(void *context, fyd_channel_t channel, bool is_send, void *data, size_t nbytes,
                 int peer, void **out_request, char error[FYD_ERROR_SIZE]);
    /* *is_done: the request is freed */
    bool (*test)(void *context, void *request, bool *is_done, char error[FYD_ERROR_SIZE]);
    /* frees a receive to which no message will come */
    void (*cancel)(void *context, void *request);
    /* finalises MPI if open initialised it and is_orderly */
    void (*close)(void *context, bool is_orderly);
    /* Between two beats, the same on all ranks; 0: a second. Tests take less, to fail sooner: the
     * group's thread still looks four times a second, and silence_ns is for beats of a second. */
    uint64_t beat_ns;
} fyd_transport_t;

/* FYD_LATE: not all ranks have come; a later call goes on waiting. */
typedef enum fyd_open_result { FYD_OPEN, FYD_FINALISED, FYD_LATE, FYD_FAILED } fyd_open_result_t;

/* The one symbol of a plugin. After any change of this header its number is the next one: a plugin
 * of another version lacks the symbol, and is refused. deadline_ns: how long MPI may wait for all
 * ranks; UINT64_MAX: for ever. */
#define FYD_OPEN_SYMBOL "fyd_transport_open_2"
fyd_open_result_t fyd_transport_open_2(fyd_transport_t *out, uint64_t deadline_ns,
                                       char error[FYD_ERROR_SIZE]);
typedef fyd_open_result_t (*fyd_transport_open_fn)(fyd_transport_t *out, uint64_t deadline_ns,
                                                   char error[FYD_ERROR_SIZE]);

#endif
