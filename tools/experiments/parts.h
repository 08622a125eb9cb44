/* What the sources of an experiment share; an experiment in one source has nothing here. Next:
 * exp_roundtrip.c. */
#ifndef FERRY_TOOLS_EXPERIMENTS_PARTS_H_
#define FERRY_TOOLS_EXPERIMENTS_PARTS_H_

#include <ferry/train/table.h>

#include "tools/cli/tool.h"

/* ---- roundtrip ---- */

enum { VARIANT_HOST, VARIANT_RESIDENT, VARIANT_COPIES, VARIANT_COUNT };

/* Of one variant, per iteration. */
typedef struct roundtrip {
    spread_t ns;       /* wall clock */
    spread_t model_ns; /* NaN on a real device */
    double uploads, downloads, nbytes;
    double max_abs_diff; /* from the host variant's product */
} roundtrip_t;

/* "host", "resident", "copies" */
const char *roundtrip_variant_name(int variant);
/* All three variants at one size: rounds of `iters` products of each in turn. */
fy_status_t roundtrip_measure(session_t *session, int64_t size, int64_t iters,
                              const effort_t *effort, roundtrip_t out[VARIANT_COUNT]);
/* Measures over sizes, finds the crossovers and reports. */
fy_status_t roundtrip_sweep(session_t *session, int64_t iters, const effort_t *effort);
#define ROUNDTRIP_WARM_UP "3 products of each variant"

/* ---- link ---- */

/* A loop of upload, compute and download, with and without waits in between. Times are of
 * session_clock(). */
typedef struct overlap {
    int64_t steps, products; /* timed steps, and matrix products in each */
    spread_t pipelined_ns_per_step, serial_ns_per_step;
    /* of one step: how long each engine is busy; on the wall clock how long each takes alone */
    spread_t upload_ns, compute_ns, download_ns;
} overlap_t;

/* Measures rounds of `steps` steps once the pipeline is full. products 0: as many as take about as
 * long as the upload. Fails: CORRUPT_DATA (a download did not hold its step's result). */
fy_status_t link_overlap_measure(session_t *session, int64_t steps, int64_t products,
                                 const effort_t *effort, overlap_t *out);
/* Measures and reports. */
fy_status_t link_overlap(session_t *session, int64_t steps, int64_t products,
                         const effort_t *effort);
/* Now, by session_clock(). */
double link_now_ns(const session_t *session);

/* ---- minibatch ---- */

enum { RUN_COUNT = 4, MAX_LOSSES = 64, TRAIN_ROWS = 1500, RECORD_EVERY = 200 };

typedef enum init_kind { INIT_NORMAL, INIT_ZERO } init_kind_t;

typedef struct recipe {
    const char *name;
    int64_t batch, epochs;
    double lr;
    bool record_steps; /* after every step, not every RECORD_EVERY samples */
} recipe_t;

/* gd, sgd, mini100, mini10 */
extern const recipe_t recipes[RUN_COUNT];

/* What a run left behind. */
typedef struct minibatch {
    const recipe_t *recipe;
    int count;
    /* mean((prediction - y)^2) / 2 on all rows, and samples seen until then */
    double losses[MAX_LOSSES], seen[MAX_LOSSES];
    /* evaluation not counted; the model's is NaN on a real device */
    spread_t sec_per_epoch, model_sec_per_epoch;
    fy_ledger_totals_t traffic;
} minibatch_t;

/* The data on the device, [TRAIN_ROWS, 7]: five features, a column of ones for the bias, the
 * target. One upload. */
fy_status_t minibatch_upload(session_t *session, const fy_table_t *standardised,
                             fy_tensor_t **out_data);
/* One run of one recipe on `data`, repeated from its beginning for each round: losses and traffic
 * are those of the first. Uploads nothing; downloads the recorded losses, 4 bytes each: a
 * guard sees to it. */
fy_status_t minibatch_train(session_t *session, fy_tensor_t *data, const recipe_t *recipe,
                            init_kind_t init, int64_t seed, const effort_t *effort,
                            minibatch_t *out);

/* ---- airfoil.c: the airfoil self-noise data set (Brooks, Pope, Marcolini 1989), 1503 rows of five
 * features and a target: found or made up ---- */

enum { AIRFOIL_COLUMNS = 6, AIRFOIL_FEATURES = 5 };

/* Looks for the file in data_folder(data); `data` may also be the file itself. If it is missing,
 * and `data` is NULL, makes a table of the same shape and says so on standard error. `out_origin`
 * (of `room` bytes): the file's path, or "synthetic". The table is the caller's. Fails: as
 * fy_table_read; IO if `data` holds no such file. */
fy_status_t airfoil_load(const char *data, char *out_origin, size_t room, fy_table_t **out_table);

#endif
