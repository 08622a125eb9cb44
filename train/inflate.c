/* Files from outside, read whole and inflated within a cap: a small file cannot become more bytes than its reader has asked for.
 * Not here: what the bytes mean (dataset_idx.c, dataset_cifar10.c). Source of the format: RFC 1952; zlib's manual for its calls. */
#include "inflate.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <zlib.h>

#include "table.h"

#define DEFLATE_BEST_RATIO 1032 /* zlib's technical notes: 258 bytes from two bits */
#define PIECE              (1u << 30)

fy_status_t fyt_source_open_bytes(const void *bytes, uint64_t nbytes, const char *name, uint64_t max_nbytes, fyt_source_t *out_source)
{
    *out_source = (fyt_source_t){ .name = name, .bytes = bytes, .nbytes = nbytes, .max_nbytes = max_nbytes };
    const unsigned char *magic = bytes;
    if (nbytes < 2 || magic[0] != 0x1f || magic[1] != 0x8b) return FY_STATUS_OK;
    z_stream *z = calloc(1, sizeof *z);
    if (!z || inflateInit2(z, 16 + MAX_WBITS) != Z_OK) { /* 16: gzip and nothing else */
        free(z);
        return FYT_FAIL(OUT_OF_MEMORY, "%s: no host memory to inflate it", name);
    }
    z->next_in = (z_const Bytef *)bytes;
    out_source->z = z;
    return FY_STATUS_OK;
}

/* A regular file that says it is too large is: nothing of it need be read. */
static fy_status_t judge_size(int fd, const char *path, uint64_t max_nbytes)
{
    struct stat facts;
    if (fstat(fd, &facts) != 0 || !S_ISREG(facts.st_mode) || (uint64_t)facts.st_size <= max_nbytes) return FY_STATUS_OK;
    return FYT_FAIL(CORRUPT_DATA, "%s: %llu bytes, more than max_nbytes = %llu bytes: raise the limit if that is meant", path,
                    (unsigned long long)facts.st_size, (unsigned long long)max_nbytes);
}

/* Grows as bytes come, so that what a file says of its size is not believed, and pipes work. */
static fy_status_t read_descriptor(int fd, const char *path, uint64_t max_nbytes, fyt_judge_fn judge, unsigned char **out_bytes,
                                   uint64_t *out_nbytes)
{
    struct stat facts;
    uint64_t used = 0, room = 1 << 16;
    int is_judged = 0;
    FY_TRY(judge_size(fd, path, max_nbytes));
    if (fstat(fd, &facts) == 0 && S_ISREG(facts.st_mode) && (uint64_t)facts.st_size <= max_nbytes) room = (uint64_t)facts.st_size + 1;
    unsigned char *bytes = malloc(room);
    while (bytes) {
        ssize_t got = read(fd, bytes + used, room - used < PIECE ? room - used : PIECE);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            int error = errno;
            free(bytes);
            return FYT_FAIL(IO, "cannot read %s: %s", path, strerror(error));
        }
        if (got == 0) break;
        used += (uint64_t)got;
        if (judge && !is_judged && used >= FYT_JUDGED) {
            const fy_status_t status = judge(bytes, path);
            if (status != FY_STATUS_OK) free(bytes);
            FY_TRY(status);
            is_judged = 1;
        }
        if (used > max_nbytes) {
            free(bytes);
            return FYT_FAIL(CORRUPT_DATA, "%s: more than max_nbytes = %llu bytes: raise the limit if that is meant", path,
                            (unsigned long long)max_nbytes);
        }
        if (used < room) continue;
        unsigned char *larger = room > PTRDIFF_MAX / 2 ? NULL : realloc(bytes, room * 2);
        if (!larger) free(bytes);
        bytes = larger;
        room *= 2;
    }
    if (!bytes) return FYT_FAIL(OUT_OF_MEMORY, "%s: no host memory for its %llu bytes", path, (unsigned long long)room);
    *out_bytes = bytes;
    *out_nbytes = used;
    return FY_STATUS_OK;
}

fy_status_t fyt_source_open_file(const char *path, uint64_t max_nbytes, fyt_judge_fn judge, fyt_source_t *out_source)
{
    unsigned char *bytes = NULL;
    uint64_t nbytes = 0;
    *out_source = (fyt_source_t){ 0 };
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0) return FYT_FAIL(IO, "cannot open %s: %s", path, strerror(errno));
    fy_status_t status = read_descriptor(fd, path, max_nbytes, judge, &bytes, &nbytes);
    close(fd);
    FY_TRY(status);
    status = fyt_source_open_bytes(bytes, nbytes, path, max_nbytes, out_source);
    if (status == FY_STATUS_OK)
        out_source->owned = bytes;
    else
        free(bytes);
    return status;
}

void fyt_source_close(fyt_source_t *source)
{
    if (source->z) inflateEnd(source->z);
    free(source->z);
    free(source->owned);
    *source = (fyt_source_t){ 0 };
}

uint64_t fyt_source_at_most(const fyt_source_t *source)
{
    if (!source->z) return source->nbytes - source->position;
    uint64_t most;
    if (__builtin_mul_overflow(source->nbytes, (uint64_t)DEFLATE_BEST_RATIO, &most)) most = UINT64_MAX;
    return most > source->position ? most - source->position : 0;
}

/* At the end of one gzip member: another may follow, and nothing else. */
static fy_status_t next_member(fyt_source_t *source)
{
    z_stream *z = source->z;
    uint64_t left = source->nbytes - (uint64_t)(z->next_in - source->bytes);
    if (!left) {
        source->is_over = 1;
        return FY_STATUS_OK;
    }
    if (left < 2 || z->next_in[0] != 0x1f || z->next_in[1] != 0x8b)
        return FYT_FAIL(CORRUPT_DATA, "%s: byte %llu: %llu bytes follow the end of the compressed data", source->name,
                        (unsigned long long)(source->nbytes - left), (unsigned long long)left);
    inflateReset(z);
    return FY_STATUS_OK;
}

/* Inflates until nbytes are there or the stream is over. */
static fy_status_t inflate_some(fyt_source_t *source, unsigned char *dst, uint64_t nbytes, uint64_t *out_nread)
{
    z_stream *z = source->z;
    uint64_t done = 0;
    while (done < nbytes && !source->is_over) {
        uint64_t left = source->nbytes - (uint64_t)(z->next_in - source->bytes);
        z->avail_in = (uInt)(left < PIECE ? left : PIECE);
        z->next_out = dst + done;
        z->avail_out = (uInt)(nbytes - done < PIECE ? nbytes - done : PIECE);
        const uInt room = z->avail_out;
        const int result = inflate(z, Z_NO_FLUSH);
        done += room - z->avail_out;
        uint64_t at = (uint64_t)(z->next_in - source->bytes);
        if (result == Z_STREAM_END) {
            FY_TRY(next_member(source));
        } else if (result == Z_MEM_ERROR) {
            return FYT_FAIL(OUT_OF_MEMORY, "%s: no host memory to inflate it", source->name);
        } else if (result == Z_BUF_ERROR) {
            return FYT_FAIL(CORRUPT_DATA, "%s: the compressed data ends early, after %llu bytes that inflate to %llu", source->name,
                            (unsigned long long)source->nbytes, (unsigned long long)(source->position + done));
        } else if (result != Z_OK) {
            return FYT_FAIL(CORRUPT_DATA, "%s: byte %llu: no valid gzip: %s", source->name, (unsigned long long)at,
                            z->msg ? z->msg : "a preset dictionary is asked for");
        }
    }
    *out_nread = done;
    return FY_STATUS_OK;
}

fy_status_t fyt_source_read(fyt_source_t *source, void *dst, uint64_t nbytes, uint64_t *out_nread)
{
    *out_nread = 0;
    if (source->z) {
        FY_TRY(inflate_some(source, dst, nbytes, out_nread));
    } else {
        uint64_t left = source->nbytes - source->position;
        *out_nread = nbytes < left ? nbytes : left;
        if (*out_nread) memcpy(dst, source->bytes + source->position, *out_nread);
    }
    source->position += *out_nread;
    if (source->position > source->max_nbytes)
        return FYT_FAIL(CORRUPT_DATA, "%s: more than max_nbytes = %llu bytes once it is inflated: raise the limit if that is meant",
                        source->name, (unsigned long long)source->max_nbytes);
    return FY_STATUS_OK;
}
