/* Interleaved measurement of calls and their peers: every round times every case once, so that a
 * busy machine hurts all alike.
 * Next: bench.c; bench_dispatch.c for cases in use. */
#ifndef FERRY_TOOLS_BENCH_H_
#define FERRY_TOOLS_BENCH_H_

#include "tools/cli/tool.h"

/* How a case is run in a round: the call itself; the same work by hand or by the bare library; the
 * call on one thread; on all threads. */
typedef enum bench_way { BENCH_OWN, BENCH_PEER, BENCH_ONE, BENCH_ALL, BENCH_WAYS } bench_way_t;

/* Does the work `iters` times. */
typedef fy_status_t (*bench_fn)(void *context, int64_t iters);

typedef struct bench_case {
    const char *op;
    bench_fn run;
    const char *peer; /* NULL: there is none */
    bench_fn run_peer;
    void *context;
    /* also on one thread and on all, where the number is chosen by cost: on the host */
    bool by_threads;
    int64_t iters[BENCH_WAYS];    /* per round; found by bench_measure */
    spread_t spread, peer_spread; /* ns per call; NaN without a peer */
    double one_ns, all_ns;        /* medians on one thread, on all; NaN if not measured */
    /* of the choice to the better of the two, by the best round of each */
    double threads_ratio;
    double model_ns;              /* per call; NaN on a real device */
    sample_t samples[BENCH_WAYS]; /* ns per call */
} bench_case_t;

/* clang-format off */
#define BENCH_OPTIONS(e)                                                                                   \
    EFFORT_OPTIONS(e),                                                                                     \
    { "round-ms", OPTION_INT, "MS", &(e)->round_ms, "time of one case in one round", 1, 10000 }
/* clang-format on */

/* What runs before the first round, for session_statistics. */
#define BENCH_WARM_UP "calls, doubled until they last half a round"

/* Warms up, finds iteration counts, measures all cases, in as many rounds as the last one to
 * meet `effort` needs. The device is waited for at the end of each round, in the time measured. */
fy_status_t bench_measure(session_t *session, bench_case_t *cases, size_t count,
                          const effort_t *effort);

/* What a suite found: one row a case in `sheet`, which it takes; as text below `title`, or as JSON,
 * and as the files that were asked for, with a bar of nanoseconds for each of `names`. */
typedef struct bench_bars {
    const char *title, *plot_title, *x_label;
    const char *const *names;
    const spread_t *ns;
    size_t count;
} bench_bars_t;
fy_status_t bench_report(session_t *session, sheet_t *sheet, const effort_t *effort,
                         const bench_bars_t *bars);

/* `ferry bench train --layers`, in bench_layers.c: whether a model with layers to time begins with
 * `prefix`; then the session's table of them. */
int bench_layers_has(const char *prefix);
fy_status_t bench_layers_run(session_t *session, const char *prefix, const effort_t *effort);

/* bench_chain.c: eight elementwise calls on x [rows, columns] and bias [columns], in a scope
 * "chain"; `ferry experiment speedups` times them, too. */
fy_status_t chain_of_eight(fy_tensor_t *x, fy_tensor_t *bias, fy_tensor_t **out_y);

#endif
