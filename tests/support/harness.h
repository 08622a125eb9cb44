/* The base of every test of public behaviour: status assertions that print the error record, and
 * the list of devices under test. Each TS_DEVICE_TEST (test.h) gets a freshly opened device and an
 * open scope. Afterwards the scope is ended and the runner checks: the device's live bytes are back
 * at the start value, no memory was freed under a request of a simulated device, and the ledger
 * grew by the bytes that executors copied.
 * Not here: tensors in other layouts (operand.h), expected values (oracle.h).
 * FERRY_TEST_DEVICE=spec[,spec...] replaces the default devices "host,sim:0"; FERRY_TEST_REQUIRE=1
 * makes a missing device a failure. */
#ifndef FERRY_TESTS_SUPPORT_HARNESS_H_
#define FERRY_TESTS_SUPPORT_HARNESS_H_

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "tests/support/test.h"

/* ---- statuses ---- */

#define ts_ok(expr)          ts__ok((expr), #expr, __FILE__, __LINE__)
#define ts_fails(expr, code) ts__fails((expr), FY_STATUS_##code, #expr, __FILE__, __LINE__, ts__end)
/* And the error's text contains each part: ts_fails_with(call(), OUT_OF_MEMORY, "7 bytes", ...). */
#define ts_fails_with(expr, code, ...) \
    ts__fails((expr), FY_STATUS_##code, #expr, __FILE__, __LINE__, __VA_ARGS__, ts__end)
/* The last error's text contains `part`. */
#define ts_text_has(part) ts__text_has((part), __FILE__, __LINE__)
extern const char ts__end[]; /* ends the list of parts */
void ts__ok(fy_status_t status, const char *expr, const char *file, int line);
void ts__fails(fy_status_t status, fy_status_t want, const char *expr, const char *file, int line,
               ...);
void ts__text_has(const char *part, const char *file, int line);

/* ---- devices under test ---- */

size_t ts_device_count(void);
const char *ts_device_spec(size_t index);
/* "sim:0" of "sim:0?capacity=1MiB", in a buffer of this thread. */
const char *ts_spec_name(const char *spec);
/* The spec with another option: "sim:0" + "limit=1MiB" -> "sim:0?limit=1MiB"; keeps the existing
 * options. Uses four buffers of this thread alternately. */
const char *ts_spec_with(const char *spec, const char *option);

/* Opens the device under test again with options, in place of the runner's (one spec, one device).
 * The runner closes it. Not for the host, which has no options. ts_reopen opens it without them. */
fy_device_t *ts_open_with(ts_ctx_t *ctx, const char *options);
void ts_reopen(ts_ctx_t *ctx, fy_device_t *device);

/* Opens another device. It is closed after the test, behind the scope of the test. A TS_TEST has a
 * scope "test" from its first such call on. ts_close ends that scope and closes the devices now. */
fy_device_t *ts_open(const char *spec);
void ts_close(void);
extern bool ts__has_scope; /* the runner's scope is open */

/* ---- figures ---- */

fy_ledger_totals_t ts_ledger(const char *path);
/* `after` minus `before` of the sums that a refused call must not change. Prints and fails if any
 * is not zero. */
void ts_expect_quiet(const fy_ledger_totals_t *before, const fy_ledger_totals_t *after,
                     const char *what);
/* The same, with the present sums as `after`. */
void ts_expect_quiet_since(const fy_ledger_totals_t *before, const char *what);
uint64_t ts_live(const fy_device_t *device);
fy_memory_stats_t ts_memory(const fy_device_t *device, const char *path);
fy_memory_stats_t ts_memory_pinned(const fy_device_t *device);
uint64_t ts_version(const fy_tensor_t *tensor);
fy_tensor_info_t ts_info(const fy_tensor_t *tensor);
fy_graph_info_t ts_graph_info(const fy_graph_t *graph);

/* ---- short functions to make and read tensors ---- */

/* A host tensor with a copy of `values` (f32), in the current scope. */
fy_tensor_t *ts_host_f32(int rank, const int64_t *dims, const float *values);
/* The same, uploaded. */
fy_tensor_t *ts_f32(fy_device_t *device, int rank, const int64_t *dims, const float *values);
/* i, i+1, ... as f32 on `device`. */
fy_tensor_t *ts_iota(fy_device_t *device, int rank, const int64_t *dims, float first);
/* Their values are not set; ts_bytes: u8, ts_pinned: page-locked f32, ts_pinned_bytes: both. */
fy_tensor_t *ts_empty(fy_device_t *device, fy_dtype_t dtype, int rank, const int64_t *dims);
fy_tensor_t *ts_zeros(fy_device_t *device, fy_dtype_t dtype, int rank, const int64_t *dims);
fy_tensor_t *ts_pinned_bytes(fy_device_t *device, int64_t n);
fy_tensor_t *ts_bytes(fy_device_t *device, int64_t n);
fy_tensor_t *ts_pinned(fy_device_t *device, int64_t n);
/* f32, every element equal to `value`. */
fy_tensor_t *ts_full(fy_device_t *device, int rank, const int64_t *dims, double value);
/* Rows 1 and 99 of a table that has fewer: the request fails with BAD_VALUE. */
fy_tensor_t *ts_bad_rows(const fy_tensor_t *table);
/* The defaults, with `convert`. */
extern const fy_transfer_options_t ts_convert;
/* Downloads `tensor` into `out` (dense, its own dtype); fails the test if that fails or if nbytes
 * differs. */
void ts_read(const fy_tensor_t *tensor, void *out, size_t nbytes);
/* Every element of f32 `tensor` equals `want`. */
void ts_expect_f32(const fy_tensor_t *tensor, const float *want, size_t n);

/* A copy of the dense `values` on `device`. */
fy_tensor_t *ts_upload(fy_device_t *device, fy_dtype_t dtype, int rank, const int64_t *dims,
                       const void *values);
/* Downloads and waits. The result is on the host; ts_value: its one element. ts_try_download drops
 * it and returns the first failure. */
fy_tensor_t *ts_download(const fy_tensor_t *tensor);
double ts_value(const fy_tensor_t *tensor);
fy_status_t ts_try_download(const fy_tensor_t *tensor);
/* The download is submitted, and its wait fails: ts_download_fails(x, IO, "a part", ...). */
#define ts_download_fails(tensor, code, ...)                                                  \
    do {                                                                                      \
        fy_download_t *download_ = ts_submit_download(tensor);                                \
        fy_tensor_t *host_;                                                                   \
        ts__fails(fy_download_wait(download_, FY_FOREVER, &host_), FY_STATUS_##code, #tensor, \
                  __FILE__, __LINE__, ##__VA_ARGS__, ts__end);                                \
        fy_download_destroy(download_);                                                       \
    } while (0)
fy_download_t *ts_submit_download(const fy_tensor_t *tensor);
/* The defaults, with FY_HOST_BORROW. */
extern const fy_transfer_options_t ts_borrow;

/* ---- short functions for tapes, graphs, guards and clocks ---- */

/* A new tape that watches x, and y if it is not NULL. ts_record: it records, too. */
fy_tape_t *ts_tape(fy_tensor_t *x, fy_tensor_t *y);
fy_tape_t *ts_record(fy_tensor_t *x, fy_tensor_t *y);
/* The gradient, which must exist. */
fy_tensor_t *ts_grad(const fy_tape_t *tape, const fy_tensor_t *x);
/* Limits one field on the current scope: ts_guard(upload_nbytes, 24). */
#define ts_guard(field, limit)                             \
    do {                                                   \
        fy_guard_options_t guard_ = FY_GUARD_OPTIONS_INIT; \
        guard_.field = (limit);                            \
        ts_ok(fy_scope_guard(&guard_));                    \
    } while (0)
/* Ends the recording of a graph. */
fy_graph_t *ts_graph_end(void);
/* Waits for all requests, then reads the device's clock. ts_clock_now does not wait. */
fy_device_clock_t ts_clock(fy_device_t *device);
fy_device_clock_t ts_clock_now(const fy_device_t *device);
fy_stream_t *ts_stream(fy_device_t *device);

/* ---- threads, processes, files ---- */

pthread_t ts_thread(void *(*run)(void *user), void *user);
/* Runs it on another thread and returns its result. */
void *ts_on_thread(void *(*run)(void *user), void *user);
/* Runs it on `count` threads at once, thread i with the i-th of `users`, each of `size` bytes. */
void ts_on_threads(int count, void *(*run)(void *user), void *users, size_t size);
/* A child that hangs ends after four minutes. ts_child_ends waits for it and fails the test if it
 * does not exit with 0. A child can check with TS_CHILD_CHECK: it exits with the number of the
 * line. */
pid_t ts_fork(void);
void ts_child_ends(pid_t child);
#define TS_CHILD_CHECK(condition) \
    if (!(condition)) _exit(__LINE__ % 255 + 1)
/* Reads a text file of less than 4 MiB; free() it. */
char *ts_text_of(const char *path);
/* Makes an empty file: replaces the X of "/tmp/name.XXXXXX". */
void ts_make_file(char *path);
/* Returns the number of files that this process has open. For use before and after a call that must
 * leave none open. */
int ts_open_files(void);

#endif
