/* Interleaved measurement of calls and their peers: every round times every case once, so that a
 * busy machine hurts all alike.
 * Next: bench.c; bench_dispatch.c for cases in use. */
#ifndef FERRY_TOOLS_BENCH_H_
#define FERRY_TOOLS_BENCH_H_

#include "tools/cli/tool.h"

enum { BENCH_MAX_ROUNDS = 101 };

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
    int64_t iters[BENCH_WAYS];  /* per round; found by bench_measure */
    double ns, worst_ns;        /* per call: median and worst of the rounds */
    double peer_ns, peer_worst; /* NaN without a peer */
    double one_ns, all_ns;      /* on one thread, on all; NaN if not measured */
    /* of the choice to the better of the two, by the best round of each */
    double threads_ratio;
    double model_ns; /* per call; NaN on a real device */
    double rounds[BENCH_WAYS][BENCH_MAX_ROUNDS];
} bench_case_t;

typedef struct bench_effort {
    int64_t rounds, round_ms; /* a round of one case takes about round_ms */
} bench_effort_t;

/* clang-format off */
#define BENCH_OPTIONS(e)                                                                                   \
    { "rounds", OPTION_INT, "N", &(e)->rounds, "interleaved rounds; the median counts", 1, BENCH_MAX_ROUNDS }, \
    { "round-ms", OPTION_INT, "MS", &(e)->round_ms, "time of one case in one round", 1, 10000 }
/* clang-format on */

/* Warms up, finds iteration counts, measures all cases. The device is waited for at the end of each
 * round, in the time measured. */
fy_status_t bench_measure(session_t *session, bench_case_t *cases, size_t count,
                          const bench_effort_t *effort);

/* What a suite found: one row a case in `sheet`, which it takes; as text below `title`, or as JSON,
 * and as the files that were asked for, with a bar of nanoseconds for each of `names`. */
typedef struct bench_bars {
    const char *title, *plot_title, *x_label;
    const char *const *names;
    const double *ns;
    size_t count;
} bench_bars_t;
fy_status_t bench_report(session_t *session, sheet_t *sheet, const bench_bars_t *bars);

/* `ferry bench train --layers`, in bench_layers.c: whether a model with layers to time begins with
 * `prefix`; then the session's table of them. */
int bench_layers_has(const char *prefix);
fy_status_t bench_layers_run(session_t *session, const char *prefix, const bench_effort_t *effort);

#endif
