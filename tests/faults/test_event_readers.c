/* The commands that read event files, with an N-th allocation, read or write that fails. Each run
 * is a child process: it ends with 0, or with 1 or 4 and a text, a sanitizer reports nothing, and a
 * run that failed leaves no output. */
#include <dirent.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/harness.h"
#include "tests/support/host_files.h"
#include "tests/support/host_memory.h"
#include "tools/cli/tool.h"

static char folder[] = "/tmp/test_event_readers.XXXXXX";
static int *shared_struck; /* set by the child: its call has failed */

/* The last eight results are valid. */
static const char *in_folder(const char *name)
{
    static char names[8][96];
    static int next;
    char *full = names[next++ % 8];
    snprintf(full, sizeof names[0], "%s/%s", folder, name);
    return full;
}

/* ---- the recording ---- */

static void step(fy_device_t *device, fy_tensor_t *host, fy_tensor_t *w)
{
    fy_tensor_t *x, *y;
    fy_download_t *answer;
    double value;
    const fy_scope_t scope = fy_scope_begin("step");
    ts_ok(fy_tensor_upload(host, device, NULL, &x));
    ts_ok(fy_matmul(x, w, &y));
    ts_ok(fy_sum(y, FY_AXES(0, 1), 0, &y));
    ts_ok(fy_tensor_download(y, NULL, &answer));
    ts_ok(fy_download_wait_f64(answer, FY_FOREVER, &value));
    ts_ok(fy_ledger_collective("group_all_reduce", 256));
    fy_ledger_collective_moved(400, 2, 30);
    fy_ledger_collective_ran("group_all_reduce", 1, 1, 0, FY_STATUS_OK);
    fy_scope_end(scope, 0, NULL);
}

static void record(const char *path)
{
    static float data[64];
    fy_device_t *device;
    fy_tensor_t *host, *w;
    ts_ok(fy_ledger_record(path));
    ts_ok(fy_device_open("sim:0", &device));
    const fy_scope_t scope = fy_scope_begin("run");
    ts_ok(fy_tensor_wrap(fy_device_host(), FY_DTYPE_F32, FY_DIMS(8, 8), data, NULL, NULL, &host));
    ts_ok(fy_zeros(device, FY_DTYPE_F32, FY_DIMS(8, 8), &w));
    fy_tensor_set_name(w, "w");
    for (int i = 0; i < 8; i++) step(device, host, w);
    fy_scope_end(scope, 0, NULL);
    fy_device_close(device);
    ts_ok(fy_ledger_record(NULL));
}

/* ---- one run ---- */

typedef enum { ALLOCATION, READ, WRITE, KINDS } kind_t;
static const char *const kind_names[KINDS] = { "allocation", "read", "write" };

static void arm(kind_t kind, int n)
{
    if (kind == ALLOCATION) ts_fail_allocation(n);
    if (kind == READ) ts_fail_read(n);
    if (kind == WRITE) ts_fail_write(n);
}

static int has_struck(kind_t kind)
{
    return kind == ALLOCATION ? ts_allocation_failed()
           : kind == READ     ? ts_read_failed()
                              : ts_write_failed();
}

/* KINDS: none is armed. tool_alloc ends the process, so exit notes whether the call has failed. */
static kind_t armed = KINDS;
static void note_struck(void)
{
    if (armed != KINDS) *shared_struck = has_struck(armed);
    armed = KINDS;
}

typedef struct row {
    int (*run)(int argc, char **argv);
    const char *words[7]; /* "IN", "OUT": the files */
    bool writes;          /* OUT, whole or not at all */
} row_t;

static void run_in_child(const row_t *row, const char *input, kind_t kind, int n)
{
    const char *words[8];
    int count = 0;
    for (; row->words[count]; count++)
        words[count] = strcmp(row->words[count], "IN") == 0    ? input
                       : strcmp(row->words[count], "OUT") == 0 ? in_folder("out")
                                                               : row->words[count];
    words[count] = NULL;
    if (!freopen("/dev/null", "w", stdout) || !freopen(in_folder("err"), "w", stderr)) _exit(99);
    fy_log_set(tool_log, NULL);
    armed = kind;
    atexit(note_struck);
    arm(kind, n);
    const int status = row->run(count, (char **)(uintptr_t)words);
    note_struck();
    arm(kind, -1);
    exit(status);
}

static size_t read_err(char *text, size_t size)
{
    FILE *file = fopen(in_folder("err"), "r");
    assert_non_null(file);
    const size_t n = fread(text, 1, size - 1, file);
    text[n] = 0;
    fclose(file);
    return n;
}

static int files_in_folder(void)
{
    DIR *listing = opendir(folder);
    int count = 0;
    assert_non_null(listing);
    for (const struct dirent *entry; (entry = readdir(listing));) count += entry->d_name[0] != '.';
    closedir(listing);
    return count;
}

/* Returns whether the call has failed. */
static bool runs(const row_t *row, const char *input, kind_t kind, int n, int *failed)
{
    char err[4096];
    int status;
    *shared_struck = 0;
    unlink(in_folder("out"));
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) run_in_child(row, input, kind, n);
    assert_int_equal(waitpid(child, &status, 0), child);
    const size_t length = read_err(err, sizeof err);
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if ((code != 0 && code != STATUS_FAILED && code != STATUS_OUT_OF_MEMORY) || (code && !length) ||
        strstr(err, "Sanitizer") || strstr(err, "runtime error"))
        fail_msg("%s, %s %d: status %d (%d), %s", row->words[0], kind_names[kind], n, code, status,
                 err);
    if (code && row->writes && files_in_folder() != 3) /* two recordings, `err` */
        fail_msg("%s, %s %d failed and left a file", row->words[0], kind_names[kind], n);
    if (!*shared_struck && code)
        fail_msg("%s, %s %d: status %d without a failure: %s", row->words[0], kind_names[kind], n,
                 code, err);
    *failed += code != 0;
    return *shared_struck != 0;
}

/* Every n at first, then fewer: a command makes thousands of allocations. */
static void sweep(const row_t *row, const char *name)
{
    char input[96];
    snprintf(input, sizeof input, "%s/%s", folder, name);
    for (int kind = 0; kind < KINDS; kind++) {
        int failed = 0, n = 0;
        while (runs(row, input, (kind_t)kind, n, &failed)) n += n < 40 ? 1 : n / 4;
        if (kind != WRITE || row->writes) assert_true(failed > 0);
        print_message("%s: %s: %d runs failed as they should\n", row->words[0], kind_names[kind],
                      failed);
    }
}

TS_TEST(commands_that_read_events)
{
    static const row_t rows[] = {
        { cmd_ledger, { "ledger", "IN", "--json" }, false },
        { cmd_ledger, { "ledger", "IN", "IN" }, false }, /* of ranks */
        { cmd_timeline, { "timeline", "IN", "--out", "OUT" }, true },
        { cmd_report, { "report", "IN", "--out", "OUT" }, true },
        { cmd_memory, { "memory", "IN", "--format", "pytorch", "--out", "OUT" }, true },
        { cmd_advise, { "advise", "IN", "--json" }, false },
        { cmd_advise, { "advise", "IN", "--prove" }, false },
        { cmd_predict, { "predict", "IN", "--profile", "a100" }, false },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        sweep(&rows[i], i % 2 ? "run.jsonl" : "run.jsonl.gz");
}

static int begin(void **state)
{
    (void)state;
    if (!mkdtemp(folder)) return -1;
    shared_struck = mmap(NULL, sizeof *shared_struck, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared_struck == MAP_FAILED) return -1;
    record(in_folder("run.jsonl"));
    record(in_folder("run.jsonl.gz"));
    return 0;
}

static int end(void **state)
{
    static const char *const names[] = { "run.jsonl", "run.jsonl.gz", "out", "err" };
    (void)state;
    for (size_t i = 0; i < 4; i++) (void)unlink(in_folder(names[i]));
    return rmdir(folder);
}

TS_SUITE(.set_up = begin, .tear_down = end);
