/* `ferry run --advise CMD ARGS`: a program with recording on, then the advice about it. The program
 * has the environment, the streams and the signals of the command.
 * Not here: the recording (runtime/record), the advice (advise.h). */
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/environment.h"
#include "tools/advise/advise.h"
#include "tools/cli/tool.h"

extern char **environ;

/* As shells and env(1) have them. */
enum { STATUS_NOT_RUN = 126, STATUS_NOT_FOUND = 127, STATUS_OF_SIGNAL = 128 };

typedef struct settings {
    const char *record;
    bool advise, all, prove;
} settings_t;

/* A new file for events; *out_path is the caller's to free. */
static fy_status_t make_file(char **out_path)
{
    const char *folder = fy__env_file("TMPDIR");
    if (!folder) folder = "/tmp";
    const size_t nbytes = strlen(folder) + 32;
    char *path = *out_path = tool_alloc(nbytes);
    snprintf(path, nbytes, "%s/ferry-run-XXXXXX.jsonl", folder);
    const int fd = mkstemps(path, 6);
    if (fd >= 0) return close(fd) == 0 ? FY_STATUS_OK : TOOL_FAIL(IO, "%s: %m", path);
    free(path);
    *out_path = NULL;
    return TOOL_FAIL(IO, "cannot make a file in %s: %m; $TMPDIR names another folder", folder);
}

/* Keys that end a program go to it, not to this command, which has to print. */
static int run_program(char **argv)
{
    posix_spawnattr_t attributes;
    sigset_t defaults;
    pid_t child;
    int status = 0;
    struct sigaction ignore = { .sa_handler = SIG_IGN }, interrupt, quit;
    sigaction(SIGINT, &ignore, &interrupt);
    sigaction(SIGQUIT, &ignore, &quit);
    sigemptyset(&defaults);
    if (interrupt.sa_handler != SIG_IGN) sigaddset(&defaults, SIGINT);
    if (quit.sa_handler != SIG_IGN) sigaddset(&defaults, SIGQUIT);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    const int error = posix_spawnp(&child, argv[0], NULL, &attributes, argv, environ);
    posix_spawnattr_destroy(&attributes);
    if (error) {
        fprintf(stderr, "ferry: cannot run %s: %s\n", argv[0], strerror(error));
        return error == ENOENT ? STATUS_NOT_FOUND : STATUS_NOT_RUN;
    }
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) return STATUS_FAILED;
    if (WIFEXITED(status)) return WEXITSTATUS(status);
    fprintf(stderr, "ferry: %s was ended by signal %d (%s)\n", argv[0], WTERMSIG(status),
            strsignal(WTERMSIG(status)));
    return STATUS_OF_SIGNAL + WTERMSIG(status);
}

static bool has_events(const char *path)
{
    struct stat about;
    return stat(path, &about) == 0 && (!S_ISREG(about.st_mode) || about.st_size);
}

/* The file of --record, without the events of an older run. */
static fy_status_t clear_file(const settings_t *settings)
{
    struct stat about;
    const char *path = settings->record;
    if (settings->advise && strstr(path, "%p"))
        return TOOL_FAIL(INVALID_ARGUMENT, "%s: --advise reads one file, whose name has no %%p",
                         path);
    FY_TRY(tool_check_writable(path));
    if (stat(path, &about) == 0 && S_ISREG(about.st_mode) && truncate(path, 0) != 0)
        return TOOL_FAIL(IO, "%s: %m", path);
    return FY_STATUS_OK;
}

static int print_advice(const settings_t *settings, const char *path, const char *program)
{
    if (!has_events(path))
        return TOOL_REFUSE(
            STATUS_FAILED,
            "%s recorded nothing: it does not use Ferry, records to another file, or "
            "FERRY_RECORD does not reach it\n",
            program);
    return advise_run(&(advise_options_t){
        .file = path, .name = program, .all = settings->all, .prove = settings->prove });
}

static int run_recorded(const settings_t *settings, char **argv)
{
    char *made = NULL;
    fy_status_t failed = settings->record ? clear_file(settings) : make_file(&made);
    const char *path = settings->record ? settings->record : made;
    if (failed == FY_STATUS_OK && setenv("FERRY_RECORD", path, 1) != 0)
        failed = TOOL_FAIL(OUT_OF_MEMORY, "no memory for the environment");
    int status = STATUS_FAILED;
    if (failed == FY_STATUS_OK) {
        status = run_program(argv);
        unsetenv("FERRY_RECORD");
        unsetenv("FERRY_WATCH");
    } else
        fprintf(stderr, "ferry: %s: %s\n", fy_status_name(failed), fy_error_get()->text);
    const bool has_run = failed == FY_STATUS_OK && status != STATUS_NOT_FOUND &&
                         status != STATUS_NOT_RUN;
    if (has_run && settings->advise) {
        const int advised = print_advice(settings, path, argv[0]);
        if (status == STATUS_OK) status = advised;
    }
    if (made) unlink(made);
    free(made);
    return status;
}

int cmd_run(int argc, char **argv)
{
    settings_t settings = { .record = NULL };
    const option_t options[] = {
        { "advise", OPTION_FLAG, NULL, &settings.advise,
          "then print transfers and waits that the run does not need, as ferry advise" },
        { "prove", OPTION_FLAG, NULL, &settings.prove, "with --advise: measure each saving" },
        { "all", OPTION_FLAG, NULL, &settings.all, "with --advise: show all findings in full" },
        { "record", OPTION_TEXT, "FILE", &settings.record,
          "write the events to FILE, and keep it; else to a file that is removed" },
    };
    const usage_t usage = { "ferry run --advise [options] CMD ARGS",
                            "Runs a program with recording on, then prints advice about the run. "
                            "The exit status is the "
                            "program's; if that is 0, the advisor's.",
                            options, sizeof options / sizeof *options,
                            "ferry run --advise ferry experiment roundtrip --device sim:0\n" };
    int count;
    OPTIONS_TRY(options_parse_front(&usage, argc, argv, &count));
    if (count == argc)
        return TOOL_REFUSE(STATUS_USAGE, "run which program? 'ferry run --advise CMD ARGS'\n");
    if (!settings.advise && (!settings.record || settings.prove || settings.all))
        return TOOL_REFUSE(STATUS_USAGE,
                           "run: for what? --advise prints advice, --record FILE keeps the "
                           "events\n");
    return run_recorded(&settings, argv + count);
}
