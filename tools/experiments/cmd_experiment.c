/* `ferry experiment`: picks the experiment. What each shows and how to read it:
 * docs/experiments.md.
 * Several --device of one experiment: each device has its process, so that caches, threads and the
 * ledger of one run do not affect the next; its JSON document comes back through a pipe. A column a
 * device; ratios are to the first device, by the same clock. Not here: figures of a document
 * (figures.h). */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/cli/figures.h"
#include "tools/cli/tool.h"

/* ---- several devices ---- */

enum { MOST_DEVICES = 8, MOST_WORDS = 128, FIRST_CHUNK = 1 << 16 };

typedef struct request {
    const char *devices[MOST_DEVICES];
    size_t count;
    char *words[MOST_WORDS]; /* of the command line without --device, --json and --csv */
    size_t nwords;
    const char *csv;
    bool json;
} request_t;

/* The value of option `name` at argv[*i], which then is its last word; NULL: it is another one. */
static const char *value_at(int argc, char **argv, int *i, const char *name)
{
    const size_t n = strlen(name);
    const char *word = argv[*i];
    if (strncmp(word, name, n) != 0) return NULL;
    if (word[n] == '=') return word + n + 1;
    return !word[n] && *i + 1 < argc && argv[*i + 1] ? argv[++*i] : NULL;
}

/* How many times argv has --device. */
static int side_by_side_devices(int argc, char **argv)
{
    int count = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0) return 1; /* which one command prints */
        count += value_at(argc, argv, &i, "--device") != NULL;
    }
    return count;
}

/* false: stderr has the reason. */
static bool read_request(int argc, char **argv, request_t *request)
{
    static const char *const alone[] = { "--plot", "--record", "--snapshot", "--traffic" };
    *request = (request_t){ 0 };
    for (int i = 0; i < argc; i++) {
        const char *device = value_at(argc, argv, &i, "--device"),
                   *csv = device ? NULL : value_at(argc, argv, &i, "--csv");
        for (size_t k = 0; k < sizeof alone / sizeof *alone; k++) {
            if (strncmp(argv[i], alone[k], strlen(alone[k])) != 0) continue;
            return TOOL_REFUSE(false, "%s is of one device; give --device once\n", alone[k]);
        }
        if (request->count == MOST_DEVICES || request->nwords + 6 > MOST_WORDS)
            return TOOL_REFUSE(false, "at most %d devices and %d words\n", MOST_DEVICES - 1,
                               MOST_WORDS - 6);
        if (device)
            request->devices[request->count++] = device;
        else if (csv)
            request->csv = csv;
        else if (strcmp(argv[i], "--json") == 0)
            request->json = true;
        else
            request->words[request->nwords++] = argv[i];
    }
    return true;
}

/* All that comes, from malloc; NULL: the pipe failed. */
static char *read_all(int fd)
{
    size_t room = FIRST_CHUNK, used = 0;
    char *text = tool_alloc(room);
    for (;;) {
        const ssize_t n = read(fd, text + used, room - used - 1);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) free(text);
        if (n < 0) return NULL;
        if (n == 0) break;
        used += (size_t)n;
        if (used + 1 < room) continue;
        char *grown = tool_alloc(2 * room);
        memcpy(grown, text, used);
        free(text);
        text = grown;
        room *= 2;
    }
    text[used] = '\0';
    return text;
}

static void start(const request_t *request, size_t which, int fd)
{
    static char ferry[] = "ferry", experiment[] = "experiment", json[] = "--json",
                device[] = "--device";
    char *words[MOST_WORDS + 1] = { ferry, experiment }, spec[4096];
    size_t n = 2;
    for (size_t i = 0; i < request->nwords; i++) words[n++] = request->words[i];
    snprintf(spec, sizeof spec, "%s", request->devices[which]);
    words[n++] = device;
    words[n++] = spec;
    words[n++] = json;
    dup2(fd, STDOUT_FILENO);
    execv("/proc/self/exe", words);
    fprintf(stderr, "ferry: cannot start itself again: %s\n", strerror(errno));
    _exit(STATUS_FAILED);
}

/* The document of one device. Returns an exit status. */
static int run_one(const request_t *request, size_t which, char **out_text)
{
    int ends[2], status = 0;
    fflush(stdout);
    if (pipe2(ends, O_CLOEXEC) != 0)
        return TOOL_REFUSE(STATUS_FAILED, "no pipe: %s\n", strerror(errno));
    const pid_t child = fork();
    if (child == 0) start(request, which, ends[1]);
    close(ends[1]);
    *out_text = child > 0 ? read_all(ends[0]) : NULL;
    close(ends[0]);
    if (child < 0) fprintf(stderr, "ferry: no process: %s\n", strerror(errno));
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    if (child < 0 || !*out_text || !WIFEXITED(status)) return STATUS_FAILED;
    return WEXITSTATUS(status);
}

/* ---- showing ---- */

enum { PER_DEVICE = 5 };

/* Keys of CSV and JSON rows: "device0", "device0_low", ... */
typedef struct heads {
    char keys[MOST_DEVICES][PER_DEVICE][32], texts[MOST_DEVICES][64];
    column_t columns[2 + MOST_DEVICES * PER_DEVICE];
    size_t count;
} heads_t;

static void make_heads(const request_t *request, heads_t *heads)
{
    static const char *const ends[PER_DEVICE] = { "", "_low", "_high", "_half_percent", "_ratio" };
    heads->columns[0] = (column_t){ "what", "what", 0 };
    heads->columns[1] = (column_t){ "clock", "clock", 0 };
    heads->count = 2;
    for (size_t d = 0; d < request->count; d++)
        for (int k = 0; k < PER_DEVICE; k++) {
            const char *const titles[PER_DEVICE] = { request->devices[d], NULL, NULL, "+-%",
                                                     d ? "ratio" : NULL };
            snprintf(heads->keys[d][k], sizeof heads->keys[d][k], "device%zu%s", d, ends[k]);
            heads->columns[heads->count++] =
                (column_t){ heads->keys[d][k], titles[k], k == 3 ? 1 : 3 };
        }
}

static void add_row(sheet_t *sheet, const request_t *request, document_t *documents,
                    const figure_t *like)
{
    const figure_t *first = NULL;
    sheet_text(sheet, like->path);
    sheet_text(sheet, figure_clock(like));
    for (size_t d = 0; d < request->count; d++) {
        const figure_t *f = document_find(&documents[d], like->path);
        if (f && !figures_agree(f, like)) f = NULL;
        if (!d) first = f;
        sheet_real(sheet, f ? f->value : NAN);
        sheet_real(sheet, f ? f->low : NAN);
        sheet_real(sheet, f ? f->high : NAN);
        sheet_real(sheet, f ? 50 * (f->high - f->low) / fabs(f->value) : NAN);
        sheet_real(sheet, f && first ? f->value / first->value : NAN);
    }
}

/* Each path and clock once, in the order of the documents. */
static void fill(sheet_t *sheet, const request_t *request, document_t *documents)
{
    for (size_t d = 0; d < request->count; d++)
        for (size_t i = 0; i < documents[d].count; i++) {
            const figure_t *figure = &documents[d].figures[i], *before = NULL;
            for (size_t e = 0; e < d && !before; e++) {
                before = document_find(&documents[e], figure->path);
                if (before && !figures_agree(before, figure)) before = NULL;
            }
            if (!before) add_row(sheet, request, documents, figure);
        }
}

static void print(const request_t *request, const sheet_t *sheet)
{
    if (!request->json) {
        printf("%s on %zu devices; ratio: to the first one\n\n", request->words[0], request->count);
        sheet_print(sheet, stdout);
        return;
    }
    json_t json = { .file = stdout };
    json_begin_object(&json, NULL);
    json_text(&json, "experiment", request->words[0]);
    json_text(&json, "version", fy_version());
    json_begin_array(&json, "devices");
    for (size_t d = 0; d < request->count; d++) json_text(&json, NULL, request->devices[d]);
    json_end(&json);
    sheet_json(sheet, &json, "rows");
    json_end(&json);
}

static int show(const request_t *request, document_t *documents)
{
    heads_t heads;
    make_heads(request, &heads);
    sheet_t *sheet = sheet_create(heads.columns, heads.count);
    fill(sheet, request, documents);
    fy_status_t status = request->csv ? sheet_csv(sheet, request->csv) : FY_STATUS_OK;
    if (status == FY_STATUS_OK) print(request, sheet);
    sheet_destroy(sheet);
    return tool_end(status);
}

/* Runs `ferry experiment ARGV...` once for each --device. Returns an exit status: the first that is
 * not 0 ends it. */
static int side_by_side(int argc, char **argv)
{
    request_t request;
    document_t documents[MOST_DEVICES] = { 0 };
    int status = STATUS_OK;
    if (!read_request(argc, argv, &request)) return STATUS_USAGE;
    if (request.csv && tool_check_writable(request.csv) != FY_STATUS_OK)
        return TOOL_REFUSE(STATUS_FAILED, "%s\n", fy_error_get()->text);
    for (size_t d = 0; d < request.count && status == STATUS_OK; d++) {
        char *text = NULL;
        documents[d].path = request.devices[d];
        status = run_one(&request, d, &text);
        if (status != STATUS_OK) {
            fprintf(stderr, "ferry: --device %s: exit status %d\n", request.devices[d], status);
            free(text);
        } else if (document_parse(&documents[d], text, NULL) != FY_STATUS_OK) {
            fprintf(stderr, "ferry: %s\n", fy_error_get()->text);
            status = STATUS_FAILED;
        }
    }
    if (status == STATUS_OK) status = show(&request, documents);
    for (size_t d = 0; d < request.count; d++) document_close(&documents[d]);
    return status;
}

/* ---- the command ---- */

int cmd_experiment(int argc, char **argv)
{
    static const command_t experiments[] = {
        { "roundtrip",
          "a matrix product on the host, resident on the device, and with copies every time",
          exp_roundtrip },
        { "vectorize", "one matrix product asked for in 65536, 256, 4 requests and in one",
          exp_vectorize },
        { "minibatch", "linear regression by gradient descent with four batch sizes",
          exp_minibatch },
        { "link",
          "transfers by size and mode; with --overlap, a loop that keeps both ways and the device "
          "busy",
          exp_link },
        { "batchsize",
          "do batch sizes need to be powers of two? MobileNetV3-Large, time of an image",
          exp_batchsize },
        { "parallel",
          "lenet on 1, 2, 4 devices: shards, gradients summed by peer transfers, the same "
          "parameters",
          exp_parallel },
        { "speedups",
          "ways to train faster, each measured without and with, and what must hold checked",
          exp_speedups },
    };
    if (argc > 2 && argv[1][0] != '-' && side_by_side_devices(argc - 1, argv + 1) > 1)
        return side_by_side(argc - 1, argv + 1);
    return run_command(
        "ferry experiment",
        "Experiments about moving data and asking for work. Several --device: side by side.",
        experiments, sizeof experiments / sizeof *experiments, argc, argv);
}
