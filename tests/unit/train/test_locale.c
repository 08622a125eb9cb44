/* Texts, files and specs are alike in a host program whose locale has a decimal comma: each maker
 * runs under C and under de_DE.UTF-8, and its bytes are compared. The locale is compiled at
 * configure time (tests/CMakeLists.txt); without it the file is skipped.
 * Not here: the suite under this locale (.ci/run odd). */
#include <locale.h>

#include "tests/unit/train/fixture.h"

enum { ROOM = 1 << 19 };

static char *text;
static size_t used;

__attribute__((format(printf, 1, 2))) static void put(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    used += (size_t)vsnprintf(text + used, ROOM - used, format, values);
    va_end(values);
    assert_true(used < ROOM);
}

static void put_error(fy_status_t status)
{
    put("%s: %s\n", fy_status_name(status), status ? fy_error_get()->text : "");
}

static void put_file(const char *path)
{
    used += read_file(path, text + used, ROOM - used - 1);
    text[used] = 0;
}

/* ---- makers ---- */

static void specs(void)
{
    static const char *const given[] = { "sim:0?limit=1.5GiB", "sim:0?limit=1,5GiB",
                                         "sim:0?limit=1.25e1MiB" };
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        fy_device_t *device;
        const fy_status_t status = fy_device_open(given[i], &device);
        put_error(status);
        if (status) continue;
        put("%llu\n", (unsigned long long)ts_memory(device, NULL).limit);
        fy_device_close(device);
    }
}

static void budgets(void)
{
    put_error(fy_budget_set("upload=1.5MiB"));
    put_error(fy_budget_set("upload=1,5MiB"));
    ts_ok(fy_budget_set(NULL));
}

static void variables(void)
{
    fy_device_t *device;
    setenv("FERRY_MACHINE_MEMORY", "1.5GiB", 1);
    put_error(fy_device_open("host", &device));
    fy_device_close(device);
    unsetenv("FERRY_MACHINE_MEMORY");
}

static void errors(void)
{
    fy_device_t *device = ts_open("sim:0?limit=4MiB");
    const fy_schedule_t schedule = { .struct_size = sizeof schedule,
                                     .kind = FY_SCHEDULE_STEP,
                                     .lr = 0.5,
                                     .step_size = 1,
                                     .gamma = -0.5 };
    fy_tensor_t *x;
    fy_table_t *table;
    put_error(fy_full(device, FY_DTYPE_I32, FY_DIMS(2), 1.5, &x));
    put_error(fy_tensor_create(device, FY_DTYPE_U8, FY_DIMS(5 << 20), &x));
    put_error(fy_schedule_check(&schedule));
    put_error(fy_table_read("/nonexistent", NULL, &table));
    put_error(fy_error_set(FY_STATUS_INTERNAL, __FILE__, __LINE__, "%.3f", 0.125));
    ts_close();
}

static void plugins(void)
{
    fy_device_t *device;
    write_file("libferry_broken.so", "no library", 10);
    setenv("FERRY_PLUGIN_PATH", folder, 1);
    put_error(fy_device_open("broken:0", &device));
    unlink(in_folder("libferry_broken.so"));
}

static void on_line(void *user, fy_log_level_t level, const char *line)
{
    (void)user;
    put("%d %s\n", (int)level, line);
}

static void logs(void)
{
    fy_log_set(on_line, NULL);
    fy_log_write(FY_LOG_INFO, "%.3f", 0.125);
    fy_log_set(NULL, NULL);
}

static void events(void)
{
    fy_device_t *device = ts_open("sim:0");
    const char *path = in_folder("events.jsonl");
    fy_tensor_t *y;
    char *whole = calloc(1, ROOM);
    assert_non_null(whole);
    ts_ok(fy_ledger_record(path));
    ts_ok(fy_affine(ts_zeros(device, FY_DTYPE_F32, FY_DIMS(4)), 0.125, 2.5, &y));
    ts_ok(fy_ledger_record(NULL));
    read_file(path, whole, ROOM - 1);
    const char *attrs = strstr(whole, "\"attrs\":\"scale");
    assert_non_null(attrs);
    put("%.*s\n", (int)(strstr(attrs, "\",\"") - attrs), attrs);
    free(whole);
    unlink(path);
    ts_close();
}

/* Its rectangles and sizes; the rest has times and addresses. */
static void pictures(void)
{
    fy_device_t *device = ts_open("sim:0");
    const char *path = in_folder("memory.svg");
    char *whole = calloc(1, ROOM);
    assert_non_null(whole);
    for (int i = 1; i < 5; i++) (void)ts_bytes(device, i * 100000);
    ts_ok(fy_memory_snapshot(device, path, FY_SNAPSHOT_SVG));
    read_file(path, whole, ROOM - 1);
    for (const char *at = whole; (at = strstr(at, "<rect")); at++)
        put("%.*s\n", (int)strcspn(at, ">"), at);
    for (const char *at = whole; (at = strstr(at, "iB")); at++) put("%.7s\n", at - 5);
    free(whole);
    unlink(path);
    ts_close();
}

static void tables(void)
{
    const char *path = in_folder("table.tsv");
    fy_table_t *table, *again;
    ts_ok(fy_table_parse("0.125 -2.5e-1\n3 1e300\n", 22, "t", NULL, &table));
    ts_ok(fy_table_write(table, path));
    put_file(path);
    ts_ok(fy_table_read(path, NULL, &again));
    assert_memory_equal(fy_table_values(again), fy_table_values(table), 4 * sizeof(double));
    fy_table_destroy(again);
    fy_table_destroy(table);
    unlink(path);
}

/* Text that ranks compare. */
static fy_status_t on_begin(void *user, const char *lines)
{
    (void)user;
    put("%s", lines);
    return fy_error_set(FY_STATUS_CANCELLED, __FILE__, __LINE__, "the text suffices");
}

static fy_status_t on_tensor(void *user, fy_tensor_t *tensor)
{
    (void)user;
    (void)tensor;
    return FY_STATUS_OK;
}

static fy_status_t on_nothing(void *user)
{
    (void)user;
    return FY_STATUS_OK;
}

/* A checkpoint of one step, and the lines that ranks compare at the beginning. */
static void trainings(void)
{
    const fy_train_replicas_t calls = { .struct_size = sizeof calls,
                                        .ranks = 2,
                                        .begin = on_begin,
                                        .sum_grads = on_nothing,
                                        .sum = on_tensor,
                                        .share_buffers = on_nothing };
    fy_schedule_t schedule = FY_SCHEDULE_INIT;
    schedule.lr = 0.125;
    for (int ranks = 1; ranks < 3; ranks++) {
        fy_loader_options_t batches = FY_LOADER_OPTIONS_INIT;
        fy_train_options_t options = FY_TRAIN_OPTIONS_INIT;
        const fy_optimizer_options_t adam = optimizer_defaults(FY_OPTIMIZER_ADAM);
        parts_t parts = { 0 };
        batches.batch = 4;
        batches.ranks = ranks;
        ts_ok(make_batches(ts_open("sim:0"), 4, batches, &parts));
        ts_ok(fy_model_open(ts_open("sim:0"), "mnist2018", NULL, &parts.model));
        ts_ok(fy_optimizer_create_model(&adam, parts.model, &parts.optimizer));
        options.loss = FY_LOSS_NLL;
        options.clip_norm = 0.25;
        options.schedule = &schedule;
        options.checkpoint = folder;
        options.checkpoint_every = 1;
        options.replicas = ranks > 1 ? &calls : NULL;
        const fy_status_t status =
            fy_train_run(parts.model, parts.optimizer, parts.train, NULL, &options, NULL);
        put_error(status);
        assert_int_equal(status, ranks > 1 ? FY_STATUS_CANCELLED : FY_STATUS_OK);
        drop_parts(&parts);
        ts_close();
    }
    /* beginning: the JSON header */
    const char *path = in_folder("step-00000001.safetensors");
    char head[4096] = "";
    read_file(path, head, sizeof head - 1);
    put("%s\n", head + 8);
    unlink(path);
}

/* ---- the comparison ---- */

static const struct {
    const char *name;
    void (*make)(void);
    const char *part; /* of the text, so that an empty one does not pass */
} makers[] = {
    { "specs", specs, "1610612736" },
    { "budgets", budgets, "'5MiB' is no item" },
    { "variables", variables, "OK" },
    { "errors", errors, "0.125" },
    { "plugins", plugins, "broken" },
    { "logs", logs, "0.125" },
    { "events", events, "scale=0.125 shift=2.5" },
    { "pictures", pictures, "width=\"" },
    { "tables", tables, "0.125" },
    { "trainings", trainings, "lr 0.125" },
};

static char *made(void (*make)(void))
{
    text = calloc(1, ROOM);
    assert_non_null(text);
    used = 0;
    make();
    return text;
}

/* First: $FERRY_BUDGET is read once. */
TS_TEST(budget_of_the_environment)
{
    fy_device_t *device;
    assert_non_null(setlocale(LC_ALL, "de_DE.UTF-8"));
    setenv("FERRY_BUDGET", "upload=1.5GiB", 1);
    ts_ok(fy_device_open("host", &device));
    fy_device_close(device);
    ts_ok(fy_budget_set(NULL));
}

TS_TEST(texts_are_alike)
{
    for (size_t i = 0; i < sizeof makers / sizeof *makers; i++) {
        assert_non_null(setlocale(LC_ALL, "C"));
        char *plain = made(makers[i].make);
        assert_non_null(setlocale(LC_ALL, "de_DE.UTF-8"));
        char *comma = made(makers[i].make);
        if (!strstr(plain, makers[i].part)) fail_msg("%s: %s", makers[i].name, plain);
        assert_string_equal(plain, comma);
        free(plain);
        free(comma);
    }
}

/* A call changes no locale of its thread. */
TS_TEST(locale_of_the_caller_stays)
{
    char number[8];
    assert_non_null(setlocale(LC_ALL, "de_DE.UTF-8"));
    (void)fy_error_set(FY_STATUS_INTERNAL, __FILE__, __LINE__, "%g", 1.5);
    assert_string_equal(fy_error_get()->text, "1.5");
    snprintf(number, sizeof number, "%g", 1.5);
    assert_string_equal(number, "1,5");
}

static int find_locale(void)
{
    char locales[512];
    const char *build = getenv("FERRY_BUILD_DIR");
    snprintf(locales, sizeof locales, "%s/locales", build ? build : ".");
    setenv("LOCPATH", locales, 1);
    const int is_there = setlocale(LC_ALL, "de_DE.UTF-8") != NULL;
    if (!is_there)
        printf("skipped: no locale de_DE.UTF-8 in %s, which configuring compiles (Debian package "
               "locales)\n",
               locales);
    return is_there ? 0 : 77;
}

TS_SUITE(.prepare = find_locale, .begin = make_folder, .end = drop_folder);
