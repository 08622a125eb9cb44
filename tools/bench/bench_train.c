/* `ferry bench train`: training steps, called and replayed as graphs.
 * Not here: what a step does (bench_train_*.c), its layers one by one (bench_layers.c), the loop
 * (bench.c), other libraries (bench/peers_*.cpp). */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/bench/bench_train.h"
#include "tools/bench/roofline.h"

static fy_status_t report(session_t *session, const train_case_t *rows, const bench_case_t *cases,
                          size_t count)
{
    static const column_t columns[] = {
        { "case", "step", 0 },
        { "mode", "mode", 0 },
        { "ns_per_step", "ns/step", 0 },
        { "worst_ns_per_step", "worst", 0 },
        { "ns_per_op", "ns/op", 1 },
        { "batch", "batch", 0 },
        { "images_per_s", "images/s", 0 },
        { "roofline_share", "of roofline", 2 },
        { "model_ns_per_step", NULL, 0 },
    };
    char labels[TRAIN_MOST_CASES][64];
    const char *names[TRAIN_MOST_CASES];
    double ns[TRAIN_MOST_CASES];
    const int runs_on_cpu = strncmp(fy_device_name(session->device), "cuda", 4) != 0;
    /* flops a ns */
    const double roofline = runs_on_cpu ? roofline_gflops((int)sysconf(_SC_NPROCESSORS_ONLN)) : 1;
    sheet_t *sheet = sheet_create(columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < count; i++) {
        const bench_case_t *c = &cases[i];
        snprintf(labels[i], sizeof labels[i], "%s, %s", rows[i].name, rows[i].mode);
        names[i] = labels[i];
        ns[i] = c->ns;
        sheet_text(sheet, rows[i].name);
        sheet_text(sheet, rows[i].mode);
        sheet_real(sheet, c->ns);
        sheet_real(sheet, c->worst_ns);
        sheet_real(sheet, rows[i].ops ? c->ns / (double)rows[i].ops : NAN);
        sheet_real(sheet, rows[i].images ? (double)rows[i].images : NAN);
        sheet_real(sheet, rows[i].images ? 1e9 * (double)rows[i].images / c->ns : NAN);
        sheet_real(sheet, rows[i].flops && runs_on_cpu
                              ? rows[i].flops(c->context) / c->ns / roofline
                              : NAN);
        sheet_real(sheet, c->model_ns);
    }
    return bench_report(session, sheet,
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

static fy_status_t run(session_t *session, const bench_effort_t *effort, const train_case_t *rows,
                       bench_case_t *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        FY_TRY(rows[i].make(session->device, &cases[i].context));
        cases[i].op = rows[i].name;
        cases[i].run = rows[i].run;
    }
    FY_TRY(bench_measure(session, cases, count, effort));
    return report(session, rows, cases, count);
}

int bench_train(int argc, char **argv)
{
    common_t common = { .device = "auto" };
    bench_effort_t effort = { 15, 10 };
    const char *prefix = "";
    bool layers = false;
    const option_t options[] = {
        { "case", OPTION_TEXT, "NAME", &prefix, "only steps whose name begins so", 0, 0 },
        { "layers", OPTION_FLAG, NULL, &layers,
          "time the models' layers by direction instead of whole steps", 0, 0 },
        BENCH_OPTIONS(&effort),
        COMMON_OPTIONS(&common)
    };
    const usage_t usage = {
        "ferry bench train",
        "Times training steps, called one request at a time and replayed as graphs.", options,
        sizeof options / sizeof *options,
        "ferry bench train --device host --case 'mlp 64-64-10 sgd' --rounds 1\n"
        "ferry bench train --device host --case lenet --layers --rounds 1 --round-ms 1\n"
    };
    parse_result_t parsed = options_parse(&usage, argc, argv);
    if (parsed != PARSE_OK) return parsed == PARSE_HELP ? STATUS_OK : STATUS_USAGE;

    session_t session;
    train_case_t rows[TRAIN_MOST_CASES];
    size_t count = choose(prefix, train_small, TRAIN_SMALL_COUNT, rows);
    count += choose(prefix, train_image, TRAIN_IMAGE_COUNT, rows + count);
    if (layers ? !bench_layers_has(prefix) : !count) {
        fprintf(stderr, "ferry: no %s is called '%s...'; without --case all are timed\n",
                layers ? "model with layers" : "step", prefix);
        return STATUS_USAGE;
    }
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
