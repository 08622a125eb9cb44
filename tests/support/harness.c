/* Status assertions and small helpers of harness.h.
 * Not here: the runner (test.c), operands in odd layouts (operand.c), expected values (oracle_*.c).
 * Every assertion goes through CMocka, so a failure leaves the test at once; the teardown then ends
 * the scope and closes the device. */
#include "tests/support/harness.h"

#include <dirent.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

const char ts__end[] = "";

void ts__ok(fy_status_t status, const char *expr, const char *file, int line)
{
    if (status == FY_STATUS_OK) return;
    print_error("%s\n  %s: %s\n", expr, fy_status_name(status), fy_error_get()->text);
    _fail(file, line);
}

void ts__fails(fy_status_t status, fy_status_t want, const char *expr, const char *file, int line,
               ...)
{
    if (status == want && fy_error_get()->status == want && fy_error_get()->text[0]) {
        va_list parts;
        va_start(parts, line);
        for (const char *part; (part = va_arg(parts, const char *)) != ts__end;)
            ts__text_has(part, file, line);
        va_end(parts);
        return;
    }
    print_error("%s\n  want %s, got %s; the record says %s: %s\n", expr, fy_status_name(want),
                fy_status_name(status), fy_status_name(fy_error_get()->status),
                status == FY_STATUS_OK ? "-" : fy_error_get()->text);
    _fail(file, line);
}

void ts__text_has(const char *part, const char *file, int line)
{
    if (part && strstr(fy_error_get()->text, part)) return;
    print_error("error text does not contain \"%s\":\n  %s\n", part ? part : "(no text given)",
                fy_error_get()->text);
    _fail(file, line);
}

/* ---- devices ---- */

enum { MAX_DEVICES = 8 };
static char g_specs[MAX_DEVICES][128];
static size_t g_nspecs;

static void read_specs(void)
{
    if (g_nspecs) return;
    const char *text = getenv("FERRY_TEST_DEVICE");
    if (!text || !*text) text = "host,sim:0";
    while (*text && g_nspecs < MAX_DEVICES) {
        size_t n = strcspn(text, ",");
        snprintf(g_specs[g_nspecs++], sizeof g_specs[0], "%.*s", (int)n, text);
        text += n + (text[n] == ',');
    }
}

size_t ts_device_count(void)
{
    read_specs();
    return g_nspecs;
}

const char *ts_device_spec(size_t index)
{
    read_specs();
    return g_specs[index];
}

const char *ts_spec_name(const char *spec)
{
    static __thread char name[64];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(spec, "?"), spec);
    return name;
}

const char *ts_spec_with(const char *spec, const char *option)
{
    static __thread char text[4][192];
    static __thread unsigned turn;
    char *out = text[turn++ % 4];
    snprintf(out, sizeof text[0], "%s%c%s", spec, strchr(spec, '?') ? '&' : '?', option);
    return out;
}

/* ---- figures ---- */

fy_ledger_totals_t ts_ledger(const char *path)
{
    fy_ledger_totals_t totals = FY_LEDGER_TOTALS_INIT;
    ts_ok(fy_ledger_query(path, &totals));
    return totals;
}

void ts_expect_quiet(const fy_ledger_totals_t *before, const fy_ledger_totals_t *after,
                     const char *what)
{
#define SAME(field)                                                                       \
    if (before->field != after->field) {                                                  \
        print_error("%s: ledger " #field " went from %llu to %llu\n", what,               \
                    (unsigned long long)before->field, (unsigned long long)after->field); \
        fail();                                                                           \
    }
    SAME(upload.count)
    SAME(upload.nbytes)
    SAME(upload.wire_nbytes)
    SAME(download.count)
    SAME(download.nbytes)
    SAME(download.wire_nbytes)
    SAME(peer.count)
    SAME(peer.nbytes)
    SAME(requests)
    SAME(syncs)
    SAME(device_allocs)
#undef SAME
}

void ts_expect_quiet_since(const fy_ledger_totals_t *before, const char *what)
{
    const fy_ledger_totals_t after = ts_ledger(NULL);
    ts_expect_quiet(before, &after, what);
}

uint64_t ts_live(const fy_device_t *device)
{
    fy_memory_stats_t stats = FY_MEMORY_STATS_INIT;
    if (fy_memory_query(device, NULL, &stats) != FY_STATUS_OK) return UINT64_MAX;
    return stats.live;
}

fy_memory_stats_t ts_memory(const fy_device_t *device, const char *path)
{
    fy_memory_stats_t stats = FY_MEMORY_STATS_INIT;
    ts_ok(fy_memory_query(device, path, &stats));
    return stats;
}

fy_memory_stats_t ts_memory_pinned(const fy_device_t *device)
{
    fy_memory_stats_t stats = FY_MEMORY_STATS_INIT;
    ts_ok(fy_memory_query_pinned(device, &stats));
    return stats;
}

const fy_transfer_options_t ts_convert =
    FY_DEFAULTS_(transfer_options, .dtype = FY_DTYPE_SAME, .convert = 1);
const fy_transfer_options_t ts_borrow =
    FY_DEFAULTS_(transfer_options, .contract = FY_HOST_BORROW, .dtype = FY_DTYPE_SAME);

fy_tensor_info_t ts_info(const fy_tensor_t *tensor)
{
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    ts_ok(fy_tensor_query(tensor, &info));
    return info;
}

fy_graph_info_t ts_graph_info(const fy_graph_t *graph)
{
    fy_graph_info_t info = FY_GRAPH_INFO_INIT;
    ts_ok(fy_graph_query(graph, &info));
    return info;
}

uint64_t ts_version(const fy_tensor_t *tensor) { return ts_info(tensor).version; }

/* ---- tensors ---- */

fy_tensor_t *ts_host_f32(int rank, const int64_t *dims, const float *values)
{
    fy_tensor_t *tensor;
    void *data;
    ts_ok(fy_tensor_create(fy_device_host(), FY_DTYPE_F32, rank, dims, &tensor));
    uint64_t nbytes = ts_info(tensor).nbytes;
    if (nbytes) {
        ts_ok(fy_tensor_map(tensor, FY_ACCESS_WRITE, &data));
        memcpy(data, values, nbytes);
    }
    return tensor;
}

fy_tensor_t *ts_f32(fy_device_t *device, int rank, const int64_t *dims, const float *values)
{
    fy_tensor_t *host = ts_host_f32(rank, dims, values), *tensor;
    ts_ok(fy_tensor_upload(host, device, NULL, &tensor));
    fy_tensor_destroy(host);
    return tensor;
}

fy_tensor_t *ts_iota(fy_device_t *device, int rank, const int64_t *dims, float first)
{
    size_t n = 1;
    for (int i = 0; i < rank; i++) n *= (size_t)dims[i];
    float *values = malloc((n + 1) * sizeof *values);
    assert_non_null(values);
    for (size_t i = 0; i < n; i++) values[i] = first + (float)i;
    fy_tensor_t *tensor = ts_f32(device, rank, dims, values);
    free(values);
    return tensor;
}

fy_tensor_t *ts_upload(fy_device_t *device, fy_dtype_t dtype, int rank, const int64_t *dims,
                       const void *values)
{
    fy_tensor_t *host, *tensor;
    ts_ok(fy_tensor_wrap(fy_device_host(), dtype, rank, dims, (void *)(uintptr_t)values, NULL, NULL,
                         &host));
    ts_ok(fy_tensor_upload(host, device, NULL, &tensor));
    fy_tensor_destroy(host);
    return tensor;
}

fy_tensor_t *ts_empty(fy_device_t *device, fy_dtype_t dtype, int rank, const int64_t *dims)
{
    fy_tensor_t *tensor;
    ts_ok(fy_tensor_create(device, dtype, rank, dims, &tensor));
    return tensor;
}

fy_tensor_t *ts_zeros(fy_device_t *device, fy_dtype_t dtype, int rank, const int64_t *dims)
{
    fy_tensor_t *tensor;
    ts_ok(fy_zeros(device, dtype, rank, dims, &tensor));
    return tensor;
}

fy_tensor_t *ts_pinned_bytes(fy_device_t *device, int64_t n)
{
    fy_tensor_t *tensor;
    ts_ok(fy_tensor_create_pinned(device, FY_DTYPE_U8, FY_DIMS(n), &tensor));
    return tensor;
}

fy_tensor_t *ts_bytes(fy_device_t *device, int64_t n)
{
    return ts_empty(device, FY_DTYPE_U8, FY_DIMS(n));
}

fy_tensor_t *ts_pinned(fy_device_t *device, int64_t n)
{
    fy_tensor_t *tensor;
    ts_ok(fy_tensor_create_pinned(device, FY_DTYPE_F32, FY_DIMS(n), &tensor));
    return tensor;
}

fy_tensor_t *ts_full(fy_device_t *device, int rank, const int64_t *dims, double value)
{
    fy_tensor_t *tensor;
    ts_ok(fy_full(device, FY_DTYPE_F32, rank, dims, value, &tensor));
    return tensor;
}

fy_tensor_t *ts_bad_rows(const fy_tensor_t *table)
{
    const int64_t rows[2] = { 1, 99 };
    fy_tensor_t *indices = ts_upload(ts_info(table).device, FY_DTYPE_I64, FY_DIMS(2), rows), *bad;
    ts_ok(fy_gather(table, indices, &bad));
    return bad;
}

fy_download_t *ts_submit_download(const fy_tensor_t *tensor)
{
    fy_download_t *download;
    ts_ok(fy_tensor_download(tensor, NULL, &download));
    return download;
}

fy_tensor_t *ts_download(const fy_tensor_t *tensor)
{
    fy_tensor_t *host;
    ts_ok(fy_download_wait(ts_submit_download(tensor), FY_FOREVER, &host));
    return host;
}

double ts_value(const fy_tensor_t *tensor)
{
    double value = 0;
    ts_ok(fy_download_wait_f64(ts_submit_download(tensor), FY_FOREVER, &value));
    return value;
}

fy_status_t ts_try_download(const fy_tensor_t *tensor)
{
    fy_download_t *download;
    fy_tensor_t *host = NULL;
    FY_TRY(fy_tensor_download(tensor, NULL, &download));
    const fy_status_t status = fy_download_wait(download, FY_FOREVER, &host);
    if (status != FY_STATUS_OK) fy_download_destroy(download);
    fy_tensor_destroy(host);
    return status;
}

void ts_read(const fy_tensor_t *tensor, void *out, size_t nbytes)
{
    fy_tensor_t *host = ts_download(tensor);
    void *data;
    fy_tensor_info_t info = ts_info(host);
    assert_int_equal(info.nbytes, nbytes);
    assert_true(info.is_contiguous);
    assert_ptr_equal(info.device, fy_device_host());
    if (nbytes) {
        ts_ok(fy_tensor_map(host, FY_ACCESS_READ, &data));
        memcpy(out, data, nbytes);
    }
    fy_tensor_destroy(host);
}

void ts_expect_f32(const fy_tensor_t *tensor, const float *want, size_t n)
{
    float *got = malloc((n + 1) * sizeof *got);
    assert_non_null(got);
    ts_read(tensor, got, n * sizeof *got);
    for (size_t i = 0; i < n; i++) {
        if (memcmp(&got[i], &want[i], sizeof *got) != 0 && !(got[i] == want[i])) {
            print_error("element %zu of %zu: got %.9g, want %.9g\n", i, n, (double)got[i],
                        (double)want[i]);
            fail();
        }
    }
    free(got);
}

/* ---- tapes, graphs and clocks ---- */

fy_tape_t *ts_tape(fy_tensor_t *x, fy_tensor_t *y)
{
    fy_tape_t *tape;
    ts_ok(fy_tape_create(&tape));
    ts_ok(fy_tape_watch(tape, x, NULL));
    if (y) ts_ok(fy_tape_watch(tape, y, NULL));
    return tape;
}

fy_tape_t *ts_record(fy_tensor_t *x, fy_tensor_t *y)
{
    fy_tape_t *tape = ts_tape(x, y);
    ts_ok(fy_tape_begin(tape));
    return tape;
}

fy_tensor_t *ts_grad(const fy_tape_t *tape, const fy_tensor_t *x)
{
    fy_tensor_t *grad;
    ts_ok(fy_tape_grad(tape, x, &grad));
    assert_non_null(grad);
    return grad;
}

fy_graph_t *ts_graph_end(void)
{
    fy_graph_t *graph;
    ts_ok(fy_graph_end(&graph));
    return graph;
}

fy_device_clock_t ts_clock_now(const fy_device_t *device)
{
    fy_device_clock_t clock = FY_DEVICE_CLOCK_INIT;
    ts_ok(fy_device_clock_query(device, &clock));
    return clock;
}

fy_device_clock_t ts_clock(fy_device_t *device)
{
    ts_ok(fy_device_wait(device, FY_FOREVER));
    return ts_clock_now(device);
}

fy_stream_t *ts_stream(fy_device_t *device)
{
    fy_stream_t *stream;
    ts_ok(fy_stream_create(device, NULL, &stream));
    return stream;
}

fy_device_t *ts_open_with(ts_ctx_t *ctx, const char *options)
{
    fy_device_t *device;
    fy_device_close(ctx->device);
    ctx->device = NULL;
    ts_ok(fy_device_open(ts_spec_with(ctx->spec, options), &device));
    return ctx->device = device;
}

void ts_reopen(ts_ctx_t *ctx, fy_device_t *device)
{
    fy_device_close(device);
    ctx->device = NULL;
    ts_ok(fy_device_open(ctx->spec, &ctx->device));
}

bool ts__has_scope;
static bool g_has_own_scope;
static fy_scope_t g_scope;
static fy_device_t *g_opened[MAX_DEVICES];
static size_t g_nopened;

fy_device_t *ts_open(const char *spec)
{
    fy_device_t *device;
    assert_true(g_nopened < MAX_DEVICES);
    ts_ok(fy_device_open(spec, &device));
    if (!ts__has_scope && !g_has_own_scope) {
        g_scope = fy_scope_begin("test");
        g_has_own_scope = true;
    }
    return g_opened[g_nopened++] = device;
}

void ts_close(void)
{
    if (g_has_own_scope) fy_scope_end(g_scope, 0, NULL);
    g_has_own_scope = false;
    while (g_nopened) fy_device_close(g_opened[--g_nopened]);
}

int ts_open_files(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    assert_non_null(folder);
    while (readdir(folder)) count++;
    closedir(folder);
    return count;
}

/* ---- threads, processes, files ---- */

pthread_t ts_thread(void *(*run)(void *user), void *user)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, run, user), 0);
    return thread;
}

void *ts_on_thread(void *(*run)(void *user), void *user)
{
    void *result;
    assert_int_equal(pthread_join(ts_thread(run, user), &result), 0);
    return result;
}

void ts_on_threads(int count, void *(*run)(void *user), void *users, size_t size)
{
    pthread_t threads[16];
    assert_in_range(count, 1, 16);
    for (int i = 0; i < count; i++) threads[i] = ts_thread(run, (char *)users + (size_t)i * size);
    for (int i = 0; i < count; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
}

pid_t ts_fork(void)
{
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) alarm(240);
    return child;
}

void ts_child_ends(pid_t child)
{
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status)) fail_msg("the child died of signal %d", WTERMSIG(status));
    if (WEXITSTATUS(status)) fail_msg("the child exited with %d", WEXITSTATUS(status));
}

char *ts_text_of(const char *path)
{
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    char *text = calloc(1, 1 << 22);
    assert_non_null(text);
    assert_true(fread(text, 1, (1 << 22) - 1, file) > 0);
    fclose(file);
    return text;
}

void ts_make_file(char *path)
{
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
}
