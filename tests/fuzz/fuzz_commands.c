/* Runs the subcommands that read recordings, snapshots and traces on the bytes of a file; the
 * output is discarded. A mutator changes numbers and lines, so that most files stay readable and
 * reach the code behind the readers.
 * Not here: promises of the readers (fuzz_events.c). How to run: README.md. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"
#include "tools/cli/tool.h"

enum { WORDS = 8 };

/* PATH is the file. */
static const struct {
    int (*run)(int argc, char **argv);
    const char *words[WORDS];
} commands[] = {
    { cmd_ledger, { "ledger", "PATH" } },
    { cmd_ledger, { "ledger", "PATH", "--json" } },
    { cmd_report, { "report", "PATH", "--out", "/dev/null" } },
    { cmd_timeline, { "timeline", "PATH", "--out", "/dev/null", "--clock", "both" } },
    { cmd_advise, { "advise", "PATH", "--all", "--prove" } },
    { cmd_advise, { "advise", "PATH", "--json" } },
    { cmd_predict, { "predict", "PATH", "--profile", "t4" } },
    { cmd_predict, { "predict", "PATH", "--from", "h200", "--pinned", "all" } },
    { cmd_replay, { "replay", "PATH" } },
    { cmd_memory, { "memory", "PATH" } },
    { cmd_memory, { "memory", "PATH", "--format", "pytorch", "--out", "/dev/null" } },
    { cmd_compare, { "compare", "PATH", "PATH", "--key", "bytes" } },
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    char path[64];
    const int fd = memfd_create("commands", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, nbytes) != (ssize_t)nbytes) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        char *argv[WORDS + 1] = { NULL };
        int argc = 0;
        for (; argc < WORDS && commands[i].words[argc]; argc++)
            argv[argc] = strcmp(commands[i].words[argc], "PATH") == 0
                             ? path
                             : (char *)commands[i].words[argc];
        (void)commands[i].run(argc, argv);
    }
    close(fd);
    return 0;
}

/* ---- the mutator ---- */

size_t LLVMFuzzerMutate(uint8_t *data, size_t nbytes, size_t most);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t nbytes, size_t most, unsigned seed);

/* Puts `text` in place of [from, to); the new size, or the old one if there is no room. */
static size_t put(uint8_t *data, size_t nbytes, size_t most, size_t from, size_t to,
                  const char *text, size_t length)
{
    if (nbytes - (to - from) + length > most) return nbytes;
    memmove(data + from + length, data + to, nbytes - to);
    memcpy(data + from, text, length);
    return nbytes - (to - from) + length;
}

static size_t change_number(uint8_t *data, size_t nbytes, size_t most, unsigned *seed)
{
    static const char *const numbers[] = { "0",
                                           "1",
                                           "2",
                                           "3",
                                           "65535",
                                           "1048576",
                                           "4294967295",
                                           "281474976710656",
                                           "9223372036854775807",
                                           "18446744073709551615",
                                           "-1",
                                           "0.5",
                                           "1e300",
                                           "null" };
    char near[24];
    size_t from = (size_t)rand_r(seed) % nbytes, to;
    while (from < nbytes && !isdigit(data[from])) from++;
    while (from && isdigit(data[from - 1])) from--;
    for (to = from; to < nbytes && isdigit(data[to]);) to++;
    if (from == nbytes) return nbytes;
    const char *text = numbers[(size_t)rand_r(seed) % (sizeof numbers / sizeof *numbers)];
    if (rand_r(seed) % 2) {
        snprintf(near, sizeof near, "%.*s", (int)(to - from < 20 ? to - from : 20),
                 (const char *)data + from);
        snprintf(near, sizeof near, "%llu",
                 strtoull(near, NULL, 10) + (unsigned)rand_r(seed) % 5 - 2);
        text = near;
    }
    return put(data, nbytes, most, from, to, text, strlen(text));
}

/* The line at or before `at`. */
static void find_line(const uint8_t *data, size_t nbytes, size_t at, size_t *from, size_t *to)
{
    for (*from = at; *from && data[*from - 1] != '\n';) --*from;
    for (*to = at; *to < nbytes && data[*to] != '\n';) ++*to;
    *to += *to < nbytes;
}

/* Copies, moves or removes a line. */
static size_t change_lines(uint8_t *data, size_t nbytes, size_t most, unsigned *seed)
{
    char line[2048];
    size_t from, to, other, end;
    find_line(data, nbytes, (size_t)rand_r(seed) % nbytes, &from, &to);
    const size_t length = to - from;
    if (length > sizeof line) return nbytes;
    memcpy(line, data + from, length);
    const int kind = rand_r(seed) % 3;
    if (kind && nbytes > length) nbytes = put(data, nbytes, most, from, to, "", 0);
    if (kind == 1) return nbytes;
    find_line(data, nbytes, (size_t)rand_r(seed) % nbytes, &other, &end);
    return put(data, nbytes, most, other, other, line, length);
}

/* Gives an event file a last line that is right: some rules look at whole recordings only. */
static size_t end_file(uint8_t *data, size_t nbytes, size_t most)
{
    char line[64];
    size_t from, to, nlines = 0;
    find_line(data, nbytes, nbytes - 1, &from, &to);
    if (to - from < 12 || memcmp(data + from, "{\"ev\":\"end\"", 11) != 0) return nbytes;
    for (size_t i = 0; i < from; i++) nlines += data[i] == '\n';
    const int length =
        snprintf(line, sizeof line, "{\"ev\":\"end\",\"events\":%zu,\"lost\":0}\n", nlines - 1);
    return put(data, nbytes, most, from, to, line, (size_t)length);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t nbytes, size_t most, unsigned seed)
{
    const int kind = rand_r(&seed) % 8;
    if (!nbytes || !kind) return LLVMFuzzerMutate(data, nbytes, most);
    for (int n = 1 + rand_r(&seed) % 3; n--;)
        nbytes = kind < 5 ? change_number(data, nbytes, most, &seed)
                          : change_lines(data, nbytes, most, &seed);
    return rand_r(&seed) % 8 ? end_file(data, nbytes, most) : nbytes;
}
