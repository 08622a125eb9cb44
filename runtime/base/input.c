/* Reads regular files and pipes. Files are opened non-blocking: a pipe that no program writes would
 * block the open itself. Not here: formats; writing (replace.c). */
#include "runtime/base/input.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/c_locale.h"

enum { WRITER_MS = 500, FIRST_ROOM = 1 << 16 };

static __attribute__((format(printf, 3, 4))) int fail(fy__input_t *input, int error,
                                                      const char *format, ...)
{
    va_list args;
    va_start(args, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start is above */
    fy__vsnprintf(input->problem, sizeof input->problem, format, args);
    va_end(args);
    return input->error = error ? error : EIO;
}

const char *fy__input_kind(unsigned mode)
{
    switch (mode & S_IFMT) {
    case S_IFREG: return "a regular file";
    case S_IFDIR: return "a directory";
    case S_IFIFO: return "a pipe";
    case S_IFSOCK: return "a socket";
    default: return "a device";
    }
}

int fy__input_open(fy__input_t *input, const char *path)
{
    struct stat facts;
    *input = (fy__input_t){ .path = path, .nbytes = FY__INPUT_UNKNOWN };
    do input->fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    while (input->fd < 0 && errno == EINTR);
    if (input->fd < 0) return fail(input, errno, "cannot open %s: %s", path, fy__strerror(errno));
    if (fstat(input->fd, &facts) != 0)
        (void)fail(input, errno, "cannot look at %s: %s", path, fy__strerror(errno));
    else if (S_ISREG(facts.st_mode)) {
        input->nbytes = (uint64_t)facts.st_size;
        input->is_begun = 1;
    } else if (!S_ISFIFO(facts.st_mode))
        (void)fail(input, S_ISDIR(facts.st_mode) ? EISDIR : ENOTSUP,
                   "cannot read %s: it is %s; a regular file or a pipe is expected", path,
                   fy__input_kind(facts.st_mode));
    if (input->error) fy__input_close(input);
    return input->error;
}

/* A pipe's first read has returned nothing: it has no writer yet, or no writer any more.
 * *out_is_over: a writer opened and closed it. */
static int await_writer(fy__input_t *input, int *out_is_over)
{
    struct pollfd waits = { .fd = input->fd, .events = POLLIN };
    int count;
    do count = poll(&waits, 1, WRITER_MS);
    while (count < 0 && errno == EINTR);
    if (count < 0)
        return fail(input, errno, "cannot read %s: %s", input->path, fy__strerror(errno));
    if (count == 0)
        return fail(input, ETIMEDOUT,
                    "cannot read %s: it is a pipe, and no program has opened it for writing",
                    input->path);
    *out_is_over = !(waits.revents & POLLIN);
    return 0;
}

/* A writer has been seen: from now on, reading may block. */
static int begin(fy__input_t *input)
{
    const int flags = fcntl(input->fd, F_GETFL);
    if (flags < 0 || fcntl(input->fd, F_SETFL, flags & ~O_NONBLOCK) != 0)
        return fail(input, errno, "cannot read %s: %s", input->path, fy__strerror(errno));
    input->is_begun = 1;
    return 0;
}

int fy__input_read(fy__input_t *input, void *to, size_t room, size_t *out_nread)
{
    int is_over = 0;
    *out_nread = 0;
    while (room && !is_over) {
        const ssize_t got = read(input->fd, to, room);
        const int error = got < 0 ? errno : 0;
        if (error == EINTR) continue;
        if (error && (input->is_begun || error != EAGAIN))
            return fail(input, error, "cannot read %s: %s", input->path, fy__strerror(error));
        if (!input->is_begun && got == 0) {
            if (await_writer(input, &is_over)) return input->error;
            continue;
        }
        if (!input->is_begun && begin(input)) return input->error;
        if (error) continue; /* no bytes yet: reads block from now on */
        *out_nread = (size_t)got;
        return 0;
    }
    return 0;
}

void fy__input_close(fy__input_t *input)
{
    if (input->fd >= 0) (void)close(input->fd);
    input->fd = -1;
}

/* ---- whole texts ---- */

static int begins_well(fy__input_t *input, const char *begins, const char *text)
{
    const char first = text[strspn(text, " \t\r\n")];
    if (!begins || !first || strchr(begins, first)) return 0;
    return fail(input, EBADMSG, "%s begins with byte 0x%02x; expected is '%c'", input->path,
                (unsigned char)first, *begins);
}

static int too_long(fy__input_t *input, size_t most_nbytes)
{
    return input->nbytes == FY__INPUT_UNKNOWN
               ? fail(input, EFBIG, "%s has more than %zu bytes", input->path, most_nbytes)
               : fail(input, EFBIG, "%s has %llu bytes, more than %zu", input->path,
                      (unsigned long long)input->nbytes, most_nbytes);
}

static int no_memory(fy__input_t *input, size_t room)
{
    return fail(input, ENOMEM, "no host memory for %zu bytes of %s", room, input->path);
}

/* Reads into *text, which grows; the caller frees it. */
static int read_text(fy__input_t *input, const char *begins, size_t most_nbytes, char **text,
                     size_t *used)
{
    size_t room = most_nbytes < FIRST_ROOM ? most_nbytes + 1 : FIRST_ROOM, got;
    int is_judged = 0;
    if (!(*text = malloc(room + 1))) return no_memory(input, room);
    for (;;) {
        if (fy__input_read(input, *text + *used, room - *used, &got)) return input->error;
        (*text)[*used + got] = 0;
        if (!is_judged && begins_well(input, begins, *text)) return input->error;
        is_judged = 1;
        const int has_zero = memchr(*text + *used, 0, got) != NULL;
        *used += got;
        if (*used > most_nbytes) return too_long(input, most_nbytes);
        if (!got || has_zero) return 0;
        if (*used < room) continue;
        room = room > most_nbytes / 2 ? most_nbytes + 1 : 2 * room;
        char *larger = realloc(*text, room + 1);
        if (!larger) return no_memory(input, room);
        *text = larger;
    }
}

int fy__input_text(fy__input_t *input, const char *path, const char *begins, size_t most_nbytes,
                   char **out_text, size_t *out_nbytes)
{
    char *text = NULL;
    *out_text = NULL;
    *out_nbytes = 0;
    if (fy__input_open(input, path)) return input->error;
    if (input->nbytes != FY__INPUT_UNKNOWN && input->nbytes > most_nbytes)
        (void)too_long(input, most_nbytes);
    else
        (void)read_text(input, begins, most_nbytes, &text, out_nbytes);
    fy__input_close(input);
    if (input->error)
        free(text);
    else
        *out_text = text;
    return input->error;
}
