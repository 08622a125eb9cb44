/* Ranks that are threads of this process, on a transport of host memory whose messages and polls
 * fail on request: for programs that are linked with the allocator's calls wrapped
 * (tests/support/host_memory.h). */
#ifndef FERRY_TEST_DIST_SEATS_H_
#define FERRY_TEST_DIST_SEATS_H_

#include <pthread.h>

#include "dist/group.h"
#include "tests/support/harness.h"
#include "tests/support/host_memory.h"

/* ---- the transport ---- */

enum { RANKS = 3, CHANNELS = 3, BEAT_MS = 40 };

typedef struct letter {
    struct letter *next;
    size_t nbytes;
    char data[];
} letter_t;

typedef struct network {
    pthread_mutex_t lock;
    letter_t *boxes[CHANNELS][RANKS][RANKS]; /* from, to */
    bool is_gone[RANKS];
} network_t;

typedef struct port {
    network_t *network;
    int rank;
    int posts, tests; /* until one fails; 0: none does */
    int requests;     /* open */
    bool failed, leaves_quietly;
    bool loses_beats, holds_beats; /* a beat that is sent fails; is never done */
} port_t;

typedef struct receipt {
    int channel, peer;
    bool is_send;
    void *data;
    size_t nbytes;
} receipt_t;

static inline bool fails(port_t *port, int *left, char *error)
{
    if (*left == 0 || --*left > 0) return false;
    port->failed = true;
    snprintf(error, FYD_ERROR_SIZE, "planted");
    return true;
}

/* For LeakSanitizer: a broken group keeps the bytes that its transport may still use (rule 6 of
 * dist.h), and this transport keeps the requests that were open. */
const char *__lsan_default_suppressions(void) __attribute__((weak)); /* in each file */
const char *__lsan_default_suppressions(void)
{
    return "leak:fyd_operand_open\nleak:fyd_operand_stage\nleak:fyd_operand_close\nleak:post_"
           "message\nleak:make_part\n";
}

static inline bool post_message(void *context, fyd_channel_t channel, bool is_send, void *data,
                                size_t nbytes, int peer, void **out_request, char *error)
{
    port_t *port = context;
    *out_request = NULL;
    if (fails(port, &port->posts, error)) return false;
    receipt_t *receipt = malloc(sizeof *receipt);
    letter_t *letter = is_send ? malloc(sizeof *letter + nbytes) : NULL;
    if (!receipt || (is_send && !letter)) {
        free(receipt);
        free(letter);
        snprintf(error, FYD_ERROR_SIZE, "no memory for a message");
        return false;
    }
    *receipt = (receipt_t){ (int)channel, peer, is_send, data, nbytes };
    if (is_send) {
        *letter = (letter_t){ NULL, nbytes };
        memcpy(letter->data, data, nbytes);
        pthread_mutex_lock(&port->network->lock);
        letter_t **end = &port->network->boxes[channel][port->rank][peer];
        while (*end) end = &(*end)->next;
        *end = letter;
        pthread_mutex_unlock(&port->network->lock);
    }
    *out_request = receipt;
    port->requests++;
    return true;
}

static inline bool test(void *context, void *request, bool *is_done, char *error)
{
    port_t *port = context;
    receipt_t *receipt = request;
    *is_done = false;
    if (fails(port, &port->tests, error)) return false;
    const bool is_sent_beat = receipt->is_send && receipt->channel == FYD_BEATS;
    if (is_sent_beat && port->loses_beats) snprintf(error, FYD_ERROR_SIZE, "planted");
    if (is_sent_beat && (port->loses_beats || port->holds_beats)) return !port->loses_beats;
    if (!receipt->is_send) {
        pthread_mutex_lock(&port->network->lock);
        letter_t **box = &port->network->boxes[receipt->channel][receipt->peer][port->rank];
        letter_t *letter = *box;
        const bool is_gone = port->network->is_gone[receipt->peer];
        if (letter) *box = letter->next;
        pthread_mutex_unlock(&port->network->lock);
        if (!letter && is_gone && receipt->channel == FYD_CALLS) {
            snprintf(error, FYD_ERROR_SIZE, "it has gone");
            return false;
        }
        if (!letter) return true;
        assert_true(letter->nbytes <= receipt->nbytes);
        memcpy(receipt->data, letter->data, letter->nbytes);
        free(letter);
    }
    free(receipt);
    port->requests--;
    *is_done = true;
    return true;
}

static inline void cancel(void *context, void *request)
{
    port_t *port = context;
    port->requests--;
    free(request);
}

static inline void hang_up(void *context, bool is_orderly)
{
    port_t *port = context;
    (void)is_orderly;
    pthread_mutex_lock(&port->network->lock);
    port->network->is_gone[port->rank] = !port->leaves_quietly;
    pthread_mutex_unlock(&port->network->lock);
}

/* ---- ranks ---- */

typedef fy_status_t (*program_fn)(fy_group_t *group, fy_device_t *device);

typedef struct seat {
    port_t port;
    int size, allocations; /* until one fails; -1: none does */
    int faulty;            /* as an argument of run: the rank that has the faults, from the last */
    fy_device_t *device;
    program_fn program;
    fy_status_t status;
    bool failed, lacks_threads;
    bool exits;           /* if it fails, without closing its group: no last beat, no waiting */
    int left;             /* requests that are open behind an orderly end */
    uint64_t deadline_ns; /* 0: as usual */
    char text[512];
} seat_t;

static inline void *sit(void *user)
{
    seat_t *seat = user;
    fy_group_options_t options = FY_GROUP_OPTIONS_INIT;
    fyd_transport_t transport = { .context = &seat->port,
                                  .rank = seat->port.rank,
                                  .size = seat->size,
                                  .has_threads = !seat->lacks_threads,
                                  .eager_nbytes = 4000,
                                  .beat_ns = BEAT_MS * 1000000u,
                                  .host = "here",
                                  .post = post_message,
                                  .test = test,
                                  .cancel = cancel,
                                  .close = hang_up };
    fy_group_t *group;
    options.silence_ns = FY_FOREVER;
    if (seat->deadline_ns) options.deadline_ns = seat->deadline_ns;
    const fy_scope_t scope = fy_scope_begin("rank");
    ts_fail_allocation(seat->allocations);
    seat->status = fyd_group_make(&transport, &options, &group);
    if (seat->status == FY_STATUS_OK) seat->status = seat->program(group, seat->device);
    if (seat->status != FY_STATUS_OK)
        snprintf(seat->text, sizeof seat->text, "%.500s", fy_error_get()->text);
    seat->failed = seat->port.failed || (seat->allocations >= 0 && ts_allocation_failed());
    ts_fail_allocation(-1);
    if (group && seat->exits && seat->status != FY_STATUS_OK) {
        pthread_mutex_lock(&group->engine);
        (void)fyd_break(group, -1);
        pthread_mutex_unlock(&group->engine);
    }
    if (group && !fyd_group_end(group))
        fyd_group_free(group); /* no MPI uses its memory */
    else
        seat->left = seat->port.requests;
    fy_scope_end(scope, 0, NULL);
    return NULL;
}

static inline void clear(network_t *network)
{
    for (int i = 0; i < CHANNELS * RANKS * RANKS; i++)
        for (letter_t *letter = (&network->boxes[0][0][0])[i], *next; letter; letter = next) {
            next = letter->next;
            free(letter);
        }
}

/* Runs the program on `size` ranks; the faults are those of the last one, or of one before it. */
static inline seat_t run(int size, const char *const *specs, program_fn program, seat_t faults,
                         seat_t *seats)
{
    network_t network = { .lock = PTHREAD_MUTEX_INITIALIZER };
    pthread_t threads[RANKS];
    for (int r = 0; r < size; r++) {
        seats[r] = (seat_t){ .size = size,
                             .allocations = -1,
                             .program = program,
                             .deadline_ns = faults.deadline_ns,
                             .lacks_threads = faults.lacks_threads,
                             .exits = faults.exits };
        if (r == size - 1 - faults.faulty)
            seats[r].port = faults.port, seats[r].allocations = faults.allocations;
        seats[r].port.network = &network;
        seats[r].port.rank = r;
        ts_ok(fy_device_open(specs[r], &seats[r].device));
    }
    for (int r = 0; r < size; r++)
        assert_int_equal(pthread_create(&threads[r], NULL, sit, &seats[r]), 0);
    for (int r = 0; r < size; r++) pthread_join(threads[r], NULL);
    for (int r = 0; r < size; r++) {
        (void)!fy_device_wait(seats[r].device, FY_FOREVER);
        if (strncmp(specs[r], "host", 4) != 0 && ts_live(seats[r].device) > 0)
            fail_msg("rank %d left %llu bytes on %s", r,
                     (unsigned long long)ts_live(seats[r].device), specs[r]);
        fy_device_close(seats[r].device);
        if (seats[r].left) fail_msg("rank %d left %d requests open", r, seats[r].left);
    }
    clear(&network);
    return seats[size - 1];
}

/* All ranks succeed. */
static inline void all_hold(int size, const char *const *specs, program_fn program, seat_t options)
{
    seat_t seats[RANKS];
    (void)run(size, specs, program, options, seats);
    for (int r = 0; r < size; r++)
        if (seats[r].status != FY_STATUS_OK) fail_msg("rank %d of %d: %s", r, size, seats[r].text);
}

static const char *const hosts[] = { "host", "host", "host" };
static const char *const sims[] = { "sim:4", "sim:5", "sim:6" };
static const seat_t no_faults = { .allocations = -1 };

#endif
