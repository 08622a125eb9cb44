/* Threads from the outside: `threads=` holds, wrong values are refused, and host, simulated device
 * and replay have the same bits near each threshold, with sleeping or spinning idle threads. Not
 * here: the model itself (tests/unit/backends/test_threads.c). */
#include <dirent.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ferry/graph.h>

#include "tests/support/harness.h"

static void open_host(const char *spec)
{
    fy_device_t *device;
    ts_ok(fy_device_open(spec, &device));
    assert_ptr_equal(device, fy_device_host());
}

/* Returns the number of threads of this process. */
static int count_tasks(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/task");
    assert_non_null(folder);
    while (readdir(folder)) count++;
    closedir(folder);
    return count - 2; /* . and .. */
}

static fy_tensor_t *noise(fy_device_t *device, int rank, const int64_t *dims, int64_t seed)
{
    fy_tensor_t *rng, *x;
    ts_ok(fy_rng_create(device, seed, &rng));
    ts_ok(fy_rand(rng, FY_DTYPE_F32, rank, dims, -1, 1, &x));
    return x;
}

static void add_large(fy_device_t *device)
{
    fy_tensor_t *x = noise(device, FY_DIMS(1 << 16), 1), *y;
    ts_ok(fy_add(x, x, &y));
    ts_read(y, (float[1 << 16]){ 0 }, sizeof(float) << 16);
}

/* libgomp keeps the threads of its largest team, so their number shows what a kernel took. */
TS_TEST(a_number_holds)
{
    fy_device_t *sim;
    const fy_scope_t scope = fy_scope_begin("threads");
    /* before any op ran: only the threads that the simulator starts */
    ts_ok(fy_device_open("sim:1?threads=4", &sim));
    open_host("host?threads=1");
    add_large(fy_device_host());
    const int alone = count_tasks();
    add_large(fy_device_host());
    assert_int_equal(count_tasks(), alone);
    open_host("host?threads=3");
    add_large(fy_device_host());
    assert_int_equal(count_tasks(), alone + 2);
    add_large(sim); /* its option has priority over the host's */
    assert_int_equal(count_tasks(), alone + 3);
    open_host("host?threads=auto");
    fy_scope_end(scope, 0, NULL);
    fy_device_close(sim);
}

TS_TEST(wrong_values_are_refused)
{
    static const struct {
        const char *spec, *text;
    } rows[] = {
        { "host?threads=0", "from 1 to 1024" },
        { "host?threads=1025", "from 1 to 1024" },
        { "host?threads=many", "threads=many" },
        { "host?threads=2x", "threads=2x" },
        { "host?threads=-1", "threads=-1" },
        { "host?limit=1GiB", "the host takes threads and autotune only" },
        { "host?threads=2&colour=red", "'colour'" },
        { "sim:2?threads=0", "from 1 to 1024" },
        { "sim:2?threads=auto2", "threads=auto2" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fy_device_t *device;
        assert_int_equal(fy_device_open(rows[i].spec, &device), FY_STATUS_INVALID_ARGUMENT);
        assert_null(device);
        if (!strstr(fy_error_get()->text, rows[i].text))
            fail_msg("%s: '%s' is not in: %s", rows[i].spec, rows[i].text, fy_error_get()->text);
    }
}

/* ---- bits ---- */

typedef struct work {
    /* 0 matmul, 1 sum, 2 softmax, 3 conv2d, 4 its weights' gradient, 5 matmul of few long rows:
     * oneDNN splits those sums, 6 softmax's gradient */
    int op;
    int64_t n;
} work_t;

static void make_inputs(fy_device_t *device, const work_t *work, fy_tensor_t **a, fy_tensor_t **b)
{
    const int64_t n = work->n;
    if (work->op == 5) {
        *a = noise(device, FY_DIMS(24, n), 1);
        *b = noise(device, FY_DIMS(n, 24), 2);
        return;
    }
    if (work->op < 3 || work->op == 6) {
        *a = noise(device, FY_DIMS(n, n), 1);
        *b = noise(device, FY_DIMS(n, n), 2);
        return;
    }
    const int64_t channels = n % 2 ? 1 : 32; /* few channels use Ferry's loops, others oneDNN */
    *a = noise(device, FY_DIMS(n, 12, 12, channels), 1);
    *b = work->op == 3 ? noise(device, FY_DIMS(32, 3, 3, channels), 2)
                       : noise(device, FY_DIMS(n, 10, 10, 32), 2);
}

static void run(const work_t *work, fy_tensor_t *a, fy_tensor_t *b, fy_tensor_t **out)
{
    static const fy_conv2d_attrs_t attrs = FY_CONV2D_ATTRS_INIT;
    switch (work->op) {
    case 0:
    case 5: ts_ok(fy_matmul(a, b, out)); break;
    case 1: ts_ok(fy_sum(a, 0, NULL, 0, out)); break;
    case 2: ts_ok(fy_softmax(a, 1, out)); break;
    case 6: ts_ok(fy_softmax_backward(a, b, 1, out)); break;
    case 3: ts_ok(fy_conv2d(a, b, NULL, &attrs, out)); break;
    default: ts_ok(fy_conv2d_backward_weight(b, a, &attrs, 3, 3, out)); break;
    }
}

/* The result's bytes, called and replayed; returns their number. */
static size_t bytes_on(fy_device_t *device, const work_t *work, unsigned char **called,
                       unsigned char **replayed)
{
    fy_tensor_t *a, *b, *out, *again;
    make_inputs(device, work, &a, &b);
    run(work, a, b, &out);
    const size_t nbytes = (size_t)ts_info(out).nelem * sizeof(float);
    ts_ok(fy_graph_begin(device));
    run(work, a, b, &again);
    fy_graph_t *graph = ts_graph_end();
    ts_ok(fy_graph_replay(graph, NULL));
    *called = malloc(nbytes);
    *replayed = malloc(nbytes);
    assert_true(*called && *replayed);
    ts_read(out, *called, nbytes);
    ts_read(again, *replayed, nbytes);
    fy_graph_destroy(graph);
    return nbytes;
}

TS_TEST(equal_bits_near_thresholds)
{
    static const work_t works[] = {
        { 0, 64 },  { 0, 80 },  { 0, 96 },  { 0, 200 },  { 0, 216 }, { 1, 150 },   { 1, 200 },
        { 1, 750 }, { 1, 850 }, { 2, 60 },  { 2, 80 },   { 2, 290 }, { 2, 320 },   { 3, 1 },
        { 3, 2 },   { 3, 15 },  { 3, 8 },   { 3, 10 },   { 3, 51 },  { 4, 3 },     { 4, 2 },
        { 4, 8 },   { 4, 10 },  { 4, 31 },  { 5, 700 },  { 5, 900 }, { 5, 14000 }, { 5, 17000 },
        { 4, 64 },  { 4, 33 },  { 6, 150 }, { 6, 1100 },
    };
    static const char *const settings[] = { "auto", "1", "2" };
    for (size_t s = 0; s < sizeof settings / sizeof *settings; s++) {
        char host_spec[32], sim_spec[32];
        fy_device_t *sim;
        snprintf(host_spec, sizeof host_spec, "host?threads=%s", settings[s]);
        snprintf(sim_spec, sizeof sim_spec, s ? "sim:0?threads=%s" : "sim:0", settings[s]);
        open_host(host_spec);
        ts_ok(fy_device_open(sim_spec, &sim));
        for (size_t i = 0; i < sizeof works / sizeof *works; i++) {
            unsigned char *bytes[4];
            const fy_scope_t scope = fy_scope_begin("bits");
            const size_t nbytes = bytes_on(fy_device_host(), &works[i], &bytes[0], &bytes[1]);
            assert_int_equal(bytes_on(sim, &works[i], &bytes[2], &bytes[3]), nbytes);
            for (int k = 1; k < 4; k++)
                if (memcmp(bytes[0], bytes[k], nbytes) != 0)
                    fail_msg(
                        "threads=%s: op %d of %lld: %s has other bits than the host", settings[s],
                        works[i].op, (long long)works[i].n,
                        (const char *[]){ "", "its replay", "sim:0", "the replay on sim:0" }[k]);
            for (int k = 0; k < 4; k++) free(bytes[k]);
            fy_scope_end(scope, 0, NULL);
        }
        fy_device_close(sim);
    }
    open_host("host?threads=auto");
}

/* Once for each way of waiting: libgomp reads the variables when it is loaded, so each needs a
 * separate process. */
static int prepare(void)
{
    static const char *const ways[][2] = { { "passive", "0" }, { "passive", "20000" } };
#ifdef __SANITIZE_THREAD__
    puts("skipped: ThreadSanitizer does not see how libgomp's threads wait for each other");
    return 77;
#endif
    if (*ts_arguments) return 0;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        int status = -1;
        const pid_t child = fork();
        if (child == 0) {
            setenv("OMP_WAIT_POLICY", ways[i][0], 1);
            setenv("GOMP_SPINCOUNT", ways[i][1], 1);
            unsetenv("FERRY_THREADS");
            unsetenv("OMP_THREAD_LIMIT");
            execl("/proc/self/exe", "test_unit_ops", "threads", "run", (char *)NULL);
            _exit(127);
        }
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0) return 1;
    }
    exit(0);
}

TS_SUITE(.prepare = prepare);
