/* Input files, read a piece at a time and inflated within a limit: a small file cannot become more
 * bytes than its reader has requested, and a large one takes no more memory than a small one.
 * Not here: the meaning of the bytes (dataset_idx.c, dataset_cifar10.c).
 * Source of the format: RFC 1952; zlib's manual for its calls. */
#include "dataset.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <zlib.h>

#include "fail.h"

#define DEFLATE_BEST_RATIO 1032 /* zlib's technical notes: 258 bytes from two bits */
#define PIECE              (1u << 30)
#define BUFFER_NBYTES      (1u << 16)

static fy_status_t input_failed(const fyt_source_t *source)
{
    return source->input.error == ENOMEM ? FYT_FAIL(OUT_OF_MEMORY, "%s", source->input.problem)
                                         : FYT_FAIL(IO, "%s", source->input.problem);
}

static fy_status_t too_large(const fyt_source_t *source)
{
    return FYT_FAIL(CORRUPT_DATA,
                    "%s: more than max_nbytes = %llu bytes: raise the limit if that is meant",
                    source->name, (unsigned long long)source->max_nbytes);
}

/* Makes `count` stored bytes available, or all remaining bytes. Only a file can supply more. */
static fy_status_t fill(fyt_source_t *source, size_t count)
{
    if (!source->buffer || source->here >= count) return FY_STATUS_OK;
    memmove(source->buffer, source->bytes, source->here);
    source->bytes = source->buffer;
    while (source->here < count) {
        size_t got;
        if (fy__input_read(&source->input, source->buffer + source->here,
                           BUFFER_NBYTES - source->here, &got))
            return input_failed(source);
        if (!got) break;
        source->here += got;
    }
    return source->taken + source->here > source->max_nbytes ? too_large(source) : FY_STATUS_OK;
}

static void take(fyt_source_t *source, size_t count)
{
    if (!count) return; /* memory of no bytes may be NULL */
    source->bytes += count;
    source->here -= count;
    source->taken += count;
}

/* The content decides whether it is gzip. */
static fy_status_t begin(fyt_source_t *source)
{
    FY_TRY(fill(source, 2));
    if (source->here < 2 || source->bytes[0] != 0x1f || source->bytes[1] != 0x8b)
        return FY_STATUS_OK;
    z_stream *z = calloc(1, sizeof *z);
    if (!z || inflateInit2(z, 16 + MAX_WBITS) != Z_OK) { /* 16: gzip and nothing else */
        free(z);
        return FYT_FAIL(OUT_OF_MEMORY, "%s: no host memory to inflate it", source->name);
    }
    source->z = z;
    return FY_STATUS_OK;
}

fy_status_t fyt_source_open_bytes(const void *bytes, uint64_t nbytes, const char *name,
                                  uint64_t max_nbytes, fyt_source_t *out_source)
{
    *out_source = (fyt_source_t){
        .name = name, .bytes = bytes, .here = nbytes, .nbytes = nbytes, .max_nbytes = max_nbytes
    };
    return begin(out_source);
}

fy_status_t fyt_source_open_file(const char *path, uint64_t max_nbytes, fyt_source_t *out_source)
{
    fyt_source_t *source = out_source;
    *source = (fyt_source_t){ .name = path, .max_nbytes = max_nbytes };
    if (fy__input_open(&source->input, path)) return input_failed(source);
    source->nbytes = source->input.nbytes;
    source->bytes = source->buffer = malloc(BUFFER_NBYTES);
    fy_status_t status = FY_STATUS_OK;
    if (!source->buffer) {
        fy__input_close(&source->input);
        return FYT_FAIL(OUT_OF_MEMORY, "%s: no host memory to read it", path);
    }
    /* A file is too large if it says so itself. */
    if (source->nbytes != FY__INPUT_UNKNOWN && source->nbytes > max_nbytes)
        status = FYT_FAIL(
            CORRUPT_DATA,
            "%s: %llu bytes, more than max_nbytes = %llu bytes: raise the limit if that is meant",
            path, (unsigned long long)source->nbytes, (unsigned long long)max_nbytes);
    if (status == FY_STATUS_OK) status = begin(source);
    if (status != FY_STATUS_OK) fyt_source_close(source);
    return status;
}

void fyt_source_close(fyt_source_t *source)
{
    if (source->z) inflateEnd(source->z);
    if (source->buffer) fy__input_close(&source->input);
    free(source->z);
    free(source->buffer);
    *source = (fyt_source_t){ 0 };
}

int fyt_source_is_exact(const fyt_source_t *source)
{
    return !source->z && source->nbytes != FY__INPUT_UNKNOWN;
}

uint64_t fyt_source_at_most(const fyt_source_t *source)
{
    uint64_t most;
    if (source->nbytes == FY__INPUT_UNKNOWN) return UINT64_MAX;
    if (!source->z)
        return source->nbytes > source->position ? source->nbytes - source->position : 0;
    if (__builtin_mul_overflow(source->nbytes, (uint64_t)DEFLATE_BEST_RATIO, &most))
        most = UINT64_MAX;
    return most > source->position ? most - source->position : 0;
}

/* At the end of one gzip member: zeros may follow (tapes and block devices pad with them), then
 * another member, and nothing else. */
static fy_status_t next_member(fyt_source_t *source)
{
    size_t zeros;
    do {
        FY_TRY(fill(source, 2));
        for (zeros = 0; zeros < source->here && !source->bytes[zeros];) zeros++;
        take(source, zeros);
    } while (zeros);
    if (!source->here) {
        source->is_over = 1;
        return FY_STATUS_OK;
    }
    if (source->here < 2 || source->bytes[0] != 0x1f || source->bytes[1] != 0x8b)
        return FYT_FAIL(CORRUPT_DATA,
                        "%s: byte %llu: %llu bytes follow the end of the compressed data",
                        source->name, (unsigned long long)source->taken,
                        (unsigned long long)(source->nbytes == FY__INPUT_UNKNOWN
                                                 ? source->here
                                                 : source->nbytes - source->taken));
    inflateReset(source->z);
    return FY_STATUS_OK;
}

/* Inflates until nbytes are available or the stream has ended. */
static fy_status_t inflate_some(fyt_source_t *source, unsigned char *dst, uint64_t nbytes,
                                uint64_t *out_nread)
{
    z_stream *z = source->z;
    uint64_t done = 0;
    while (done < nbytes && !source->is_over) {
        FY_TRY(fill(source, 1));
        z->next_in = (z_const Bytef *)source->bytes;
        z->avail_in = (uInt)(source->here < PIECE ? source->here : PIECE);
        z->next_out = dst + done;
        z->avail_out = (uInt)(nbytes - done < PIECE ? nbytes - done : PIECE);
        const uInt room = z->avail_out;
        const int result = inflate(z, Z_NO_FLUSH);
        done += room - z->avail_out;
        take(source, (size_t)(z->next_in - source->bytes));
        if (result == Z_STREAM_END) {
            FY_TRY(next_member(source));
        } else if (result == Z_MEM_ERROR) {
            return FYT_FAIL(OUT_OF_MEMORY, "%s: no host memory to inflate it", source->name);
        } else if (result == Z_BUF_ERROR) {
            return FYT_FAIL(
                CORRUPT_DATA,
                "%s: the compressed data ends early, after %llu bytes that inflate to %llu",
                source->name, (unsigned long long)source->taken,
                (unsigned long long)(source->position + done));
        } else if (result != Z_OK) {
            return FYT_FAIL(CORRUPT_DATA, "%s: byte %llu: no valid gzip: %s", source->name,
                            (unsigned long long)source->taken,
                            z->msg ? z->msg : "a preset dictionary is asked for");
        }
    }
    *out_nread = done;
    return FY_STATUS_OK;
}

/* Copies bytes from the buffer, then from the file. */
static fy_status_t read_plain(fyt_source_t *source, unsigned char *dst, uint64_t nbytes,
                              uint64_t *out_nread)
{
    uint64_t done = nbytes < source->here ? nbytes : source->here;
    if (done) memcpy(dst, source->bytes, done);
    take(source, (size_t)done);
    while (source->buffer && done < nbytes) {
        const uint64_t left = nbytes - done;
        size_t got;
        if (fy__input_read(&source->input, dst + done, left < PIECE ? left : PIECE, &got))
            return input_failed(source);
        if (!got) break;
        source->taken += got;
        done += got;
    }
    *out_nread = done;
    return FY_STATUS_OK;
}

fy_status_t fyt_source_read(fyt_source_t *source, void *dst, uint64_t nbytes, uint64_t *out_nread)
{
    *out_nread = 0;
    FY_TRY(source->z ? inflate_some(source, dst, nbytes, out_nread)
                     : read_plain(source, dst, nbytes, out_nread));
    source->position += *out_nread;
    if (source->position <= source->max_nbytes) return FY_STATUS_OK;
    return source->z ? FYT_FAIL(CORRUPT_DATA,
                                "%s: more than max_nbytes = %llu bytes once it is inflated: raise "
                                "the limit if that is meant",
                                source->name, (unsigned long long)source->max_nbytes)
                     : too_large(source);
}
