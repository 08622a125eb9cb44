/* Programs that use many streams at once, and the trace of the values they saw. The trace of a
 * program must not depend on the order in which the simulator runs unordered requests. With one of
 * Ferry's waits dropped it must differ in some order.
 * Not here: the choice of programs and orders (test_orders.c, test_waits.c). See README.md. */
#ifndef FERRY_TESTS_MUTATION_MUTATION_H_
#define FERRY_TESTS_MUTATION_MUTATION_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferry/ferry.h>

/* ---- the trace ---- */

enum { MU_TAPE_NBYTES = 1 << 17, MU_TAPE_NOTES = 1024 };

/* Every byte and every status that a program saw, in the order in which it saw them. */
typedef struct mu_tape {
    size_t nbytes, nnotes;
    bool is_full;
    struct {
        const char *what; /* static */
        size_t begin;
    } notes[MU_TAPE_NOTES];
    unsigned char bytes[MU_TAPE_NBYTES];
} mu_tape_t;

void mu_tape_clear(mu_tape_t *tape);
/* Describes the first difference, in a static buffer; NULL if there is none. */
const char *mu_tape_compare(const mu_tape_t *want, const mu_tape_t *got);

/* ---- a run of a program ---- */

typedef struct mu_run {
    const char *order; /* "order=random&seed=7" */
    fy_device_t *devices[2];
    mu_tape_t *tape;
    const char *stopped; /* the call that ended the program early; NULL: it ran to its end */
} mu_run_t;

typedef struct mu_program {
    const char *name;
    const char *options; /* of its devices, beside the order */
    int ndevices;
    /* in a separate scope; tensors that it leaves are freed when the device closes */
    void (*run)(mu_run_t *run);
} mu_program_t;

extern const mu_program_t mu_programs[];
extern const size_t mu_program_count;

/* Opens the devices, runs the program, closes them without waiting. `tape` is cleared first.
 * Returns the call that ended it early. */
const char *mu_program_run(const mu_program_t *program, const char *order, mu_tape_t *tape);
/* "eager", "lazy" for seed 0, else "order=random&seed=N"; a static buffer. */
const char *mu_order(uint64_t seed);

/* ---- for the programs ---- */

void mu_note(mu_run_t *run, const char *what, const void *bytes, size_t nbytes);
/* Notes a status; true if it is OK. */
bool mu_ok(mu_run_t *run, const char *what, fy_status_t status);
/* Ends the program if `expr` fails: the failure is on the tape, and no program expects it. */
#define MU_TRY(run, expr)                   \
    do {                                    \
        if (!mu_ok((run), #expr, (expr))) { \
            (run)->stopped = #expr;         \
            return;                         \
        }                                   \
    } while (0)

/* The defaults, with FY_HOST_BORROW. */
extern const fy_transfer_options_t mu_borrowed;

/* f32 tensors of `n` elements first, first + 1, ... in the current scope; NULL if that failed. */
fy_tensor_t *mu_host(mu_run_t *run, int64_t n, float first);
fy_tensor_t *mu_pinned(mu_run_t *run, fy_device_t *device, int64_t n, float first);
fy_tensor_t *mu_upload(mu_run_t *run, fy_device_t *device, int64_t n, float first);
/* Writes such values to host memory, even while a transfer reads it. */
void mu_count_up(float *values, int64_t n, float first);
/* Downloads the tensor and notes its bytes, or the status of the failure. */
void mu_read(mu_run_t *run, const char *what, const fy_tensor_t *tensor);
/* Notes a host tensor's bytes. */
void mu_see(mu_run_t *run, const char *what, fy_tensor_t *host);
/* Waits for a download and notes its bytes, or the status of the failure. */
void mu_arrive(mu_run_t *run, const char *what, fy_download_t *download);
/* dst = dst / 2 + src, f32 [n], on the current stream. It takes 0.1 ms of the model clock, which is
 * long. */
bool mu_linger(mu_run_t *run, fy_tensor_t *dst, fy_tensor_t *src);
/* `n` streams of the run's first device. */
bool mu_streams(mu_run_t *run, int n, fy_stream_t **out_streams);

#endif
