/* What the rows of `ferry experiment speedups` share: what a row reports, and the small network
 * that most of them train.
 * Next: exp_speedups.c, the table of rows. */
#ifndef FERRY_TOOLS_EXP_SPEEDUPS_H_
#define FERRY_TOOLS_EXP_SPEEDUPS_H_

#include <ferry/train/train.h>

#include "tools/cli/tool.h"

/* One row: the measurements without the technique and with it (in the row's unit), and whether its
 * conditions hold. */
typedef struct speedup {
    double without, with;
    bool ok;
    char held[160]; /* the checked conditions, with numbers */
} speedup_t;

/* Runs in a separate scope. */
typedef fy_status_t (*speedup_fn)(session_t *session, speedup_t *out);

/* exp_speedups_data.c */
fy_status_t speedup_loader(session_t *session, speedup_t *out);
fy_status_t speedup_lazy_metrics(session_t *session, speedup_t *out);
fy_status_t speedup_wrap(session_t *session, speedup_t *out);
fy_status_t speedup_normalise(session_t *session, speedup_t *out);
/* exp_speedups_memory.c */
fy_status_t speedup_largest_batch(session_t *session, speedup_t *out);
fy_status_t speedup_accumulate(session_t *session, speedup_t *out);
fy_status_t speedup_no_grad(session_t *session, speedup_t *out);
/* exp_speedups_step.c */
fy_status_t speedup_fused_optimizer(session_t *session, speedup_t *out);
fy_status_t speedup_set_to_none(session_t *session, speedup_t *out);
fy_status_t speedup_schedule(session_t *session, speedup_t *out);  /* exp_speedups_schedule.c */
fy_status_t speedup_autotune(session_t *session, speedup_t *out);  /* exp_speedups_tune.c */
fy_status_t speedup_precision(session_t *session, speedup_t *out); /* exp_speedups_precision.c */
fy_status_t speedup_drop_bias(session_t *session, speedup_t *out); /* exp_speedups_bias.c */
fy_status_t speedup_parallel(session_t *session, speedup_t *out);  /* exp_speedups_parallel.c */
/* exp_speedups_keep.c */
fy_status_t speedup_recompute(session_t *session, speedup_t *out);
fy_status_t speedup_offload(session_t *session, speedup_t *out);
fy_status_t speedup_chain(session_t *session, speedup_t *out); /* exp_speedups_chain.c */
fy_status_t speedup_debug_off(session_t *session, speedup_t *out);
fy_status_t speedup_clip(session_t *session, speedup_t *out);

/* ---- exp_speedups_net.c: the model "mlp" (784-128-10) and one batch of made-up digits, on a
 * device ---- */

typedef struct net {
    fy_device_t *device;
    fy_model_t *model;
    fy_tape_t *tape;
    fy_tensor_t *values, *grads; /* the model's blocks */
    fy_tensor_t *x, *y;          /* [batch, 28, 28, 1] f32, [batch] i32 */
    int64_t batch;
} net_t;

/* net_close is needed also if this fails. The first values depend on nothing but the model. */
fy_status_t net_open(fy_device_t *device, int64_t batch, net_t *net);
void net_close(net_t *net);
/* Forward and backward over rows begin .. end of the batch; the loss is their sum over the whole
 * batch's length, so that parts add up to the mean over the batch. options may be NULL. */
fy_status_t net_gradient(net_t *net, int64_t begin, int64_t end,
                         const fy_backward_options_t *options, fy_tensor_t **out_loss);
/* values -= lr * grads */
fy_status_t net_descend(net_t *net, double lr);

/* The value of a tensor of one element. Blocks. */
fy_status_t fetch_f64(const fy_tensor_t *tensor, double *out_value);
/* Copies of a dense f32 tensor's elements on the host, malloc'ed. Blocks. */
fy_status_t fetch_f32(const fy_tensor_t *tensor, float **out_values, uint64_t *out_count);
/* ||a - b|| / ||a|| */
double relative_distance(const float *a, const float *b, uint64_t n);
/* The session's clock (the model's on a simulated device), after everything submitted is done.
 * Blocks. */
fy_status_t clock_ns(session_t *session, double *out_ns);

#endif
