/* What the subcommands share: exit statuses, the session (device, scope, output, ledger), time,
 * statistics.
 * Not here: options (options.h), tables (sheet.h), JSON (json.h), figures (plot.h). Next:
 * session.c. */
#ifndef FERRY_TOOLS_TOOL_H_
#define FERRY_TOOLS_TOOL_H_

#include <ferry/ferry.h>

#include "tools/cli/json.h"
#include "tools/cli/options.h"
#include "tools/cli/plot.h"
#include "tools/cli/sheet.h"
#include "tools/cli/stats.h"

enum {
    STATUS_OK = 0,
    STATUS_FAILED = 1,
    STATUS_USAGE = 2,
    STATUS_DEVICE_LOST = 3,
    STATUS_OUT_OF_MEMORY = 4,
    STATUS_RANK_LOST = 5
};

/* Ends a command whose options were not read, with its exit status: its help or a reason was
 * printed. */
#define OPTIONS_TRY(result)                                                               \
    do {                                                                                  \
        const parse_result_t parsed_ = (result);                                          \
        if (parsed_ != PARSE_OK) return parsed_ == PARSE_HELP ? STATUS_OK : STATUS_USAGE; \
    } while (0)

typedef struct command {
    const char *name, *summary;
    /* argv[0] is the subcommand's name; returns an exit status */
    int (*run)(int argc, char **argv);
} command_t;

int cmd_info(int argc, char **argv);
int cmd_train(int argc, char **argv);
int cmd_generate(int argc, char **argv);
int cmd_experiment(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_ledger(int argc, char **argv);
int cmd_timeline(int argc, char **argv);
int cmd_report(int argc, char **argv);
int cmd_advise(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_predict(int argc, char **argv);
int cmd_plan(int argc, char **argv);
int cmd_memory(int argc, char **argv);
int cmd_replay(int argc, char **argv);
int cmd_calibrate(int argc, char **argv);
int cmd_compare(int argc, char **argv);
int cmd_watch(int argc, char **argv);
int exp_roundtrip(int argc, char **argv);
int exp_vectorize(int argc, char **argv);
int exp_minibatch(int argc, char **argv);
int exp_link(int argc, char **argv);
int exp_batchsize(int argc, char **argv);
int exp_parallel(int argc, char **argv);
int exp_speedups(int argc, char **argv);
int bench_dispatch(int argc, char **argv);
int bench_gemm(int argc, char **argv);
int bench_copy(int argc, char **argv);
int bench_chain(int argc, char **argv);
int bench_alloc(int argc, char **argv);
int bench_step(int argc, char **argv);
int bench_train(int argc, char **argv);
/* Runs the one of `list` that argv[1] names; `prefix` is the command line before it ("ferry
 * experiment"). */
int run_command(const char *prefix, const char *summary, const command_t *list, size_t count,
                int argc, char **argv);

/* ---- machine.c: state of the machine that times depend on ---- */

typedef struct machine {
    int cores;         /* online */
    double load;       /* runnable processes, mean of the last minute; NaN: not known */
    char governor[32]; /* of the first core's frequency; empty: not known */
} machine_t;

void machine_read(machine_t *out);
/* "2 cores, load 0.52, governor performance" */
void machine_print(const machine_t *machine, FILE *file);
/* The object "machine". */
void machine_json(const machine_t *machine, json_t *json);

/* ---- session.c: texts and files ---- */

/* For fy_log_set: warnings and errors go to standard error. */
void tool_log(void *user, fy_log_level_t level, const char *text);

/* Closes what open_memstream opened, or NULL: whether *text is whole. If not, it is NULL. (glibc's
 * fclose says nothing of memory that was missing at the end.) */
bool tool_close_text(FILE *file, char **text);

/* Writes a file completely or not at all. Replaces the target of a symbolic link; writes into a
 * pipe or a device. Fails: IO. */
fy_status_t tool_replace(const char *path, const void *text, size_t nbytes);

/* ---- the session: one run of one subcommand ---- */

typedef struct session {
    const char *command; /* "ferry experiment roundtrip" */
    const common_t *common;
    fy_device_t *device;
    fy_device_info_t info;
    machine_t machine; /* when the session began */
    fy_scope_t scope;  /* owns what the run makes */
    FILE *out;         /* text for people; NULL with --json */
    json_t json;       /* the document, an open object; its file is NULL without --json */
    char *text;        /* the document so far: it is printed when it is whole */
    size_t text_nbytes;
} session_t;

/* Can `path` be written? Asked before hours of work end at a folder that is not there. No file
 * stays behind, and none is changed. */
fy_status_t tool_check_writable(const char *path);
/* The same for what tool_replace or fy_safetensors_write will write: a file beside it, renamed over
 * it. */
fy_status_t tool_check_replaceable(const char *path);
/* INVALID_ARGUMENT: `path`, a file to write, is the file `input`, which it would replace. */
fy_status_t tool_check_not_input(const char *path, const char *input);
/* Opens the device, begins the scope `name`, starts the JSON object with `kind`: `name`, version
 * and device. On failure too, session_end must follow. */
fy_status_t session_begin(session_t *session, const common_t *common, const char *command,
                          const char *kind, const char *name);
/* Closes everything; prints the JSON document if the work went well, the reason if it did not.
 * Returns the exit status. */
int session_end(session_t *session, fy_status_t status);
/* The same, with the ledger before. */
int session_end_experiment(session_t *session, fy_status_t status);
/* Waits for everything on the session's device. Blocks. */
fy_status_t session_wait(session_t *session);
/* Opens device number i of the same kind and with the same options: of "sim:0?profile=a100" it
 * is "sim:1?profile=a100". Close it with fy_device_close. Fails: INVALID_ARGUMENT (the session's
 * device is not number 0). */
fy_status_t session_open_sibling(const session_t *session, size_t i, fy_device_t **out_device);
/* Where the host's model clock stands; NaN on a real device. */
double session_model_ns(const session_t *session);
/* "model" on a simulated device, else "wall": the clock that comparisons go by. */
const char *session_clock(const session_t *session);
/* A table of figures by `clock`: below a line with `title` (as of printf), the device and `how`; in
 * the document it is the list `key`. */
void session_sheet(session_t *session, const sheet_t *sheet, const char *key, const char *clock,
                   const char *how, const char *title, ...) __attribute__((format(printf, 6, 7)));
/* How the table's figures were measured: rounds, warm-up, interval and machine, as a line below the
 * table or as the objects "statistics" and "machine". `warm_up`: what ran before the first round;
 * NULL: nothing. */
void session_statistics(session_t *session, const effort_t *effort, const char *warm_up);
/* Writes the sheet to --csv if requested; draws to --plot if requested, with device, profile and
 * version in the title, and prints the path. plot NULL: there is no figure. */
fy_status_t session_files(const session_t *session, const sheet_t *sheet, const plot_t *plot);
/* The same, and destroys the sheet. */
fy_status_t session_finish(const session_t *session, sheet_t *sheet, const plot_t *plot);

/* ---- ledger.c ---- */

fy_ledger_totals_t ledger_read(const char *scope_path);
/* For people, per scope and in all; `traffic`: and one line that is the same in every run. JSON:
 * the object "traffic". */
void ledger_print(FILE *file, bool traffic);
void ledger_json(json_t *json);

/* ---- session.c: data sets ---- */

/* The folder of data sets: `given` (--data), else $FERRY_DATA, else data/ in the current folder. */
const char *data_folder(const char *given);
/* Opening the data set `name` in data_folder(given) ended with `status`. True if made-up data may
 * replace it: it is not there (UNAVAILABLE), and `given` is NULL. Standard error then has a
 * warning. */
bool data_may_be_made_up(const char *given, const char *name, fy_status_t status);

/* ---- measure.c ---- */

double wall_ns(void);
/* Sorts `values`. NaN of nothing. */
double median(double *values, size_t count);
double worst(const double *values, size_t count);
/* A counter on standard error, if that is a terminal; `done` == `total` wipes it. */
void progress(const char *what, int64_t done, int64_t total);
/* Zeroed, never NULL: the command prints why and exits with STATUS_OUT_OF_MEMORY. */
void *tool_alloc(size_t nbytes);
char *tool_copy_text(const char *text); /* from tool_alloc */
/* A list with room for one more item behind its `count` items of `size` bytes; new items are zero.
 * Lists double when they are full. `items`: NULL, or from here with that count; it may be freed. */
void *tool_grow(void *items, size_t count, size_t size);
/* Exit status for what Ferry said. */
int status_to_exit(fy_status_t status);
/* The same, and standard error has the reason if it failed. */
int tool_end(fy_status_t status);
/* A tool's own failure, in Ferry's error record. */
#define TOOL_FAIL(code, ...) fy_error_set(FY_STATUS_##code, __FILE__, __LINE__, __VA_ARGS__)

#endif
