/* Files from outside, opened and read so that no file of any kind makes the reader wait for ever or
 * take memory for what is not there. The one way to do so: event files, traces, snapshots,
 * documents (tools/), data sets, tables, weights (train/), profiles (backends/sim/). Needs nothing
 * of Ferry: it is compiled into libferry, libferry_train and the command. Not here: what the bytes
 * mean. Next: input.c. */
#ifndef FERRY_RUNTIME_BASE_INPUT_H_
#define FERRY_RUNTIME_BASE_INPUT_H_

#include <stddef.h>
#include <stdint.h>

/* fy__input_t.nbytes of a pipe. A regular file's size is what its file system says. */
#define FY__INPUT_UNKNOWN UINT64_MAX

typedef struct fy__input {
    const char *path; /* borrowed */
    int fd;
    int is_begun;    /* a pipe's writer has been seen, or it is no pipe */
    uint64_t nbytes; /* as a regular file has them; FY__INPUT_UNKNOWN: a pipe */
    /* of the last failure, an errno; ENOMEM: no host memory; EFBIG, EBADMSG: fy__input_text */
    int error;
    char problem[600]; /* and in words, without a line's end */
} fy__input_t;

/* Opens a regular file or a pipe; does not wait. What is neither (a directory, a device, a socket)
 * is refused. Each call returns 0 or input->error.
 * After a failure there is nothing to close. */
int fy__input_open(fy__input_t *input, const char *path);
/* The next bytes, `room` at most; *out_nread is 0 at the end only. Blocks while a pipe has a writer
 * and no bytes; a pipe without a writer gets half a second to find one. */
int fy__input_read(fy__input_t *input, void *to, size_t room, size_t *out_nread);
void fy__input_close(fy__input_t *input);

/* Opens, reads all as text, and closes: *out_text is from malloc, with a zero behind its
 * *out_nbytes. It ends early behind a piece that has a zero byte, which no text has. `begins`: what
 * the first character that is no blank may be, else EBADMSG; NULL: any. More than most_nbytes:
 * EFBIG, by the size alone if it is known. Takes memory for bytes that have come. */
int fy__input_text(fy__input_t *input, const char *path, const char *begins, size_t most_nbytes,
                   char **out_text, size_t *out_nbytes);

/* "a directory", "a pipe", ... of st_mode. */
const char *fy__input_kind(unsigned mode);

#endif
