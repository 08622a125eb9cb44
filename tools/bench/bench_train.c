/* `ferry bench train`: training steps, called and replayed as graphs.
 * Not here: what a step does (tools/train/small_train.c, image_train.c), its layers one by one
 * (bench_layers.c), the loop (bench.c), other libraries (bench/peers_*.cpp). */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/bench/bench.h"
#include "tools/bench/roofline.h"
#include "tools/train/image_train.h"
#include "tools/train/small_train.h"

typedef struct train_case {
    const char *name, *mode; /* mode: "eager" or "graph" */
    /* Makes the context, in the current scope; a NULL context is a failure. It goes by free(). */
    fy_status_t (*make)(fy_device_t *device, const struct train_case *row, void **out_context);
    int which;    /* a small_optimizer_t, an image case, or 0 */
    bench_fn run; /* so many steps */
    /* calls of one step that have a gradient, for the time of one; 0: left out */
    int64_t ops;
    int64_t images; /* of one step; 0: left out */
    /* of one step, for its share of what the cores can do; NULL: left out */
    double (*flops)(const void *context);
    void (*end)(void *context); /* frees resources that no scope owns; NULL: none */
} train_case_t;

/* ---- steps with little work ---- */

static int is_graph(const train_case_t *row) { return strcmp(row->mode, "graph") == 0; }

static fy_status_t make_chain(fy_device_t *device, const train_case_t *row, void **out_context)
{
    return small_chain_make(device, is_graph(row),
                            *out_context = tool_alloc(sizeof(small_chain_t)));
}
static fy_status_t make_mlp(fy_device_t *device, const train_case_t *row, void **out_context)
{
    small_mlp_t *mlp = *out_context = tool_alloc(sizeof *mlp);
    FY_TRY(small_mlp_make(device, (small_optimizer_t)row->which, is_graph(row), mlp));
    return small_mlp_calm(mlp);
}

/* The last loss is in no scope. */
static void end_chain(void *context) { fy_tensor_destroy(((small_chain_t *)context)->loss); }
static void end_mlp(void *context) { fy_tensor_destroy(((small_mlp_t *)context)->loss); }

static const train_case_t small_cases[] = {
    { "chain of 100", "eager", make_chain, 0, small_chain_run, SMALL_CHAIN_OPS, 0, NULL,
      end_chain },
    { "chain of 100", "graph", make_chain, 0, small_chain_run, SMALL_CHAIN_OPS, 0, NULL,
      end_chain },
    { "mlp 64-64-10 sgd", "eager", make_mlp, SMALL_SGD, small_mlp_run, 0, 1, NULL, end_mlp },
    { "mlp 64-64-10 sgd", "graph", make_mlp, SMALL_SGD, small_mlp_run, 0, 1, NULL, end_mlp },
    { "mlp 64-64-10 adam", "eager", make_mlp, SMALL_ADAM, small_mlp_run, 0, 1, NULL, end_mlp },
    { "mlp 64-64-10 adam", "graph", make_mlp, SMALL_ADAM, small_mlp_run, 0, 1, NULL, end_mlp },
};

/* ---- steps with work ---- */

static fy_status_t make_image(fy_device_t *device, const train_case_t *row, void **out_context)
{
    return image_train_make(device, &image_cases[row->which],
                            *out_context = tool_alloc(sizeof(image_train_t)));
}
static double flops(const void *context) { return ((const image_train_t *)context)->flops; }
static void end_image(void *context) { image_train_end(context); }

static const train_case_t image_steps[] = {
    { "mnist", "eager", make_image, 0, image_train_run, 0, 64, flops, end_image },
    { "lenet", "eager", make_image, 1, image_train_run, 0, 256, flops, end_image },
    { "resnet18", "eager", make_image, 2, image_train_run, 0, 64, flops, end_image },
    { "mobilenet_v3_large", "eager", make_image, 3, image_train_run, 0, 16, flops, end_image },
    { "gpt", "eager", make_image, 4, image_train_run, 0, 16, flops, end_image },
};

enum {
    SMALL_CASES = sizeof small_cases / sizeof *small_cases,
    IMAGE_STEPS = sizeof image_steps / sizeof *image_steps,
    MOST_CASES = SMALL_CASES + IMAGE_STEPS
};

/* ---- the suite ---- */

static fy_status_t report(session_t *session, const effort_t *effort, const train_case_t *rows,
                          const bench_case_t *cases, size_t count)
{
    static const column_t columns[] = {
        { "case", "step", 0 },
        { "mode", "mode", 0 },
        SPREAD_COLUMNS("ns_per_step", "ns/step", 0),
        { "worst_ns_per_step", "worst", 0 },
        { "ns_per_op", "ns/op", 1 },
        { "batch", "batch", 0 },
        { "images_per_s", "images/s", 0 },
        { "roofline_share", "of roofline", 2 },
        { "model_ns_per_step", NULL, 0 },
        ROUNDS_COLUMN,
    };
    char labels[MOST_CASES][64];
    const char *names[MOST_CASES];
    spread_t ns[MOST_CASES];
    const int runs_on_cpu = strncmp(fy_device_name(session->device), "cuda", 4) != 0;
    /* flops a ns */
    const double roofline = runs_on_cpu ? roofline_gflops((int)sysconf(_SC_NPROCESSORS_ONLN)) : 1;
    sheet_t *sheet = sheet_create(columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < count; i++) {
        const bench_case_t *c = &cases[i];
        snprintf(labels[i], sizeof labels[i], "%s, %s", rows[i].name, rows[i].mode);
        names[i] = labels[i];
        ns[i] = c->spread;
        sheet_text(sheet, rows[i].name);
        sheet_text(sheet, rows[i].mode);
        sheet_spread(sheet, &c->spread);
        sheet_real(sheet, c->spread.worst);
        sheet_real(sheet, rows[i].ops ? c->spread.median / (double)rows[i].ops : NAN);
        sheet_real(sheet, rows[i].images ? (double)rows[i].images : NAN);
        sheet_real(sheet, rows[i].images ? 1e9 * (double)rows[i].images / c->spread.median : NAN);
        sheet_real(sheet, rows[i].flops && runs_on_cpu
                              ? rows[i].flops(c->context) / c->spread.median / roofline
                              : NAN);
        sheet_real(sheet, c->model_ns);
        sheet_int(sheet, (int64_t)c->spread.rounds);
    }
    return bench_report(session, sheet, effort,
                        &(bench_bars_t){ "training steps", "What a training step costs", "step",
                                         names, ns, count });
}

/* The cases of a family whose name begins with `prefix`. */
static size_t choose(const char *prefix, const train_case_t *family, size_t most,
                     train_case_t *out_rows)
{
    size_t count = 0;
    for (size_t i = 0; i < most; i++)
        if (strncmp(family[i].name, prefix, strlen(prefix)) == 0) out_rows[count++] = family[i];
    return count;
}

static fy_status_t run(session_t *session, const effort_t *effort, const train_case_t *rows,
                       bench_case_t *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        FY_TRY(rows[i].make(session->device, &rows[i], &cases[i].context));
        cases[i].op = rows[i].name;
        cases[i].run = rows[i].run;
    }
    FY_TRY(bench_measure(session, cases, count, effort));
    return report(session, effort, rows, cases, count);
}

int bench_train(int argc, char **argv)
{
    common_t common = { .device = "auto" };
    effort_t effort = { 15, 10 };
    const char *prefix = "";
    bool layers = false;
    const option_t options[] = { { "case", OPTION_TEXT, "NAME", &prefix,
                                   "only steps whose name begins so" },
                                 { "layers", OPTION_FLAG, NULL, &layers,
                                   "time the models' layers by direction instead of whole steps" },
                                 BENCH_OPTIONS(&effort),
                                 COMMON_OPTIONS(&common) };
    const usage_t usage = {
        "ferry bench train",
        "Times training steps, called one request at a time and replayed as graphs.", options,
        sizeof options / sizeof *options,
        "ferry bench train --device host --case 'mlp 64-64-10 sgd' --rounds 1\n"
        "ferry bench train --device host --case lenet --layers --rounds 1 --round-ms 1\n"
    };
    OPTIONS_TRY(options_parse(&usage, argc, argv));

    session_t session;
    train_case_t rows[MOST_CASES];
    size_t count = choose(prefix, small_cases, SMALL_CASES, rows);
    count += choose(prefix, image_steps, IMAGE_STEPS, rows + count);
    if (layers ? !bench_layers_has(prefix) : !count)
        return TOOL_REFUSE(STATUS_USAGE, "no %s is called '%s...'; without --case all are timed\n",
                           layers ? "model with layers" : "step", prefix);
    bench_case_t *cases = tool_alloc(count * sizeof *cases);
    fy_status_t status = session_begin(&session, &common, usage.command, "bench", "train");
    if (status == FY_STATUS_OK)
        status = layers ? bench_layers_run(&session, prefix, &effort)
                        : run(&session, &effort, rows, cases, count);
    for (size_t i = 0; i < count; i++) /* before its device goes */
        if (!layers && rows[i].end && cases[i].context) rows[i].end(cases[i].context);
    int exit_status = session_end(&session, status);
    for (size_t i = 0; !layers && i < count; i++) free(cases[i].context);
    free(cases);
    return exit_status;
}
