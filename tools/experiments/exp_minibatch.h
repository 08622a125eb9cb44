/* What the minibatch experiment's training and its reporting share. Next: exp_minibatch.c. */
#ifndef FERRY_TOOLS_EXP_MINIBATCH_H_
#define FERRY_TOOLS_EXP_MINIBATCH_H_

#include "tools/cli/tool.h"
#include "tools/experiments/airfoil.h"

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

#endif
