/* The `ferry` command: picks the subcommand, nothing more. Contract of the command line:
 * docs/cli.md.
 * Next: cmd_info.c (the smallest subcommand), session.c (what they share). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/environment.h"
#include "tools/cli/tool.h"

static const command_t commands[] = {
    { "info", "devices, memory, plugins loaded or why not", cmd_info },
    { "train",
      "trains a network: linear, mlp, lenet, mnist2018, mnist, resnet18, mobilenet_v3_large, "
      "vit_tiny, gpt",
      cmd_train },
    { "generate", "continues a text with a trained gpt", cmd_generate },
    { "experiment",
      "what moving data costs, and training with little of it: roundtrip, vectorize, minibatch, "
      "link, parallel, speedups",
      cmd_experiment },
    { "bench",
      "micro benchmarks: dispatch, gemm, copy (beside the raw library call), alloc (beside other "
      "allocators), step (beside memcpy), train",
      cmd_bench },
    { "ledger", "what a recorded run moved: by scope, path and call site", cmd_ledger },
    { "timeline", "a recorded run as a picture, for Perfetto and chrome://tracing", cmd_timeline },
    { "report", "a recorded run as a page for a browser: where the time goes", cmd_report },
    { "advise", "transfers and waits that a recorded run does not need, their costs and fixes",
      cmd_advise },
    { "run", "another program, recorded; then the advice about it", cmd_run },
    { "predict", "a recorded run on another device, link or latency, by the model clock",
      cmd_predict },
    { "plan",
      "does it fit? memory map and model time of a step, the largest batch, without a device",
      cmd_plan },
    { "memory", "what lay where in a device's memory, from a snapshot", cmd_memory },
    { "replay", "what recorded allocations take under other settings, limits and policies",
      cmd_replay },
    { "calibrate", "measures a device, and this host, into a profile for simulated devices",
      cmd_calibrate },
    { "watch", "a running process with FERRY_WATCH=1: rates, waits, live bytes, refusals",
      cmd_watch },
    { "compare", "figures of two JSON documents, by the same clock: which differ", cmd_compare },
};

static void print_commands(FILE *file, const char *prefix, const char *summary,
                           const command_t *list, size_t count)
{
    fprintf(file, "usage: %s COMMAND [options]\n\n%s\n\ncommands:\n", prefix, summary);
    for (size_t i = 0; i < count; i++) fprintf(file, "  %-14s%s\n", list[i].name, list[i].summary);
    fprintf(file, "\n'%s COMMAND --help' tells more.\n", prefix);
}

int run_command(const char *prefix, const char *summary, const command_t *list, size_t count,
                int argc, char **argv)
{
    if (argc < 2) {
        print_commands(stderr, prefix, summary, list, count);
        return STATUS_USAGE;
    }
    static char help[] = "--help";
    if (strcmp(argv[1], "help") == 0 && argc > 2) { /* "help X Y" is "X Y --help" */
        memmove(argv + 1, argv + 2, (size_t)(argc - 2) * sizeof *argv);
        argv[argc - 1] = help;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        print_commands(stdout, prefix, summary, list, count);
        return STATUS_OK;
    }
    for (size_t i = 0; i < count; i++)
        if (strcmp(argv[1], list[i].name) == 0) return list[i].run(argc - 1, argv + 1);
    const char *meant = nearest_name(argv[1], &list[0].name, sizeof *list, count);
    fprintf(stderr, "ferry: '%s %s' is no command", prefix, argv[1]);
    if (meant)
        fprintf(stderr, "; did you mean '%s'?\n", meant);
    else
        fprintf(stderr, ". Try '%s --help'\n", prefix);
    return STATUS_USAGE;
}

/* libgomp's idle threads spin by default, which costs the others on a busy machine milliseconds; it
 * reads OMP_WAIT_POLICY when it is loaded, before main, so the command starts itself again with the
 * variable set. Once: the second time it is set. */
static void prefer_passive_waiting(char **argv)
{
    if (fy__env_value("OMP_WAIT_POLICY") || setenv("OMP_WAIT_POLICY", "passive", 1) != 0) return;
    execv("/proc/self/exe", argv); /* returns only if it failed; then all works, only slower */
}

/* Commands that only read files. A recording of such a command would be empty, and might overwrite
 * the file that the command reads. */
static bool only_reads(const char *command)
{
    static const char *const names[] = { "ledger", "timeline", "advise",  "report", "predict",
                                         "replay", "memory",   "compare", "watch" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(command, names[i]) == 0) return true;
    return false;
}

static bool has_record_option(int argc, char **argv)
{
    for (int i = 2; i < argc; i++)
        if (strcmp(argv[i], "--record") == 0 || strncmp(argv[i], "--record=", 9) == 0) return true;
    return false;
}

static int fail(const char *what)
{
    const fy_status_t status = fy_error_get()->status;
    fprintf(stderr, "ferry: %s%s: %s\n", what, fy_status_name(status), fy_error_get()->text);
    return status == FY_STATUS_INVALID_ARGUMENT ? STATUS_USAGE : status_to_exit(status);
}

/* A malformed variable ends the command before it does anything. So does a recording that cannot be
 * started, unless FERRY_STRICT=0. */
static int begin(int argc, char **argv, const char **out_record)
{
    char what[300];
    const char *record = fy__env_file("FERRY_RECORD"), *strict = fy__env_value("FERRY_STRICT");
    fy_device_t *host;
    if (only_reads(argv[1]) || has_record_option(argc, argv)) record = NULL;
    *out_record = record;
    unsetenv("FERRY_RECORD");
    const char *watch = fy__env_file("FERRY_WATCH");
    /* its own counters are of no use; a malformed value is an error below */
    if (only_reads(argv[1]) && watch && strcmp(watch, "1") == 0) unsetenv("FERRY_WATCH");
    fy_log_set(tool_log, NULL);
    int status = fy_device_open("host", &host) == FY_STATUS_OK ? STATUS_OK : fail("");
    if (status == STATUS_OK && record && fy_ledger_record(record) != FY_STATUS_OK) {
        snprintf(what, sizeof what, "FERRY_RECORD=%.200s: nothing is recorded: ", record);
        const int failed = fail(what);
        *out_record = NULL;
        if (!strict || strcmp(strict, "0") != 0) status = failed;
    }
    fy_log_set(NULL, NULL);
    return status;
}

static int run(int argc, char **argv)
{
    const char *record = NULL;
    char what[300];
    if (argc > 1 && strcmp(argv[1], "--version") == 0) {
        printf("ferry %s\n", fy_version());
        return STATUS_OK;
    }
    /* `run` leaves the environment to its program */
    const bool runs = argc > 1 && strcmp(argv[1], "run") == 0;
    if (!runs) prefer_passive_waiting(argv);
    int status = argc > 1 && !runs && argv[1][0] != '-' ? begin(argc, argv, &record) : STATUS_OK;
    if (status != STATUS_OK) return status;
    status = run_command("ferry", "Ferry, a tensor runtime that moves nothing by itself.", commands,
                         sizeof commands / sizeof *commands, argc, argv);
    if (!record || fy_ledger_record(NULL) == FY_STATUS_OK) return status;
    snprintf(what, sizeof what, "FERRY_RECORD=%.200s: ", record);
    const int failed = fail(what);
    return status == STATUS_OK ? failed : status;
}

/* errno of the last write to standard output that failed. */
static int lost_errno;

static ssize_t write_output(void *cookie, const char *bytes, size_t nbytes)
{
    size_t done = 0;
    (void)cookie;
    while (done < nbytes) {
        const ssize_t n = write(STDOUT_FILENO, bytes + done, nbytes - done);
        if (n >= 0)
            done += (size_t)n;
        else if (errno != EINTR) {
            lost_errno = errno;
            break;
        }
    }
    return (ssize_t)done;
}

/* Output that is lost fails the command, whichever it is. */
int main(int argc, char **argv)
{
    FILE *output = fopencookie(NULL, "w", (cookie_io_functions_t){ .write = write_output });
    if (output) {
        setvbuf(output, NULL, isatty(STDOUT_FILENO) ? _IOLBF : _IOFBF, BUFSIZ);
        stdout = output;
    }
    const int status = run(argc, argv);
    const bool is_lost = fflush(stdout) != 0 || ferror(stdout);
    if (!is_lost || status != STATUS_OK) return status;
    return TOOL_REFUSE(STATUS_FAILED, "IO: cannot write to standard output: %s\n",
                       strerror(output ? lost_errno : errno));
}
