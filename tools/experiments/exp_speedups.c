/* `ferry experiment speedups`: techniques to train faster, one row each, measured without and with
 * the technique, and with a check of its conditions. Rows 1 to 17 have the numbers of
 * docs/experiments.md. Not here: the rows' code (exp_speedups_*.c). */
#include "tools/experiments/exp_speedups.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct row {
    int number;
    const char *technique, *compared; /* "without | with" */
    const char *unit;
    bool more_is_better;
    speedup_fn run;
} row_t;

static const row_t rows[] = {
    { 1, "one-cycle schedule, range test", "lr 0.05 throughout | 0.004 to 0.1 and down",
      "loss after 60 steps", false, speedup_schedule },
    { 2, "loader threads", "filled inside fy_loader_next | by 2 threads", "wall ns/batch", false,
      speedup_loader },
    { 3, "largest batch", "largest power of two that fits | planned maximum", "samples", true,
      speedup_largest_batch },
    { 4, "mixed precision", "lenet of 256 in f32 | in bf16", "bytes at the peak", false,
      speedup_precision },
    { 5, "fused optimizer", "Adam op by op, each parameter | one request for all", "ns/step", false,
      speedup_fused_optimizer },
    { 6, "convolutions chosen by time", "fixed rule, host | autotune=on", "wall ns/call", false,
      speedup_autotune },
    { 7, "fewer host-device copies", "loss read each step | at the end", "downloads in 20 steps",
      false, speedup_lazy_metrics },
    { 8, "activation checkpointing", "all activations kept | computed again",
      "bytes after the forward", false, speedup_recompute },
    { 9, "gradient accumulation", "batch of 512 at once | in 8 parts",
      "activation bytes beside the batch", false, speedup_accumulate },
    { 10, "data parallel, no_sync", "every part reduced | once a step, in buckets",
      "peer bytes/step", false, speedup_parallel },
    { 11, "gradients set to none", "zeroed each step | first write assigns", "ns/step", false,
      speedup_set_to_none },
    { 12, "wrap, don't copy", "copied into a tensor | fy_tensor_wrap", "wall ns", false,
      speedup_wrap },
    { 13, "debug tools off", "every event recorded | nothing", "wall ns/step", false,
      speedup_debug_off },
    { 14, "gradient clipping on the device", "norm read on the host | 0 downloads", "ns", false,
      speedup_clip },
    { 15, "no bias before batch norm", "with biases | dropped", "parameters", false,
      speedup_drop_bias },
    { 16, "no gradient in validation", "forward on a tape | without", "bytes held", false,
      speedup_no_grad },
    { 17, "normalised inputs", "raw columns | mean 0, std 1", "loss after 10 steps", false,
      speedup_normalise },
    { 18, "fused chain", "eight calls | one launch, replayed", "ns", false, speedup_chain },
    { 19, "offloading", "activations on the device | page-locked", "bytes after the forward", false,
      speedup_offload },
};
enum { ROWS = sizeof rows / sizeof *rows };

/* "5,7": which rows; NULL: all of them. */
static bool choose(const char *list, bool chosen[ROWS])
{
    for (int i = 0; i < ROWS; i++) chosen[i] = !list;
    for (const char *at = list; at;) {
        char *end;
        const long number = strtol(at, &end, 10);
        int i = 0;
        while (i < ROWS && rows[i].number != number) i++;
        if (end == at || (*end && *end != ',') || i == ROWS) {
            fprintf(stderr,
                    "ferry experiment speedups: --only takes numbers of rows, separated by commas, "
                    "not '%s'; there are",
                    list);
            for (i = 0; i < ROWS; i++) fprintf(stderr, " %d", rows[i].number);
            fputs("\n", stderr);
            return false;
        }
        chosen[i] = true;
        at = *end ? end + 1 : NULL;
    }
    return true;
}

/* How many times better; NaN if one side is nothing. */
static double effect_of(const row_t *row, const speedup_t *s)
{
    const double better = row->more_is_better ? s->with / s->without : s->without / s->with;
    return isfinite(better) && better > 0 ? better : NAN;
}

/* Of the rounds of a row. */
typedef struct spreads {
    spread_t without, with;
} spreads_t;

static void add_row(sheet_t *sheet, const session_t *session, const row_t *row, const speedup_t *s,
                    const spreads_t *spreads)
{
    char unit[64];
    const bool by_clock = strncmp(row->unit, "ns", 2) == 0;
    snprintf(unit, sizeof unit, "%s%s%s", by_clock ? session_clock(session) : "",
             by_clock ? " " : "", row->unit);
    sheet_int(sheet, row->number);
    sheet_text(sheet, row->technique);
    sheet_text(sheet, row->compared);
    sheet_text(sheet, unit);
    sheet_spread(sheet, &spreads->without);
    sheet_spread(sheet, &spreads->with);
    sheet_real(sheet, effect_of(row, s));
    sheet_text(sheet, s->ok ? "ok" : "failed");
    sheet_text(sheet, s->held);
    sheet_int(sheet, (int64_t)spreads->with.rounds);
}

static fy_status_t run_once(session_t *session, const row_t *row, speedup_t *out)
{
    char name[32];
    snprintf(name, sizeof name, "row-%d", row->number);
    *out = (speedup_t){ .without = NAN, .with = NAN };
    const fy_scope_t scope = fy_scope_begin(name);
    const fy_status_t status = row->run(session, out);
    fy_scope_end(scope, 0, NULL);
    return status;
}

/* The conditions must hold in each round. */
static fy_status_t run_row(session_t *session, const row_t *row, const effort_t *effort,
                           spreads_t *spreads, speedup_t *out)
{
    sample_t without = { 0 }, with = { 0 };
    bool ok = true;
    while (!effort_is_met(effort, &without) || !effort_is_met(effort, &with)) {
        FY_TRY(run_once(session, row, out));
        sample_add(&without, out->without);
        sample_add(&with, out->with);
        ok &= out->ok;
    }
    spreads->without = sample_spread(&without);
    spreads->with = sample_spread(&with);
    out->without = spreads->without.median;
    out->with = spreads->with.median;
    out->ok = ok;
    return FY_STATUS_OK;
}

static fy_status_t run(session_t *session, const bool chosen[ROWS], const effort_t *effort)
{
    static const column_t columns[] = {
        { "row", "#", 0 },
        { "technique", "technique", 0 },
        { "compared", "without | with", 0 },
        { "unit", "unit", 0 },
        SPREAD_COLUMNS("without", "without", 3),
        SPREAD_COLUMNS("with", "with", 3),
        { "effect", "times", 2 },
        { "status", "status", 0 },
        { "holds", "what holds", 0 },
        ROUNDS_COLUMN,
    };
    if (!session->info.numerics)
        return TOOL_FAIL(
            INVALID_ARGUMENT,
            "speedups checks what it computes: a device with numerics=off has no results");
    sheet_t *sheet = sheet_create(columns, sizeof columns / sizeof *columns);
    fy_status_t status = FY_STATUS_OK;
    int failed = 0, done = 0, count = 0;
    for (int i = 0; i < ROWS; i++) count += chosen[i];
    for (int i = 0; i < ROWS && status == FY_STATUS_OK; i++) {
        speedup_t speedup;
        spreads_t spreads;
        if (!chosen[i]) continue;
        status = run_row(session, &rows[i], effort, &spreads, &speedup);
        if (status == FY_STATUS_OK) add_row(sheet, session, &rows[i], &speedup, &spreads);
        failed += !speedup.ok;
        progress("row", ++done, count);
    }
    if (status == FY_STATUS_OK)
        session_sheet(session, sheet, "rows", session_clock(session), "", "speedups");
    if (status == FY_STATUS_OK) session_statistics(session, effort, "what each row runs first");
    if (status == FY_STATUS_OK) status = session_files(session, sheet, NULL);
    sheet_destroy(sheet);
    if (status == FY_STATUS_OK && failed)
        status = TOOL_FAIL(BAD_VALUE, "in %d rows something that must hold does not: see the table",
                           failed);
    return status;
}

int exp_speedups(int argc, char **argv)
{
    common_t common = { .device = "sim:0" };
    const char *only = NULL;
    effort_t effort = { .rounds = 1 };
    bool chosen[ROWS];
    const option_t options[] = {
        { "only", OPTION_TEXT, "N,N", &only, "which rows, by their numbers" },
        EFFORT_OPTIONS(&effort),
        TRAFFIC_OPTION(&common),
        COMMON_OPTIONS(&common),
    };
    const usage_t usage = {
        "ferry experiment speedups",
        "Ways to train faster: each is measured without and with, and its conditions are checked.",
        options, sizeof options / sizeof *options,
        "ferry experiment speedups --device sim:0 --only 1\n"
    };
    OPTIONS_TRY(options_parse(&usage, argc, argv));
    if (common.plot) {
        fprintf(stderr, "%s: --plot: this table has no figure; --csv FILE writes its numbers\n",
                usage.command);
        return STATUS_USAGE;
    }
    if (!choose(only, chosen)) return STATUS_USAGE;
    session_t session;
    fy_status_t status = session_begin(&session, &common, usage.command, "experiment", "speedups");
    if (status == FY_STATUS_OK) status = run(&session, chosen, &effort);
    return session_end_experiment(&session, status);
}
