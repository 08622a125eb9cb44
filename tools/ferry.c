/* The `ferry` command: picks the subcommand, nothing more. Contract of the command line: docs/cli.md.
 * Next: cmd_info.c (the smallest subcommand), session.c (what they share). */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/tool.h"

static const command_t commands[] = {
    { "info", "devices, memory, plugins loaded or why not", cmd_info },
    { "train", "trains a network: linear, mlp, lenet, mnist2018, mnist", cmd_train },
    { "experiment", "what moving data costs, and training with little of it: roundtrip, vectorize, minibatch, link, parallel, speedups",
      cmd_experiment },
    { "bench", "micro benchmarks: dispatch, gemm, copy (beside the raw library call), alloc (beside other allocators), train", cmd_bench },
    { "ledger", "what a recorded run moved: by scope, path and call site", cmd_ledger },
    { "plan", "does it fit? memory map and model time of a step, the largest batch, without a device", cmd_plan },
    { "memory", "what lay where in a device's memory, from a snapshot", cmd_memory },
    { "replay", "what recorded allocations take under other settings, limits and policies", cmd_replay },
    { "calibrate", "measures a device, and this host, into a profile for simulated devices", cmd_calibrate },
    { "compare", "two JSON documents side by side: what was predicted, and what was measured", cmd_compare },
};

static void print_commands(FILE *file, const char *prefix, const char *summary, const command_t *list, size_t count)
{
    fprintf(file, "usage: %s COMMAND [options]\n\n%s\n\ncommands:\n", prefix, summary);
    for (size_t i = 0; i < count; i++) fprintf(file, "  %-14s%s\n", list[i].name, list[i].summary);
    fprintf(file, "\n'%s COMMAND --help' tells more.\n", prefix);
}

int run_command(const char *prefix, const char *summary, const command_t *list, size_t count, int argc, char **argv)
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
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
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

/* libgomp's idle threads spin by default, which costs the others on a busy machine milliseconds; it reads OMP_WAIT_POLICY when it is
 * loaded, before main, so the command starts itself again with the variable set. Once: the second time it is set. */
static void prefer_passive_waiting(char **argv)
{
    if (getenv("OMP_WAIT_POLICY") || setenv("OMP_WAIT_POLICY", "passive", 1) != 0) return;
    execv("/proc/self/exe", argv); /* returns only if it failed; then all works, only slower */
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--version") == 0) {
        printf("ferry %s\n", fy_version());
        return STATUS_OK;
    }
    prefer_passive_waiting(argv);
    const int status = run_command("ferry", "Ferry, a tensor runtime that moves nothing by itself.", commands,
                                   sizeof commands / sizeof *commands, argc, argv);
    const char *record = getenv("FERRY_RECORD"); /* --record ends its own, and unsets it */
    if (!record || !*record || fy_ledger_record(NULL) == FY_STATUS_OK) return status;
    fprintf(stderr, "ferry: FERRY_RECORD=%s: %s\n", record, fy_error_get()->text);
    return status == STATUS_OK ? STATUS_FAILED : status;
}
