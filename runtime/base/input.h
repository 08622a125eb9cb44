/* Opens and reads files from outside. No kind of file makes the reader wait without limit, or
 * allocate memory for bytes that do not arrive. All readers use it: event files, traces, snapshots,
 * documents (tools/), data sets, tables, weights (train/), profiles (backends/sim/). It needs no
 * other part of Ferry: libferry, libferry_train and the command compile it. Not here: the formats.
 * Next: input.c. */
#ifndef FERRY_RUNTIME_BASE_INPUT_H_
#define FERRY_RUNTIME_BASE_INPUT_H_

#include <stddef.h>
#include <stdint.h>

/* fy__input_t.nbytes of a pipe. For a regular file nbytes is its size in the file system. */
#define FY__INPUT_UNKNOWN UINT64_MAX

typedef struct fy__input {
    const char *path; /* borrowed */
    int fd;
    int is_begun;    /* a pipe's writer has been seen, or the file is not a pipe */
    uint64_t nbytes; /* size of a regular file; FY__INPUT_UNKNOWN: a pipe */
    /* errno of the last failure; ENOMEM: no host memory; EFBIG, EBADMSG: fy__input_text */
    int error;
    char problem[600]; /* the failure as text, without a newline */
} fy__input_t;

/* Opens a regular file or a pipe; does not wait. Refuses directories, devices and sockets. Each
 * call returns 0 or input->error. After a failure there is nothing to close. */
int fy__input_open(fy__input_t *input, const char *path);
/* Reads the next bytes, at most `room`; *out_nread is 0 at the end only. Blocks while a pipe has a
 * writer and no bytes. Fails after half a second if no program opens the pipe for writing. */
int fy__input_read(fy__input_t *input, void *to, size_t room, size_t *out_nread);
void fy__input_close(fy__input_t *input);

/* Opens, reads everything as text, and closes. *out_text is from malloc, with a zero after its
 * *out_nbytes. The text ends at the end of the piece that has a zero byte. EBADMSG: the first
 * character that is not blank is not in `begins`; NULL allows any. EFBIG: more than most_nbytes, by
 * the size alone if it is known. Memory grows with the bytes that arrive. */
int fy__input_text(fy__input_t *input, const char *path, const char *begins, size_t most_nbytes,
                   char **out_text, size_t *out_nbytes);

/* "a directory", "a pipe", ... for st_mode. */
const char *fy__input_kind(unsigned mode);

#endif
