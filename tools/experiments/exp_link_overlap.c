/* `ferry experiment link --overlap`: batches are uploaded and computed on, and a small result is
 * downloaded, step after step; once with a wait after each request and once without any wait that
 * blocks the device. Written as an application would: a few buffers in rotation, tickets that show
 * when a source buffer is free again, results read some steps later. Ferry orders the three engines
 * by the tensors that they use.
 * Not here: sizes and modes of single transfers (exp_link.c). How to read it:
 * docs/experiments.md. */
#include "tools/experiments/parts.h"

#include <math.h>

enum {
    ROWS = 2048,
    COLUMNS = 1024, /* a batch is 8 MiB, a result 4 KiB */
    SLOTS = 3,      /* one is filled, one is uploaded, one is computed on */
    LATE = 8,       /* at most so many results are outstanding */
    FILL = 8,       /* steps until all engines are busy; what they take is not counted */
};

typedef struct pipeline {
    session_t *session;
    int64_t products;
    fy_tensor_t *weights;
    fy_tensor_t *staging[SLOTS]; /* page-locked host memory: the engine reads it in place */
    fy_tensor_t *batch[SLOTS];   /* on the device */
    fy_ticket_t sent[SLOTS];     /* when staging[slot] is ours again; {0, 0} is done */
    fy_download_t *replies[LATE];
    int64_t asked, received; /* of the replies: so many were asked for, so many were picked up */
} pipeline_t;

typedef struct phases {
    double upload, compute, download; /* ns */
} phases_t;

/* Batches of ones, and weights that do not change a batch whose rows are constant, exactly so in
 * f32. */
static fy_status_t create(pipeline_t *p)
{
    fy_device_t *device = p->session->device;
    FY_TRY(fy_full(device, FY_DTYPE_F32, FY_DIMS(COLUMNS, COLUMNS), 1.0 / COLUMNS, &p->weights));
    for (int slot = 0; slot < SLOTS; slot++) {
        void *bytes;
        FY_TRY(fy_tensor_create_pinned(device, FY_DTYPE_F32, FY_DIMS(ROWS, COLUMNS),
                                       &p->staging[slot]));
        FY_TRY(fy_tensor_map(p->staging[slot], FY_ACCESS_WRITE, &bytes));
        for (int i = 0; i < ROWS * COLUMNS; i++) ((float *)bytes)[i] = 1;
        FY_TRY(fy_empty(device, FY_DTYPE_F32, FY_DIMS(ROWS, COLUMNS), &p->batch[slot]));
    }
    return FY_STATUS_OK;
}

/* Until the slot's source buffer may be written again. */
static fy_status_t wait_slot(pipeline_t *p, int64_t step)
{
    return fy_ticket_wait(p->sent[step % SLOTS], FY_FOREVER);
}

/* Batch `step` has the step's number in its first row. If the device still computes on the slot's
 * batch, the upload engine waits for that;
 * the host does not. */
static fy_status_t feed(pipeline_t *p, int64_t step)
{
    const int64_t slot = step % SLOTS;
    void *bytes;
    fy_transfer_options_t borrow = FY_TRANSFER_OPTIONS_HERE;
    borrow.contract = FY_HOST_BORROW;
    FY_TRY(fy_tensor_map(p->staging[slot], FY_ACCESS_WRITE, &bytes));
    for (int i = 0; i < COLUMNS; i++) ((float *)bytes)[i] = (float)step;
    return fy_tensor_upload_into(p->batch[slot], p->staging[slot], &borrow, &p->sent[slot]);
}

static fy_status_t compute(pipeline_t *p, int64_t step, fy_tensor_t **out_result)
{
    fy_scope_t scope = fy_scope_begin("compute");
    fy_tensor_t *t = p->batch[step % SLOTS];
    for (int64_t i = 0; i < p->products; i++) FY_TRY(fy_matmul(t, p->weights, &t));
    FY_TRY(fy_sum(t, 1, (const int[]){ 0 }, 0, out_result));
    fy_scope_end(scope, 1, out_result);
    return FY_STATUS_OK;
}

static fy_status_t ask(pipeline_t *p, fy_tensor_t *result)
{
    FY_TRY(fy_tensor_download(result, &(fy_transfer_options_t)FY_TRANSFER_OPTIONS_HERE,
                              &p->replies[p->asked % LATE]));
    p->asked++;
    fy_tensor_destroy(result);
    return FY_STATUS_OK;
}

/* Column sums of ROWS - 1 ones and the step's number. */
static fy_status_t check(pipeline_t *p, fy_tensor_t *host)
{
    void *bytes;
    const float expected = (float)(ROWS - 1 + p->received);
    if (!p->session->info.numerics) return FY_STATUS_OK;
    FY_TRY(fy_tensor_map(host, FY_ACCESS_READ, &bytes));
    for (int i = 0; i < COLUMNS; i++)
        if (((float *)bytes)[i] != expected)
            return TOOL_FAIL(CORRUPT_DATA, "result %lld has %g at %d, not %g",
                             (long long)p->received, (double)((float *)bytes)[i], i,
                             (double)expected);
    return FY_STATUS_OK;
}

/* Reads the results that have arrived, oldest first; blocks only while more than `most` are
 * outstanding. */
static fy_status_t receive(pipeline_t *p, int64_t most)
{
    while (p->received < p->asked) {
        fy_download_t *reply = p->replies[p->received % LATE];
        fy_tensor_t *host;
        if (p->asked - p->received <= most) {
            FY_TRY(fy_download_try(reply, &host));
            if (!host) break;
        } else
            FY_TRY(fy_download_wait(reply, FY_FOREVER, &host));
        FY_TRY(check(p, host));
        fy_tensor_destroy(host);
        p->received++;
    }
    return FY_STATUS_OK;
}

static void begin(pipeline_t *p)
{
    p->asked = p->received = 0;
    for (int slot = 0; slot < SLOTS; slot++) p->sent[slot] = (fy_ticket_t){ 0, 0 };
}

/* The loop without waits for the device. */
static fy_status_t run_pipelined(pipeline_t *p, int64_t steps, double *out_ns)
{
    fy_tensor_t *result;
    begin(p);
    FY_TRY(session_wait(p->session));
    const double start = link_now_ns(p->session);
    for (int64_t step = 0; step < steps; step++) {
        progress("link --overlap", step, steps);
        FY_TRY(wait_slot(p, step));
        FY_TRY(feed(p, step));
        FY_TRY(compute(p, step, &result));
        FY_TRY(ask(p, result));
        FY_TRY(receive(p, LATE - 1));
    }
    progress("link --overlap", 1, 1);
    FY_TRY(session_wait(p->session)); /* one sync, then what is left has come */
    FY_TRY(receive(p, LATE));
    *out_ns = link_now_ns(p->session) - start;
    return receive(p, 0);
}

static fy_status_t engines(const session_t *session, phases_t *out)
{
    fy_device_clock_t clock = FY_DEVICE_CLOCK_INIT;
    FY_TRY(fy_device_clock_query(session->device, &clock));
    *out =
        (phases_t){ (double)clock.upload_ns, (double)clock.compute_ns, (double)clock.download_ns };
    return FY_STATUS_OK;
}

/* The loop with a wait after every request. */
static fy_status_t run_serial(pipeline_t *p, int64_t steps, double *out_ns_per_step,
                              phases_t *out_phases)
{
    fy_tensor_t *result;
    phases_t alone = { 0, 0, 0 }, before, after;
    const session_t *session = p->session;
    begin(p);
    FY_TRY(session_wait(p->session));
    FY_TRY(engines(session, &before));
    const double start = link_now_ns(session);
    for (int64_t step = 0; step < steps; step++) {
        const double t0 = link_now_ns(session);
        FY_TRY(feed(p, step));
        FY_TRY(session_wait(p->session));
        const double t1 = link_now_ns(session);
        FY_TRY(compute(p, step, &result));
        FY_TRY(session_wait(p->session));
        const double t2 = link_now_ns(session);
        FY_TRY(ask(p, result));
        FY_TRY(receive(p, 0));
        alone.upload += t1 - t0;
        alone.compute += t2 - t1;
        alone.download += link_now_ns(session) - t2;
    }
    const double n = (double)steps;
    *out_ns_per_step = (link_now_ns(session) - start) / n;
    FY_TRY(engines(session, &after));
    /* the engines know it without what the host pays for submitting and waking up */
    if (session->info.is_simulated)
        alone = (phases_t){ after.upload - before.upload, after.compute - before.compute,
                            after.download - before.download };
    *out_phases = (phases_t){ alone.upload / n, alone.compute / n, alone.download / n };
    return FY_STATUS_OK;
}

/* As many products as make computing about as long as the upload. */
static fy_status_t choose_products(pipeline_t *p)
{
    enum { TRIALS = 3, MOST = 4096 };
    phases_t one, two;
    double ns;
    p->products = 1;
    FY_TRY(run_serial(p, 1, &ns, &one)); /* to warm up */
    FY_TRY(run_serial(p, TRIALS, &ns, &one));
    p->products = 2;
    FY_TRY(run_serial(p, TRIALS, &ns, &two));
    const double each = two.compute - one.compute, rest = one.compute - each,
                 wanted = round((one.upload - rest) / each);
    /* also if noise made `each` 0 or negative */
    p->products = wanted >= 1 && wanted <= MOST ? (int64_t)wanted : 1;
    return FY_STATUS_OK;
}

/* One value of each a round. */
typedef struct rounds {
    sample_t pipelined, serial, upload, compute, download;
} rounds_t;

static fy_status_t measure_round(pipeline_t *p, int64_t steps, rounds_t *rounds)
{
    phases_t alone;
    double serial, filling, ns;
    FY_TRY(run_serial(p, steps, &serial, &alone));
    FY_TRY(run_pipelined(p, FILL, &filling));
    FY_TRY(run_pipelined(p, FILL + steps, &ns));
    sample_add(&rounds->serial, serial);
    /* what filling and emptying cost is in both */
    sample_add(&rounds->pipelined, (ns - filling) / (double)steps);
    sample_add(&rounds->upload, alone.upload);
    sample_add(&rounds->compute, alone.compute);
    sample_add(&rounds->download, alone.download);
    return FY_STATUS_OK;
}

static fy_status_t measure(pipeline_t *p, int64_t steps, const effort_t *effort, overlap_t *out)
{
    phases_t alone;
    double ns;
    rounds_t rounds = { 0 };
    FY_TRY(create(p));
    if (!p->products) FY_TRY(choose_products(p));
    FY_TRY(run_serial(p, 1, &ns, &alone));
    while (!effort_is_met(effort, &rounds.serial) || !effort_is_met(effort, &rounds.pipelined))
        FY_TRY(measure_round(p, steps, &rounds));
    out->steps = steps;
    out->products = p->products;
    out->pipelined_ns_per_step = sample_spread(&rounds.pipelined);
    out->serial_ns_per_step = sample_spread(&rounds.serial);
    out->upload_ns = sample_spread(&rounds.upload);
    out->compute_ns = sample_spread(&rounds.compute);
    out->download_ns = sample_spread(&rounds.download);
    return FY_STATUS_OK;
}

fy_status_t link_overlap_measure(session_t *session, int64_t steps, int64_t products,
                                 const effort_t *effort, overlap_t *out)
{
    pipeline_t p = { .session = session, .products = products };
    fy_scope_t scope = fy_scope_begin("overlap");
    const fy_status_t status = measure(&p, steps, effort, out);
    fy_scope_end(scope, 0, NULL);
    return status;
}

static void report_text(const session_t *session, const overlap_t *o, const sheet_t *sheet)
{
    const double upload = o->upload_ns.median, compute = o->compute_ns.median,
                 download = o->download_ns.median, sum = upload + compute + download,
                 longest = fmax(fmax(upload, compute), download);
    fprintf(session->out,
            "link --overlap: %lld steps of %d bytes up, %lld matrix products, %d bytes down, on %s "
            "(%s), %s clock\n\n",
            (long long)o->steps, ROWS * COLUMNS * 4, (long long)o->products, COLUMNS * 4,
            fy_device_name(session->device), session->info.model, session_clock(session));
    sheet_print(sheet, session->out);
    fprintf(session->out,
            "\npipelined: %.3f x the longest of the three; serial: %.3f x their sum\n",
            o->pipelined_ns_per_step.median / longest, o->serial_ns_per_step.median / sum);
}

enum { FIGURES = 5 };

/* The figures of the table and of the document, in this order. */
static const struct {
    const char *name, *key;
} figures[FIGURES] = { { "upload", "upload_ns" },
                       { "compute", "compute_ns" },
                       { "download", "download_ns" },
                       { "serial", "serial_ns_per_step" },
                       { "pipelined", "pipelined_ns_per_step" } };

static void report_json(json_t *json, const session_t *session, const overlap_t *o,
                        const spread_t spreads[FIGURES])
{
    json_text(json, "clock", session_clock(session));
    json_begin_object(json, "overlap");
    json_int(json, "steps", o->steps);
    json_int(json, "products", o->products);
    json_int(json, "upload_bytes_per_step", ROWS * COLUMNS * 4);
    json_int(json, "download_bytes_per_step", COLUMNS * 4);
    for (int i = 0; i < FIGURES; i++) json_spread(json, figures[i].key, &spreads[i]);
    json_uint(json, "rounds", o->serial_ns_per_step.rounds);
    json_end(json);
}

fy_status_t link_overlap(session_t *session, int64_t steps, int64_t products,
                         const effort_t *effort)
{
    static const column_t columns[] = { { "name", "what", 0 },
                                        SPREAD_COLUMNS("ns_per_step", "ns/step", 0),
                                        ROUNDS_COLUMN };
    overlap_t o;
    const char *names[FIGURES];
    FY_TRY(link_overlap_measure(session, steps, products, effort, &o));
    const spread_t spreads[FIGURES] = { o.upload_ns, o.compute_ns, o.download_ns,
                                        o.serial_ns_per_step, o.pipelined_ns_per_step };
    sheet_t *sheet = sheet_create(columns, sizeof columns / sizeof *columns);
    for (int i = 0; i < FIGURES; i++) {
        names[i] = figures[i].name;
        sheet_text(sheet, names[i]);
        sheet_spread(sheet, &spreads[i]);
        sheet_int(sheet, (int64_t)spreads[i].rounds);
    }
    if (session->out)
        report_text(session, &o, sheet);
    else
        report_json(&session->json, session, &o, spreads);
    session_statistics(session, effort, "one step in turn");
    const series_t series = { "ns", FIGURES, .spreads = spreads };
    const plot_t plot = { .title = "A step of upload, compute and download",
                          .x_label = "alone, in turn, side by side",
                          .y_label = session->info.is_simulated ? "ns per step, model clock"
                                                                : "ns per step",
                          .bars = names,
                          .nseries = 1,
                          .series = &series };
    return session_finish(session, sheet, &plot);
}
