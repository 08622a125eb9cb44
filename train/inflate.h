/* The bytes of a file, or of memory that replaces one, in order; inflated if they are gzip (the
 * content decides).
 * The readers of byte data sets use this, so that they can be tested without a file system. See
 * inflate.c. */
#ifndef FERRY_TRAIN_INFLATE_H_
#define FERRY_TRAIN_INFLATE_H_

#include <ferry/status.h>

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/input.h"

#define FYT_SOURCE_UNKNOWN FY__INPUT_UNKNOWN

typedef struct fyt_source {
    const char *name;  /* borrowed; the file in errors */
    fy__input_t input; /* of a file */
    /* of a file, a piece of it; NULL: all bytes are in memory, and the caller's */
    unsigned char *buffer;
    const unsigned char *bytes; /* stored, and not taken: `here` of them */
    size_t here;
    uint64_t nbytes;      /* stored bytes; FYT_SOURCE_UNKNOWN: a pipe */
    uint64_t taken;       /* stored bytes that were returned or inflated */
    uint64_t position;    /* bytes that were returned */
    uint64_t max_nbytes;  /* limit of the bytes that are returned, or read */
    struct z_stream_s *z; /* NULL: not compressed */
    int is_over;          /* the compressed stream has ended, with the right checksum */
} fyt_source_t;

/* Zeroed is closed; closing twice does nothing. `path` is borrowed until close. Takes memory for a
 * small piece of the file.
 * Fails: IO (neither a file nor a pipe, among others), CORRUPT_DATA (more than max_nbytes; a
 * regular file is refused by its size before it is read), OUT_OF_MEMORY. */
fy_status_t fyt_source_open_file(const char *path, uint64_t max_nbytes, fyt_source_t *out_source);
/* `bytes` and `name` are borrowed until close. */
fy_status_t fyt_source_open_bytes(const void *bytes, uint64_t nbytes, const char *name,
                                  uint64_t max_nbytes, fyt_source_t *out_source);
void fyt_source_close(fyt_source_t *source);

/* No more than so many bytes can still come: exact if they are not compressed, else by deflate's
 * best ratio; UINT64_MAX of a pipe. For asking before allocating. */
uint64_t fyt_source_at_most(const fyt_source_t *source);
/* So many will come. */
int fyt_source_is_exact(const fyt_source_t *source);
/* The next nbytes; *out_nread is less at the end only. Fails: IO, CORRUPT_DATA (no valid gzip, or
 * more than max_nbytes). */
fy_status_t fyt_source_read(fyt_source_t *source, void *dst, uint64_t nbytes, uint64_t *out_nread);

#endif
