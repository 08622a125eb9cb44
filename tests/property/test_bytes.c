/* Random programs of views of views, writes through any handle, ops in place, and tapes with writes
 * between, against an oracle that knows bytes, not handles (bytes.h). A read must give the values
 * of the bytes. A backward must give the oracle's gradients, or a call must have been refused with
 * BUSY, which only a write to bytes that were there allows. Other numbers are a failure.
 * Some records are recorded in a graph and run by a replay.
 * A failure prints the program, cut down to the calls that it takes, and its seed. FERRY_SEED=n
 * runs that one alone, FERRY_PROGRAMS=n more of them. Start with run_program at the end.
 * A documented exception: a watched tensor's bytes are constants through handles that are neither
 * that tensor nor views made of it in the record, and so is a view made while no tape records. */
#include <inttypes.h>

#include "tests/property/bytes.h"
#include "tests/property/shrink.h"

/* ---- tapes ---- */

static bool is_watched_bytes(const world_t *w, const handle_t *h)
{
    for (int i = 0; i < LEAVES; i++) {
        const leaf_t *leaf = &w->leaves[i];
        if (leaf->watched &&
            (by_shares(leaf->watched, h) || (leaf->place && by_shares(leaf->place, h))))
            return true;
    }
    return false;
}

static void mark_leaf(world_t *w, int i)
{
    handle_t *h = w->leaves[i].watched;
    h->leaf_record = w->record;
    for (int64_t k = 0; k < nelem(h); k++) {
        const int64_t at = place_of(h, k);
        h->bytes->leaf[at] = h->bytes->home[at] = 1 + i * LEAF_MOST + (int)k;
    }
}

static bool can_be_watched(world_t *w, const handle_t *h)
{
    if (!h->t || !by_is_float(h) || h->is_held || h->is_read_only || h->leaf_record) return false;
    if (nelem(h) > LEAF_MOST || is_watched_bytes(w, h)) return false;
    for (int64_t k = 0; k < nelem(h); k++) {
        const number_t x = by_get(w, h, k);
        if (depends(&x)) return false; /* of a result, which is another question */
    }
    return true;
}

static void step_watch(world_t *w, const step_t *s)
{
    int i = 0, slot = 0;
    while (i < LEAVES && w->leaves[i].watched) i++;
    while (slot < SLOTS && !can_be_watched(w, &w->slots[(s->a + slot) % SLOTS])) slot++;
    if (i == LEAVES || slot == SLOTS || w->is_paused) return;
    handle_t *a = &w->slots[(s->a + slot) % SLOTS];
    handle_t *place = s->choice % 2 ? by_find(w, a, s->b, SAME) : NULL;
    if (place && (place->is_held || !is_dense(place) || place->is_read_only ||
                  is_watched_bytes(w, place) || by_shares(place, a)))
        place = NULL;
    if (place)
        SAY("watch(t%d, t%d);", by_slot(w, a), by_slot(w, place));
    else
        SAY("watch(t%d, NULL);", by_slot(w, a));
    const handle_t *src = a;
    const fy_status_t status = fy_tape_watch(w->tape, a->t, place ? place->t : NULL);
    /* a result of the last record */
    if (status == FY_STATUS_INVALID_ARGUMENT && w->record > 0) return;
    if (!by_accepted(w, status, 1, &src, NULL)) return;
    w->leaves[i] = (leaf_t){ a, place, w->is_recording, false, false, { { 0 } } };
    a->is_held = true;
    if (place) place->is_held = true;
    if (w->is_recording) mark_leaf(w, i);
}

static void forget_leaf(world_t *w, int i)
{
    leaf_t *leaf = &w->leaves[i];
    leaf->watched->is_held = false;
    if (leaf->place) leaf->place->is_held = false;
    *leaf = (leaf_t){ 0 };
}

static void step_begin(world_t *w, const program_t *p, const step_t *s)
{
    if (w->is_paused) return;
    if (p->in_graphs && !w->in_graph) {
        SAY("graph_begin();");
        ts_ok(fy_graph_begin(w->ctx->device));
        w->in_graph = true;
    }
    SAY("tape_recompute_cheap(%d); tape_begin();", (int)(s->choice % 2));
    ts_ok(fy_tape_recompute_cheap(w->tape, (int)(s->choice % 2)));
    ts_ok(fy_tape_begin(w->tape));
    w->is_recording = true;
    w->record++;
    w->record_began = ++w->clock;
    w->writes = 0;
    w->is_wild = false;
    for (int i = 0; i < STORAGES; i++) {
        memset(w->storages[i].home, 0, sizeof w->storages[i].home);
        memset(w->storages[i].leaf, 0, sizeof w->storages[i].leaf);
        for (int k = 0; k < MOST; k++) {
            number_t *a = &w->storages[i].at[k];
            for (int c = 0; c < COLUMNS; c++) a->d[c] = a->dsize[c] = 0;
        }
    }
    for (int i = 0; i < LEAVES; i++) {
        if (w->leaves[i].watched && w->leaves[i].is_temporary) forget_leaf(w, i);
        if (w->leaves[i].watched) mark_leaf(w, i);
    }
}

static void step_pause(world_t *w)
{
    if (!w->is_recording) return;
    w->is_paused = !w->is_paused;
    SAY(w->is_paused ? "pause();" : "end_pause();");
    if (w->is_paused) {
        w->pause = fy_scope_begin("pause");
        ts_ok(fy_tape_begin(NULL));
    } else {
        fy_scope_end(w->pause, 0, NULL);
    }
}

/* Another tape goes back through a's square meanwhile: nothing changes. */
static void step_other_tape(world_t *w, const handle_t *a)
{
    fy_tape_t *tape;
    fy_tensor_t *square, *sum;
    if (!a->t || !by_is_float(a)) return;
    SAY("other_tape(t%d);", by_slot(w, a));
    const fy_scope_t scope = fy_scope_begin("another tape");
    ts_ok(fy_tape_create(&tape));
    ts_ok(fy_tape_watch(tape, a->t, NULL));
    ts_ok(fy_tape_begin(tape));
    ts_ok(fy_mul(a->t, a->t, &square));
    ts_ok(fy_sum(square, FY_ALL_AXES, 0, &sum));
    ts_ok(fy_tape_backward(tape, sum, NULL));
    fy_scope_end(scope, 0, NULL);
}

static bool differs(const world_t *w, double got, double want, double size)
{
    return isfinite(size) && !(fabs(got - want) <= 64 * w->unit * (size + w->unit));
}

/* `got`: f64. */
static void check_grad(world_t *w, int i, const double *got, bool has_place)
{
    leaf_t *leaf = &w->leaves[i];
    for (int64_t k = 0; k < nelem(leaf->watched); k++) {
        const number_t *want = &leaf->grad[k];
        w->counts.gradients++;
        if (!differs(w, got[k], want->v, want->size)) continue;
        char text[200];
        snprintf(text, sizeof text, "gradient of t%d[%d]: %g, want %g (+-%g)%s",
                 by_slot(w, leaf->watched), (int)k, got[k], want->v, 64 * w->unit * want->size,
                 has_place ? ", in a given tensor" : "");
        by_fail(w, text);
    }
}

static bool read_values(world_t *w, const handle_t *h, fy_tensor_t *t, double *out)
{
    fy_tensor_t *host;
    fy_download_t *download;
    void *data;
    ts_array_t values;
    fy_status_t status = fy_tensor_download(t, NULL, &download);
    if (status == FY_STATUS_OK) status = fy_download_wait(download, FY_FOREVER, &host);
    if (status != FY_STATUS_OK) {
        by_fail(w, fy_error_get()->text);
        return false;
    }
    ts_array_make(&values, h->bytes->dtype, h->rank, h->dims);
    ts_ok(fy_tensor_map(host, FY_ACCESS_READ, &data));
    for (uint64_t i = 0; i < values.nelem; i++) {
        ts_decode(&values, i, data, i);
        out[i] = values.f[i];
    }
    ts_array_free(&values);
    fy_tensor_destroy(host);
    return true;
}

/* The gradients that a backward has left, for which leaf->grad has the oracle's. */
static void take_grads(world_t *w, const bool *reached, bool accumulates)
{
    for (int i = 0; i < LEAVES && !w->why[0]; i++) {
        leaf_t *leaf = &w->leaves[i];
        fy_tensor_t *grad;
        double got[MOST];
        if (!leaf->watched) continue;
        ts_ok(fy_tape_grad(w->tape, leaf->watched->t, &grad));
        if (!grad && reached[i]) by_fail(w, "a gradient is missing");
        leaf->has_grad = grad != NULL;
        if (!accumulates) leaf->is_lost = false;
        if (!grad) continue;
        if (read_values(w, leaf->watched, grad, got)) check_grad(w, i, got, leaf->place != NULL);
        fy_tensor_destroy(grad);
        for (int64_t k = 0; leaf->place && k < nelem(leaf->place); k++)
            by_put(w, leaf->place, k, leaf->grad[k]);
    }
}

static void run_graph(world_t *w)
{
    fy_graph_t *graph;
    SAY("graph_end(); replay();");
    ts_ok(fy_graph_end(&graph));
    ts_ok(fy_graph_replay(graph, NULL));
    fy_graph_destroy(graph);
    w->in_graph = false;
    w->counts.graphs++;
}

static void step_backward(world_t *w, const step_t *s)
{
    const bool accumulates = s->choice % 3 == 0, has_seed = s->choice / 3 % 3 == 0;
    bool has_place = false;
    bool reached[LEAVES] = { false };
    fy_backward_options_t options = FY_BACKWARD_OPTIONS_INIT;
    fy_tensor_t *loss = NULL, *seed = NULL;
    number_t sum = constant(0);
    handle_t *a = NULL;
    fy_status_t status;
    if (!by_is_live(w)) return;
    for (int i = 0; i < SLOTS && !w->is_over; i++) { /* of what depends on a watched tensor */
        a = &w->slots[(s->a + i) % SLOTS];
        if (!a->t || !by_is_float(a)) continue;
        sum = by_sum(w, a);
        if (!depends(&sum)) continue;
        const handle_t *src = a;
        SAY("loss = sum(t%d);", by_slot(w, a));
        status = fy_sum(a->t, FY_ALL_AXES, 0, &loss);
        if (by_accepted(w, status, 1, &src, NULL)) break;
    }
    if (!loss || w->why[0] || w->is_over) return;
    if (has_seed) {
        ts_ok(fy_full(w->ctx->device, a->bytes->dtype, 0, NULL, 0.5, &seed));
        options.seed = seed;
    }
    options.accumulate = accumulates;
    SAY("backward(loss, seed %s, accumulate %d);", has_seed ? "0.5" : "1", accumulates);
    for (int i = 0; i < LEAVES; i++) {
        leaf_t *leaf = &w->leaves[i];
        has_place |= leaf->place != NULL;
        for (int64_t k = 0; leaf->watched && k < nelem(leaf->watched); k++) {
            const double d = sum.d[i * LEAF_MOST + k] * (has_seed ? 0.5 : 1),
                         size = sum.dsize[i * LEAF_MOST + k];
            reached[i] |= size != 0 && d != 0;
            number_t g = constant(d);
            g.size = w->is_wild ? INFINITY : size;
            g.is_exact = false;
            if (accumulates && leaf->is_lost) {
                g.size = INFINITY;
            } else if (accumulates && leaf->has_grad) {
                const number_t old = leaf->place ? leaf->place->bytes->at[place_of(leaf->place, k)]
                                                 : leaf->grad[k];
                g.v += old.v;
                g.size = isfinite(old.v) ? g.size + old.size : INFINITY;
            }
            leaf->grad[k] = g;
        }
    }
    w->counts.taped++;
    status = fy_tape_backward(w->tape, loss, &options);
    w->is_recording = false;
    fy_tensor_destroy(loss);
    if (seed) fy_tensor_destroy(seed);
    w->counts.calls++;
    if (status == FY_STATUS_OK && w->in_graph) run_graph(w);
    if (status == FY_STATUS_OK) {
        w->counts.backwards++;
        w->counts.right += w->counts.right == 0 && (reached[0] || reached[1] || reached[2]);
        take_grads(w, reached, accumulates);
        return;
    }
    w->counts.busy_backwards++;
    w->is_over |= w->in_graph;
    SAY("/* %s */", fy_status_name(status));
    /* the record read what is now the place of a gradient */
    const bool overlaps = status == FY_STATUS_INVALID_ARGUMENT && has_place &&
                          strstr(fy_error_get()->text, "overlaps");
    if (!overlaps && (status != FY_STATUS_BUSY || !(w->writes || has_place)))
        by_fail(w, fy_error_get()->text);
    for (int i = 0; i < LEAVES; i++) { /* incomplete */
        leaf_t *leaf = &w->leaves[i];
        if (!leaf->watched) continue;
        leaf->is_lost = true;
        for (int64_t k = 0; k < nelem(leaf->watched); k++) {
            leaf->grad[k] = unknown(constant(0), true);
            if (leaf->place) by_put(w, leaf->place, k, leaf->grad[k]);
        }
    }
}

static void check_values(world_t *w, handle_t *h)
{
    double got[MOST];
    if (!read_values(w, h, h->t, got)) return;
    w->counts.compared++;
    for (int64_t i = 0; i < nelem(h); i++) {
        const number_t *want = &h->bytes->at[place_of(h, i)];
        if (is_unknown(want) || (isnan(want->v) && isnan(got[i])) || want->v == got[i]) continue;
        if (isfinite(want->v) && fabs(want->v - got[i]) <= bound(want, w->unit)) continue;
        char text[120];
        snprintf(text, sizeof text, "t%d[%d] is %g, want %g", by_slot(w, h), (int)i, got[i],
                 want->v);
        by_fail(w, text);
    }
}

static void run_step(world_t *w, const program_t *p, const step_t *s)
{
    handle_t *a = &w->slots[s->a];
    w->runs_again = s->choice >> 16 & 1;
    switch (s->kind) {
    case WATCH: step_watch(w, s); break;
    case BEGIN: step_begin(w, p, s); break;
    case PAUSE: step_pause(w); break;
    case OTHER_TAPE: step_other_tape(w, a); break;
    case BACKWARD: step_backward(w, s); break;
    case READ:
        if (a->t && !w->in_graph) check_values(w, a);
        break;
    case DROP:
        if (!a->t || a->is_held) break;
        SAY("destroy(t%d);", s->a);
        fy_tensor_destroy(a->t);
        *a = (handle_t){ 0 };
        break;
    default: by_run_op(w, p, s);
    }
}

/* ---- programs ---- */

static void draw(uint64_t seed, program_t *p)
{
    static const kind_t any[] = { NEW,         UNARY, UNARY,  BINARY, BINARY, BINARY, WHERE,
                                  MATMUL,      SUM,   CONCAT, CAST,   VIEW,   VIEW,   VIEW,
                                  SPLIT,       FILL,  COPY,   COPY,   AXPY,   INTO,   INTO,
                                  UPLOAD_INTO, CLIP,  SEND,   PAUSE,  READ,   DROP,   OTHER_TAPE };
    static const kind_t setup[] = { NEW,  NEW,  NEW,  NEW,  NEW,   VIEW,  VIEW,
                                    VIEW, FILL, COPY, VIEW, WATCH, WATCH, BEGIN };
    ts_random_t random = { seed };
    *p = (program_t){ .seed = seed,
                      .has_halves = ts_random_below(&random, 4) == 0,
                      .has_nans = ts_random_below(&random, 4) == 0,
                      .in_graphs = ts_random_below(&random, 5) == 0 };
    for (int i = 0; i < 4; i++) p->shapes[i] = (int)ts_random_below(&random, 14);
    for (int i = 0; i < NSTEPS; i++) {
        step_t *s = &p->steps[i];
        s->kind = i < 14 ? setup[i] : any[ts_random_below(&random, sizeof any / sizeof *any)];
        if (i == 36 || i == NSTEPS - 1) s->kind = BACKWARD;
        if (i == 38) s->kind = BEGIN;
        if (i == 37 && ts_random_below(&random, 4) == 0) s->kind = WATCH;
        s->a = (int)ts_random_below(&random, SLOTS);
        s->b = (int)ts_random_below(&random, SLOTS);
        s->c = (int)ts_random_below(&random, SLOTS);
        s->to = i < 11 ? i : (int)ts_random_below(&random, SLOTS);
        if (i < 14) s->a %= i < 5 ? SLOTS : i < 11 ? i : 11; /* what is there already */
        s->choice = (uint64_t)ts_random_below(&random, 1 << 20);
    }
}

static void run_program(world_t *w, ts_ctx_t *ctx, const program_t *p, uint64_t kept)
{
    const bool prints = w->prints;
    memset(w, 0, sizeof *w);
    w->ctx = ctx;
    w->prints = prints;
    const fy_scope_t scope = fy_scope_begin("program");
    ts_ok(fy_tape_create(&w->tape));
    for (int i = 0; i < NSTEPS && !w->why[0] && !w->is_over; i++)
        if (kept >> i & 1) run_step(w, p, &p->steps[i]);
    if (w->is_paused) step_pause(w);
    for (int i = 0; i < SLOTS && !w->why[0] && !w->in_graph; i++)
        if (w->slots[i].t) check_values(w, &w->slots[i]);
    for (int i = 0; i < SLOTS; i++) fy_tensor_destroy(w->slots[i].t);
    fy_scope_end(scope, 0, NULL);
}

typedef struct run {
    world_t *w;
    ts_ctx_t *ctx;
    const program_t *program;
} run_t;

static bool fails_with(void *user, uint64_t kept)
{
    run_t *run = user;
    run_program(run->w, run->ctx, run->program, kept);
    return run->w->why[0] != 0;
}

static void report(run_t *run)
{
    const uint64_t kept = shrink(fails_with, run, NSTEPS);
    print_error("seed %" PRIu64 ", %d steps:\n", run->program->seed, __builtin_popcountll(kept));
    run->w->prints = true;
    (void)fails_with(run, kept);
    print_error("  %s\n  again: FERRY_SEED=%" PRIu64 "\n", run->w->why, run->program->seed);
    fail();
}

static void add_counts(counts_t *all, const counts_t *one)
{
    all->graphs += one->graphs > 0;
    all->taped += one->taped > 0;
    all->right += one->right > 0;
    all->views_of_views += one->views_of_views > 0;
    all->view_writes += one->view_writes > 0;
    all->writes_before += one->writes_before > 0;
    all->writes_between += one->writes_between > 0;
    all->zero_sizes += one->zero_sizes > 0;
    all->halves += one->halves > 0;
    all->nans += one->nans > 0;
    all->calls += one->calls;
    all->refused += one->refused;
    all->backwards += one->backwards;
    all->busy_backwards += one->busy_backwards;
    all->compared += one->compared;
    all->gradients += one->gradients;
}

TS_DEVICE_TEST(values_and_gradients_belong_to_bytes)
{
    const char *count = getenv("FERRY_PROGRAMS"), *one = getenv("FERRY_SEED");
    const uint64_t n = one && *one       ? 1
                       : count && *count ? strtoull(count, NULL, 0)
                                         : 2000,
                   first = ts_seed(1);
    counts_t all = { 0 };
    world_t *w = calloc(1, sizeof *w);
    assert_non_null(w);
    for (uint64_t i = 0; i < n; i++) {
        program_t program;
        run_t run = { w, ctx, &program };
        draw(first + i, &program);
        if (fails_with(&run, UINT64_MAX)) report(&run);
        add_counts(&all, &w->counts);
    }
    free(w);
    print_message("           seeds %" PRIu64 " to %" PRIu64 ": %" PRIu64 " calls, %" PRIu64
                  " refused; %" PRIu64 " backwards, %" PRIu64 " refused; %" PRIu64
                  " tensors and %" PRIu64 " elements of gradients compared\n",
                  first, first + n - 1, all.calls, all.refused, all.backwards, all.busy_backwards,
                  all.compared, all.gradients);
    print_message("           programs with a backward %" PRIu64 ", right %" PRIu64
                  ", views of views %" PRIu64 ", writes to views %" PRIu64
                  ", writes before %" PRIu64 " and in a record %" PRIu64 ", zero sizes %" PRIu64
                  ", halves %" PRIu64 ", NaN %" PRIu64 ", graphs %" PRIu64 "\n",
                  all.taped, all.right, all.views_of_views, all.view_writes, all.writes_before,
                  all.writes_between, all.zero_sizes, all.halves, all.nans, all.graphs);
    if (n < 100) return;
    /* a program in which every backward is refused proves nothing */
    assert_true(3 * all.right > all.taped && 2 * all.taped > n);
    assert_true(4 * all.refused < all.calls && all.busy_backwards < all.backwards);
    assert_true(2 * all.views_of_views > n && 2 * all.view_writes > n && 2 * all.writes_before > n);
    assert_true(2 * all.writes_between > n && 8 * all.zero_sizes > n && 8 * all.halves > n);
    assert_true(8 * all.nans > n && 40 * all.graphs > n);
}
