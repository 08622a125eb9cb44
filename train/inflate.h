/* The bytes of a file, or of memory that stands for one, handed out in order; inflated if they are gzip (the content decides).
 * Everything that reads a file from outside stands on this, so that it can be tried on bytes without a file system. Next: inflate.c. */
#ifndef FERRY_TRAIN_INFLATE_H_
#define FERRY_TRAIN_INFLATE_H_

#include <ferry/status.h>

#include <stdint.h>

typedef struct fyt_source {
    const char *name;           /* borrowed; the file in errors */
    unsigned char *owned;       /* what was read from a file; NULL if the bytes are the caller's */
    const unsigned char *bytes; /* as they are stored */
    uint64_t nbytes;            /* stored */
    uint64_t position;          /* how much was handed out */
    uint64_t max_nbytes;        /* no more than that is handed out */
    struct z_stream_s *z;       /* NULL: not compressed */
    int is_over;                /* the compressed stream has come to its end, with the right checksum */
} fyt_source_t;

/* Looks at the first FYT_JUDGED bytes, as stored, before the rest of a file is read. A file with fewer is not shown to it. */
enum { FYT_JUDGED = 4 };
typedef fy_status_t (*fyt_judge_fn)(const unsigned char *first, const char *path);

/* Zeroed is closed; closing twice does nothing. Fails: IO, CORRUPT_DATA (more than max_nbytes as it is stored,
 * which a regular file is asked before it is read), what `judge` says (NULL: nothing), OUT_OF_MEMORY. */
fy_status_t fyt_source_open_file(const char *path, uint64_t max_nbytes, fyt_judge_fn judge, fyt_source_t *out_source);
/* `bytes` and `name` are borrowed until close. */
fy_status_t fyt_source_open_bytes(const void *bytes, uint64_t nbytes, const char *name, uint64_t max_nbytes, fyt_source_t *out_source);
void fyt_source_close(fyt_source_t *source);

/* No more than so many bytes can still come: exact if they are not compressed, else by deflate's best ratio. For asking before allocating. */
uint64_t fyt_source_at_most(const fyt_source_t *source);
/* The next nbytes; *out_nread is less at the end only. Fails: CORRUPT_DATA (no valid gzip, or more than max_nbytes). */
fy_status_t fyt_source_read(fyt_source_t *source, void *dst, uint64_t nbytes, uint64_t *out_nread);

#endif
