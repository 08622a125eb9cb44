/* Where the time goes: each moment of a run belongs to one share, so the shares of an interval add
 * up to its length. On the model clock a moment belongs to the first of these that is so: a device
 * computes; an upload is under way; a download; a copy between devices; the host is in a call that
 * transfers (it copies to page-locked memory); the host computes; none (the devices wait for the
 * host). On the wall clock devices are unknown: the first host thread with scopes is
 * blocked in an upload, in a download, in a call between ranks (its own, or any wait while another
 * thread runs one), or in another wait; or host code runs. Without scopes all threads count.
 * Not here: the slices (slices.h). Next: shares.c. */
#ifndef FERRY_TOOLS_SHARES_H_
#define FERRY_TOOLS_SHARES_H_

#include <stdbool.h>

#include "tools/report/slices.h"

/* The order is that of `shares` in page/run.js. */
typedef enum share {
    SHARE_COMPUTE,
    SHARE_UPLOAD,
    SHARE_DOWNLOAD,
    SHARE_PEER,
    SHARE_RANKS, /* wall clock only, as the next */
    SHARE_WAIT,
    SHARE_CALL, /* model clock only, as the next */
    SHARE_HOST_OP,
    SHARE_HOST,
    SHARES
} share_t;

typedef struct share_change {
    uint64_t at_ns;
    share_t share; /* from at_ns on, until the next change */
} share_change_t;

/* Every so many changes the sums before one are kept. */
enum { SHARES_EACH = 64 };

typedef struct shares {
    share_change_t *changes;
    uint64_t (*before)[SHARES]; /* of the time before changes 0, SHARES_EACH, ... */
    size_t count;
    uint64_t busy_ns[SHARES]; /* with the time that an earlier share covers */
} shares_t;

/* `slices` is finished. */
void shares_find(const slices_t *slices, bool is_model, shares_t *out_shares);
/* Adds the shares from `begin_ns` to `end_ns`. */
void shares_add(const shares_t *shares, uint64_t begin_ns, uint64_t end_ns, uint64_t sums[SHARES]);
void shares_free(shares_t *shares);

/* ---- the time of each scope path on the host's clock, with its shares ---- */

typedef struct scope_time {
    uint64_t count, total_ns, first_ns, last_ns; /* first begin, last end */
    uint64_t sums[SHARES];
} scope_time_t;

typedef struct scope_times {
    scope_time_t *by_text; /* by the number of the path's text */
    size_t ntexts;
    bool has_step;        /* false: the run has no steps */
    uint32_t step;        /* its path, a text */
    uint64_t step_end_ns; /* of the last step, with what its requests take on devices */
} scope_times_t;

/* step_path: of the steps; "": there are none. */
void scope_times_find(const slices_t *slices, const shares_t *shares, const char *step_path,
                      scope_times_t *out_times);
void scope_times_free(scope_times_t *times);

#endif
