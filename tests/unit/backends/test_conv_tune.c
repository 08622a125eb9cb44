/* autotune=on and tune=FILE of the host: the first calls of a shape are timed, later ones are not;
 * a file gives the same choices, so the same bits; broken files, failures, two processes. */
#include <math.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/kernels/conv_tune.h"
#include "tests/support/harness.h"
#include "tests/support/host_memory.h"

/* ---- a file in a separate folder ---- */

static char folder[] = "/tmp/ferry-tune-XXXXXX", path[64], spec[128];

static int begin(void **state)
{
    (void)state;
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/choices", folder);
    snprintf(spec, sizeof spec, "host?autotune=on&tune=%s", path);
    return 0;
}

static void forget_all(void)
{
    fy_device_t *host;
    ts_ok(fy_device_open("host?autotune=off", &host));
    fy_device_close(host);
}

static int end(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

static void write_text(const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fwrite(text, 1, strlen(text), file) == strlen(text));
    assert_int_equal(fclose(file), 0);
}

static size_t read_text(char *text, size_t room)
{
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    const size_t nbytes = fread(text, 1, room - 1, file);
    text[nbytes] = 0;
    fclose(file);
    return nbytes;
}

static void ignore(void *user, const fy__tune_choice_t *choice)
{
    (void)choice;
    ++*(int *)user;
}

/* The choices in the file, which must be whole. */
static int count_choices(void)
{
    static char text[1 << 20];
    const char *problem;
    int count = 0;
    const size_t nbytes = read_text(text, sizeof text);
    if (nbytes) assert_int_equal(fy__tune_parse(text, nbytes, ignore, &count, &problem), 0);
    return count;
}

/* ---- calls ---- */

enum { Y = 2 * 12 * 12 * 16 };

static fy_dtype_t dtype = FY_DTYPE_F32;

static void convolve(float out[Y])
{
    fy_tensor_t *rng, *x, *w, *y;
    const fy_conv2d_attrs_t attrs = { .stride_h = 1,
                                      .stride_w = 1,
                                      .padding_h = 1,
                                      .padding_w = 1,
                                      .dilation_h = 1,
                                      .dilation_w = 1,
                                      .groups = 1 };
    const fy_scope_t scope = fy_scope_begin("convolve");
    ts_ok(fy_rng_create(fy_device_host(), 1, &rng));
    ts_ok(fy_rand(rng, FY_DTYPE_F32, FY_DIMS(2, 12, 12, 8), -1, 1, &x));
    ts_ok(fy_rand(rng, FY_DTYPE_F32, FY_DIMS(16, 3, 3, 8), -1, 1, &w));
    ts_ok(fy_cast(x, dtype, &x));
    ts_ok(fy_cast(w, dtype, &w));
    ts_ok(fy_conv2d(x, w, NULL, &attrs, &y));
    ts_ok(fy_cast(y, FY_DTYPE_F32, &y));
    ts_read(y, out, Y * sizeof *out);
    fy_scope_end(scope, 0, NULL);
}

static void open_host(const char *text)
{
    fy_device_t *host;
    ts_ok(fy_device_open(text, &host));
    fy_device_close(host);
}

TS_TEST(the_first_calls_are_timed)
{
    float fixed[Y], tuned[Y], again[Y];
    forget_all();
    convolve(fixed);
    const uint64_t before = fy__conv_tune_facts().timed;
    convolve(fixed);
    assert_int_equal(fy__conv_tune_facts().timed, before); /* off by default */
    open_host(spec);
    for (int i = 0; i < 3 * FY__TUNE_WAYS; i++) {
        convolve(tuned); /* each call's result is right, whatever the way */
        for (int k = 0; k < Y; k++) assert_true(fabsf(tuned[k] - fixed[k]) < 1e-4f);
    }
    const fy__tune_facts_t settled = fy__conv_tune_facts();
    assert_true(settled.shapes == 1 && settled.timed > before &&
                settled.timed <= before + 3 * FY__TUNE_WAYS);
    convolve(tuned);
    convolve(again);
    assert_int_equal(fy__conv_tune_facts().timed, settled.timed);
    assert_memory_equal(tuned, again, sizeof tuned);
    assert_int_equal(count_choices(), 1);
    /* as in another process: nothing but the file is left */
    forget_all();
    assert_int_equal(fy__conv_tune_facts().shapes, 0);
    open_host(spec);
    convolve(again);
    assert_int_equal(fy__conv_tune_facts().timed, settled.timed);
    assert_memory_equal(tuned, again, sizeof tuned);
    /* the file without autotune= measures no other shape */
    forget_all();
    char only[128];
    snprintf(only, sizeof only, "host?tune=%s", path);
    open_host(only);
    convolve(again);
    assert_memory_equal(tuned, again, sizeof tuned);
    unlink(path);
    forget_all();
    open_host(only); /* a file that does not exist is empty */
    convolve(again);
    assert_memory_equal(fixed, again, sizeof fixed);
    assert_int_equal(fy__conv_tune_facts().timed, settled.timed);
    forget_all();
}

/* f16 and bf16 are other problems than f32, with separate choices. */
TS_TEST(half_precision_is_timed)
{
    const fy_dtype_t dtypes[] = { FY_DTYPE_F16, FY_DTYPE_BF16 };
    const float ulp[] = { 1.f / 1024, 1.f / 128 };
    float fixed[Y], tuned[Y], again[Y];
    forget_all();
    for (int k = 0; k < 2; k++) {
        dtype = dtypes[k];
        convolve(fixed);
        open_host(spec);
        for (int i = 0; i < 3 * FY__TUNE_WAYS; i++) {
            convolve(tuned); /* sums in f32 or more, one rounding: at most one step apart */
            for (int j = 0; j < Y; j++)
                assert_true(fabsf(tuned[j] - fixed[j]) <= ulp[k] * fmaxf(fabsf(fixed[j]), 0.01f));
        }
        const fy__tune_facts_t settled = fy__conv_tune_facts();
        assert_int_equal(settled.shapes, k + 1);
        convolve(tuned);
        assert_int_equal(fy__conv_tune_facts().timed, settled.timed);
        forget_all();
        open_host(spec); /* both dtypes are read from the file */
        convolve(again);
        assert_int_equal(fy__conv_tune_facts().timed, settled.timed);
        assert_memory_equal(tuned, again, sizeof tuned);
    }
    assert_int_equal(count_choices(), 2);
    dtype = FY_DTYPE_F32;
    unlink(path);
    forget_all();
}

TS_TEST(simulated_devices_use_the_fixed_rule)
{
    fy_device_t *device;
    ts_fails_with(fy_device_open("sim:3?autotune=on", &device), INVALID_ARGUMENT,
                  "the same bits in every run");
    ts_fails(fy_device_open("sim:3?tune=x", &device), INVALID_ARGUMENT);
    ts_fails(fy_device_open("host?autotune=maybe", &device), INVALID_ARGUMENT);
    ts_fails(fy_device_open("host?autotune=off&tune=x", &device), INVALID_ARGUMENT);
    ts_fails(fy_device_open("host?tune=/", &device), IO);
}

/* ---- the text ---- */

#define SHAPE "1 2 3 4 5 6 7 8 9 1 1 1 0 0 1 1 0 0"

TS_TEST(broken_files_are_refused)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        { "", "line 1: it is not 'ferry-tune 1'" },
        { "ferry-tune 2\n", "line 1: it is not 'ferry-tune 1'" },
        { "ferry-tune 1\nconv3d " SHAPE " 2 m fixed 1\n", "line 2: no known op" },
        { "ferry-tune 1\n\n", "line 2: no known op" },
        { "ferry-tune 1\nconv2d " SHAPE " 2 m fixed 1\nconv2d 1 2\n", "line 3: a number" },
        { "ferry-tune 1\nconv2d 1  2 3 4 5 6 7 8 9 1 1 1 0 0 1 1 0 0 2 m fixed 1\n", "a number" },
        { "ferry-tune 1\nconv2d -1 2 3 4 5 6 7 8 9 1 1 1 0 0 1 1 0 0 2 m fixed 1\n", "a number" },
        { "ferry-tune 1\nconv2d " SHAPE " 0 m fixed 1\n", "line 2: its number of threads" },
        { "ferry-tune 1\nconv2d " SHAPE " 2 \xff fixed 1\n", "line 2: its machine" },
        { "ferry-tune 1\nconv2d " SHAPE " 2 m fastest 1\n", "line 2: its way is none" },
        { "ferry-tune 1\nconv2d " SHAPE " 2 m fixed 1", "line 2: its time" },
        { "ferry-tune 1\nconv2d " SHAPE " 2 m fixed 1 \n", "line 2: its time" },
        { "ferry-tune 1\nconv2d " SHAPE " 2 m fixed 9999999999999999\n", "line 2: its time" },
    };
    forget_all();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fy_device_t *device;
        write_text(cases[i].text);
        ts_fails_with(fy_device_open(spec, &device), CORRUPT_DATA, cases[i].says);
        assert_false(fy__conv_tune_facts().is_used); /* nothing has changed */
    }
    unlink(path);
}

/* Every line that is written is read as the same choice; a changed byte is read or refused. */
TS_TEST(lines_are_read_as_written)
{
    char text[4096];
    const char *problem;
    uint32_t draw = 1;
    for (int way = 0; way < FY__TUNE_WAYS; way++) {
        int count = 0;
        size_t used = strlen(fy__tune_header);
        memcpy(text, fy__tune_header, used);
        fy__tune_choice_t choice = {
            .shape = { .op = FY_OP_CONV2D_BACKWARD_WEIGHT, .n = 256, .accumulate = 1 },
            .threads = 1024,
            .way = way,
            .ns = 123456789
        };
        fy__tune_machine(choice.machine);
        for (int i = 0; i < 3; i++) used += (size_t)fy__tune_line(&choice, text + used);
        assert_int_equal(fy__tune_parse(text, used, ignore, &count, &problem), 0);
        assert_int_equal(count, 3);
        for (int i = 0; i < 5000; i++) {
            char changed[4096];
            draw = draw * 1664525u + 1013904223u;
            memcpy(changed, text, used);
            changed[(draw >> 8) % used] = (char)(draw >> 24);
            (void)fy__tune_parse(changed, used - (draw >> 16) % 3, ignore, &count, &problem);
        }
    }
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(fy__tune_header, file);
    for (int i = 0; i <= FY__TUNE_CAPACITY; i++)
        fprintf(file, "conv2d %d 2 3 4 5 6 7 8 9 1 1 1 0 0 1 1 0 0 2 m plain 1\n", i);
    fclose(file);
    fy_device_t *device;
    ts_fails_with(fy_device_open(spec, &device), CORRUPT_DATA,
                  "line 1026: there are more than 1024 choices");
    unlink(path);
}

/* ---- the table ---- */

static fy_status_t api_fail(fy_status_t status, const char *file, int line, const char *format, ...)
{
    (void)file;
    (void)line;
    (void)format;
    return status;
}
static int logged;
static void api_log(fy_log_level_t level, const char *format, ...)
{
    (void)level;
    (void)format;
    logged++;
}
static const fy_host_api_t api = { .fail = api_fail, .log = api_log };

/* Runs shape number `n` until it is settled; ways above FIXED fail. */
static void settle(int64_t n)
{
    const fy__conv_shape_t shape = { .op = FY_OP_CONV2D, .n = n };
    for (int i = 0; i < 3 * FY__TUNE_WAYS; i++) {
        const fy__tune_ticket_t ticket = fy__conv_tune_begin(&shape, 3u);
        assert_true(ticket.way == FY__TUNE_FIXED || ticket.way == FY__TUNE_PLAIN);
        fy__conv_tune_end(&api, &ticket, ticket.way == FY__TUNE_FIXED);
    }
}

TS_TEST(the_table_is_bounded)
{
    const fy__conv_shape_t last = { .op = FY_OP_CONV2D, .n = FY__TUNE_CAPACITY + 99 };
    forget_all();
    fy__conv_tune_measure(1);
    for (int64_t n = 0; n < FY__TUNE_CAPACITY + 100; n++) settle(n);
    assert_int_equal(fy__conv_tune_facts().shapes, FY__TUNE_CAPACITY);
    assert_int_equal(fy__conv_tune_way(&last), FY__TUNE_FIXED);
    assert_int_equal(fy__conv_tune_way(&(fy__conv_shape_t){ .op = FY_OP_CONV2D }), -1);
    forget_all();
}

TS_TEST(two_processes_add_to_one_file)
{
    enum { PROCESSES = 3, SHAPES = 20 };
    pid_t children[PROCESSES];
    forget_all();
    for (int i = 0; i < PROCESSES; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i]) continue;
        if (fy__conv_tune_file(&api, path)) _exit(1);
        fy__conv_tune_measure(1);
        for (int64_t n = 0; n < SHAPES; n++) settle(SHAPES * i + n);
        _exit(logged ? 2 : 0);
    }
    for (int i = 0; i < PROCESSES; i++) {
        int status;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    const int count = count_choices();
    print_message("%d of %d choices are in the file\n", count, PROCESSES * SHAPES);
    assert_true(count >= SHAPES && count <= PROCESSES * SHAPES);
    unlink(path);
}

/* Whatever allocation fails, the file is whole or absent, and choices go on. */
TS_TEST(failures_leave_a_whole_file)
{
    int met = 0;
    for (int n = 1; n < 12; n++) {
        forget_all();
        unlink(path);
        ts_fail_allocation(n - 1);
        const fy_status_t status = fy__conv_tune_file(&api, path);
        assert_true(status == FY_STATUS_OK || status == FY_STATUS_OUT_OF_MEMORY);
        fy__conv_tune_measure(1);
        settle(1);
        settle(2);
        met += ts_allocation_failed();
        ts_fail_allocation(-1);
        (void)count_choices();
        settle(3);
        assert_true(fy__conv_tune_facts().shapes > 0);
    }
    assert_true(met > 0);
    /* a folder that is gone is logged once */
    forget_all();
    char gone[96];
    snprintf(gone, sizeof gone, "%s/no/choices", folder);
    logged = 0;
    assert_int_equal(fy__conv_tune_file(&api, gone), FY_STATUS_OK);
    fy__conv_tune_measure(1);
    settle(1);
    settle(2);
    assert_int_equal(logged, 1);
    forget_all();
}

TS_SUITE(.begin = begin, .end = end);
