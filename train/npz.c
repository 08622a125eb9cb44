/* Reads .npz archives. The directory and every member's header are checked before any of them is
 * used: members lie one after another, from the first byte to the directory. So no two overlap, and
 * an array is never larger than its bytes can give. Data is read with pread.
 * Not here: writing (npz_write.c), the arrays (npy.c). See include/ferry/train/npz.h. */
#include "train/npy.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "runtime/base/input.h"
#include "runtime/base/json.h"
#include "train/fail.h"

enum { STORED = 0, DEFLATED = 8, LEVEL_FLAGS = 6 };
#define DEFLATE_BEST_RATIO 1032        /* zlib's technical notes: 258 bytes from two bits */
#define DIRECTORY_MOST     (64u << 20) /* bytes */

typedef struct member {
    const char *name;          /* without ".npy"; in the directory's text */
    uint64_t offset, begin;    /* of its header, of its data */
    uint64_t packed, nbytes;   /* of the data in the file, of the array's file */
    uint32_t crc, name_nbytes; /* with ".npy" */
    uint16_t method, flags;
} member_t;

struct fy_npz {
    fy__input_t input;
    char *path;
    unsigned char *directory;
    uint64_t at, directory_nbytes, count; /* of the directory */
    member_t *members;
};

static uint64_t number(const unsigned char *at, int nbytes)
{
    uint64_t value = 0;
    for (int i = nbytes; i-- > 0;) value = value << 8 | at[i];
    return value;
}

static fy_status_t read_at(const fy_npz_t *file, void *to, uint64_t nbytes, uint64_t offset)
{
    return fyt_read_at(file->path, file->input.fd, to, nbytes, offset);
}

/* ---- the end of the archive ---- */

/* Where the directory is, from the last 22 bytes or from the zip64 record before them. */
static fy_status_t find_directory(fy_npz_t *file)
{
    unsigned char end[FYT_ZIP_END], locator[FYT_ZIP_LOCATOR], end64[FYT_ZIP_END64];
    const uint64_t total = file->input.nbytes;
    if (total == FY__INPUT_UNKNOWN)
        return FYT_FAIL(IO, "%s is a pipe: an .npz file must have a size", file->path);
    if (total < FYT_ZIP_END)
        return FYT_FAIL(CORRUPT_DATA, "%s is no .npz file: it has %" PRIu64 " bytes", file->path,
                        total);
    uint64_t edge = total - FYT_ZIP_END;
    FY_TRY(read_at(file, end, sizeof end, edge));
    if (number(end, 4) != FYT_ZIP_END_MAGIC || number(end + 20, 2))
        return FYT_FAIL(CORRUPT_DATA,
                        "%s is no .npz file: its last %d bytes do not end an archive without "
                        "comment",
                        file->path, FYT_ZIP_END);
    file->count = number(end + 10, 2);
    file->directory_nbytes = number(end + 12, 4);
    file->at = number(end + 16, 4);
    uint64_t disks = number(end + 4, 4), count_here = number(end + 8, 2);
    if (edge >= FYT_ZIP_END64 + FYT_ZIP_LOCATOR) {
        FY_TRY(read_at(file, locator, sizeof locator, edge - FYT_ZIP_LOCATOR));
        if (number(locator, 4) == FYT_ZIP_LOCATOR_MAGIC) {
            edge -= FYT_ZIP_END64 + FYT_ZIP_LOCATOR;
            FY_TRY(read_at(file, end64, sizeof end64, edge));
            if (number(locator + 8, 8) != edge || number(end64, 4) != FYT_ZIP_END64_MAGIC ||
                number(end64 + 4, 8) != FYT_ZIP_END64 - 12)
                return FYT_FAIL(CORRUPT_DATA,
                                "%s: byte %" PRIu64 " does not begin the zip64 end that is "
                                "expected there",
                                file->path, edge);
            disks = number(end64 + 16, 8);
            count_here = number(end64 + 24, 8);
            file->count = number(end64 + 32, 8);
            file->directory_nbytes = number(end64 + 40, 8);
            file->at = number(end64 + 48, 8);
        }
    }
    if (disks || count_here != file->count)
        return FYT_FAIL(UNSUPPORTED, "%s is a part of an archive of several files", file->path);
    if (file->at > edge || edge - file->at != file->directory_nbytes)
        return FYT_FAIL(CORRUPT_DATA,
                        "%s: its directory has %" PRIu64 " bytes from byte %" PRIu64
                        " on; it must end at byte %" PRIu64,
                        file->path, file->directory_nbytes, file->at, edge);
    if (file->directory_nbytes > DIRECTORY_MOST ||
        file->count > file->directory_nbytes / FYT_ZIP_CENTRAL)
        return FYT_FAIL(CORRUPT_DATA,
                        "%s: a directory of %" PRIu64 " bytes for %" PRIu64
                        " arrays; %d bytes an array are needed, and %u in all are read",
                        file->path, file->directory_nbytes, file->count, FYT_ZIP_CENTRAL,
                        DIRECTORY_MOST);
    return FY_STATUS_OK;
}

/* ---- members ---- */

/* Replaces the values that are 2^32 - 1 by those of the zip64 field, in this order; no other field
 * is needed. */
static fy_status_t read_extra(const fy_npz_t *file, size_t index, const unsigned char *extra,
                              size_t nbytes, uint64_t **values, int count)
{
    int k = 0;
    for (size_t at = 0; at < nbytes;) {
        const size_t left = nbytes - at;
        const size_t length = left < 4 ? left : (size_t)number(extra + at + 2, 2);
        if (left < 4 || length > left - 4)
            return FYT_FAIL(CORRUPT_DATA, "%s: the extra field of member %zu has %zu bytes left",
                            file->path, index, left);
        if (number(extra + at, 2) == FYT_ZIP64)
            for (size_t from = at + 4; k < count && from + 8 <= at + 4 + length; k++) {
                if (*values[k] != UINT32_MAX) continue;
                *values[k] = number(extra + from, 8);
                from += 8;
            }
        at += 4 + length;
    }
    return FY_STATUS_OK;
}

static fy_status_t check_method(const fy_npz_t *file, size_t index, const member_t *member)
{
    if (member->flags & ~(FYT_ZIP_UTF8 | LEVEL_FLAGS))
        return FYT_FAIL(UNSUPPORTED,
                        "%s: member %zu has the flags 0x%x (encryption or a data descriptor)",
                        file->path, index, member->flags);
    if (member->method != STORED && member->method != DEFLATED)
        return FYT_FAIL(UNSUPPORTED,
                        "%s: member %zu has compression %d; 0 (stored) and 8 (deflate) are read",
                        file->path, index, member->method);
    if (member->method == STORED ? member->packed != member->nbytes
                                 : member->nbytes / DEFLATE_BEST_RATIO > member->packed)
        return FYT_FAIL(CORRUPT_DATA,
                        "%s: member %zu has %" PRIu64 " bytes that give %" PRIu64
                        ", which is not possible",
                        file->path, index, member->packed, member->nbytes);
    return FY_STATUS_OK;
}

/* The name, ended by a zero where ".npy" begins. */
static fy_status_t take_name(fy_npz_t *file, size_t index, unsigned char *name, member_t *member)
{
    const size_t length = member->name_nbytes;
    member->name = (const char *)name;
    int is_ascii = 1;
    for (size_t i = 0; i < length; i++) is_ascii &= name[i] < 0x80;
    if (length < 5 || memchr(name, 0, length) || memcmp(name + length - 4, ".npy", 4) != 0)
        return FYT_FAIL(UNSUPPORTED, "%s: member %zu, of %zu bytes in its name, is not NAME.npy",
                        file->path, index, length);
    if (!is_ascii &&
        (!(member->flags & FYT_ZIP_UTF8) || !fy__utf8_is_valid((const char *)name, length)))
        return FYT_FAIL(UNSUPPORTED, "%s: the name of member %zu is neither ASCII nor UTF-8",
                        file->path, index);
    name[length - 4] = 0;
    return FY_STATUS_OK;
}

/* The line of the directory at `at`; *out_nbytes of it. */
static fy_status_t read_line(fy_npz_t *file, size_t index, unsigned char *at, uint64_t left,
                             uint64_t *out_nbytes)
{
    member_t *member = &file->members[index];
    if (left < FYT_ZIP_CENTRAL || number(at, 4) != FYT_ZIP_CENTRAL_MAGIC)
        return FYT_FAIL(CORRUPT_DATA,
                        "%s: line %zu of its directory, %" PRIu64 " bytes before its end, is none",
                        file->path, index, left);
    const size_t extra = (size_t)number(at + 30, 2), comment = (size_t)number(at + 32, 2);
    member->flags = (uint16_t)number(at + 8, 2);
    member->method = (uint16_t)number(at + 10, 2);
    member->crc = (uint32_t)number(at + 16, 4);
    member->packed = number(at + 20, 4);
    member->nbytes = number(at + 24, 4);
    member->name_nbytes = (uint32_t)number(at + 28, 2);
    member->offset = number(at + 42, 4);
    *out_nbytes = (uint64_t)FYT_ZIP_CENTRAL + member->name_nbytes + extra + comment;
    if (*out_nbytes > left || number(at + 34, 2))
        return FYT_FAIL(CORRUPT_DATA,
                        "%s: line %zu of its directory has %" PRIu64 " bytes of %" PRIu64
                        ", on disk %d",
                        file->path, index, *out_nbytes, left, (int)number(at + 34, 2));
    uint64_t *values[] = { &member->nbytes, &member->packed, &member->offset };
    unsigned char *name = at + FYT_ZIP_CENTRAL;
    FY_TRY(read_extra(file, index, name + member->name_nbytes, extra, values, 3));
    FY_TRY(check_method(file, index, member));
    return take_name(file, index, name, member);
}

/* The member's own header, at `offset`, agrees with the directory. */
static fy_status_t check_member(fy_npz_t *file, size_t index, uint64_t offset)
{
    unsigned char head[FYT_ZIP_LOCAL], *rest;
    member_t *member = &file->members[index];
    const uint64_t room = file->at - offset;
    if (member->offset != offset || room < FYT_ZIP_LOCAL)
        return FYT_FAIL(CORRUPT_DATA,
                        "%s: member %zu begins at byte %" PRIu64 "; the one before it ends at "
                        "%" PRIu64 ", the directory begins at %" PRIu64,
                        file->path, index, member->offset, offset, file->at);
    FY_TRY(read_at(file, head, sizeof head, offset));
    uint64_t packed = number(head + 18, 4), nbytes = number(head + 22, 4);
    const size_t name = (size_t)number(head + 26, 2), extra = (size_t)number(head + 28, 2);
    member->begin = offset + FYT_ZIP_LOCAL + name + extra;
    if (member->begin > file->at || member->packed > file->at - member->begin)
        return FYT_FAIL(CORRUPT_DATA,
                        "%s: member %zu has %" PRIu64 " bytes from byte %" PRIu64
                        " on; the directory begins at %" PRIu64,
                        file->path, index, member->packed, member->begin, file->at);
    rest = malloc(name + extra + 1);
    if (!rest)
        return FYT_FAIL(OUT_OF_MEMORY, "%s: no host memory for %zu bytes", file->path,
                        name + extra);
    uint64_t *values[] = { &nbytes, &packed };
    fy_status_t status = read_at(file, rest, name + extra, offset + FYT_ZIP_LOCAL);
    if (status == FY_STATUS_OK) status = read_extra(file, index, rest + name, extra, values, 2);
    if (status == FY_STATUS_OK &&
        (number(head, 4) != FYT_ZIP_LOCAL_MAGIC || number(head + 6, 2) != member->flags ||
         number(head + 8, 2) != member->method || number(head + 14, 4) != member->crc ||
         packed != member->packed || nbytes != member->nbytes || name != member->name_nbytes ||
         memcmp(rest, member->name, name - 4) != 0 || memcmp(rest + name - 4, ".npy", 4) != 0))
        status = FYT_FAIL(CORRUPT_DATA,
                          "%s: the header of member %zu, at byte %" PRIu64
                          ", disagrees with the directory",
                          file->path, index, offset);
    free(rest);
    return status;
}

static int by_text(const void *left, const void *right)
{
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

const char *fyt_npz_find_twice(const char **names, size_t count)
{
    if (count) qsort(names, count, sizeof *names, by_text);
    for (size_t i = 1; i < count; i++)
        if (strcmp(names[i - 1], names[i]) == 0) return names[i];
    return NULL;
}

static fy_status_t check_names(const fy_npz_t *file)
{
    const char **names = malloc((file->count + 1) * sizeof *names), *twice = NULL;
    if (!names)
        return FYT_FAIL(OUT_OF_MEMORY, "%s: no host memory for %" PRIu64 " names", file->path,
                        file->count);
    for (size_t i = 0; i < file->count; i++) names[i] = file->members[i].name;
    twice = fyt_npz_find_twice(names, file->count);
    free(names);
    if (!twice) return FY_STATUS_OK;
    return FYT_FAIL(CORRUPT_DATA, "%s: two of its %" PRIu64 " members are '%.80s'", file->path,
                    file->count, twice);
}

static fy_status_t read_directory(fy_npz_t *file)
{
    uint64_t at = 0, nbytes = 0, offset = 0;
    FY_TRY(find_directory(file));
    file->directory = malloc(file->directory_nbytes + 1);
    file->members = calloc(file->count + 1, sizeof *file->members);
    if (!file->directory || !file->members)
        return FYT_FAIL(OUT_OF_MEMORY, "%s: no host memory for a directory of %" PRIu64 " bytes",
                        file->path, file->directory_nbytes);
    FY_TRY(read_at(file, file->directory, file->directory_nbytes, file->at));
    for (size_t i = 0; i < file->count; i++, at += nbytes) {
        FY_TRY(read_line(file, i, file->directory + at, file->directory_nbytes - at, &nbytes));
        FY_TRY(check_member(file, i, offset));
        offset = file->members[i].begin + file->members[i].packed;
    }
    if (at != file->directory_nbytes || offset != file->at)
        return FYT_FAIL(CORRUPT_DATA,
                        "%s: %" PRIu64 " bytes of the directory and %" PRIu64
                        " before it belong to no array",
                        file->path, file->directory_nbytes - at, file->at - offset);
    return check_names(file);
}

/* ---- the interface ---- */

fy_status_t fy_npz_open(const char *path, fy_npz_t **out_file)
{
    FY_TRY(FYT_CLEAR_OUT("npz_open", out_file));
    if (!path) return FYT_FAIL(INVALID_ARGUMENT, "npz_open: path is NULL");
    fy_npz_t *file = calloc(1, sizeof *file);
    char *own = file ? strdup(path) : NULL;
    if (!own) {
        free(file);
        return FYT_FAIL(OUT_OF_MEMORY, "npz_open: no host memory");
    }
    file->path = own;
    fy_status_t status = FY_STATUS_OK;
    if (fy__input_open(&file->input, own)) {
        status = FYT_FAIL(IO, "%s", file->input.problem);
        free(own);
        free(file);
        return status;
    }
    status = read_directory(file);
    if (status == FY_STATUS_OK)
        *out_file = file;
    else
        fy_npz_close(file);
    return status;
}

void fy_npz_close(fy_npz_t *file)
{
    if (!file) return;
    fy__input_close(&file->input);
    free(file->members);
    free(file->directory);
    free(file->path);
    free(file);
}

size_t fy_npz_count(const fy_npz_t *file) { return file ? (size_t)file->count : 0; }

const char *fy_npz_name(const fy_npz_t *file, size_t index)
{
    return index < fy_npz_count(file) ? file->members[index].name : NULL;
}

/* Exactly all of `to` from exactly all of `from`. */
static int unpack(const unsigned char *from, uint64_t packed, unsigned char *to, uint64_t nbytes)
{
    enum { PIECE = 1 << 30 };
    z_stream z = { 0 };
    int code = inflateInit2(&z, -MAX_WBITS);
    if (code != Z_OK) return code;
    unsigned char extra; /* one byte too many is seen */
    uint64_t read = 0, written = 0;
    do {
        const uint64_t in = packed - read < PIECE ? packed - read : PIECE,
                       out = nbytes - written < PIECE ? nbytes - written : PIECE;
        z.next_in = (Bytef *)(uintptr_t)(from + read);
        z.avail_in = (uInt)in;
        z.next_out = out ? to + written : &extra;
        z.avail_out = out ? (uInt)out : 1;
        code = inflate(&z, Z_NO_FLUSH);
        read += in - z.avail_in;
        if (!out && !z.avail_out) code = Z_DATA_ERROR;
        if (out) written += out - z.avail_out;
    } while (code == Z_OK);
    inflateEnd(&z);
    if (code == Z_MEM_ERROR) return code;
    return code == Z_STREAM_END && read == packed && written == nbytes ? Z_OK : Z_DATA_ERROR;
}

static fy_status_t read_bytes(const fy_npz_t *file, const member_t *member, unsigned char *bytes)
{
    if (member->method == STORED) return read_at(file, bytes, member->nbytes, member->begin);
    unsigned char *packed = malloc(member->packed + 1);
    if (!packed)
        return FYT_FAIL(OUT_OF_MEMORY, "%s: no host memory for %" PRIu64 " bytes", file->path,
                        member->packed);
    fy_status_t status = read_at(file, packed, member->packed, member->begin);
    if (status == FY_STATUS_OK) {
        const int code = unpack(packed, member->packed, bytes, member->nbytes);
        if (code == Z_MEM_ERROR)
            status = FYT_FAIL(OUT_OF_MEMORY, "%s: no host memory to unpack '%.80s'", file->path,
                              member->name);
        else if (code != Z_OK)
            status = FYT_FAIL(CORRUPT_DATA,
                              "%s: '%.80s': its %" PRIu64 " bytes do not unpack to %" PRIu64,
                              file->path, member->name, member->packed, member->nbytes);
    }
    free(packed);
    return status;
}

fy_status_t fy_npz_read(const fy_npz_t *file, size_t index, fy_tensor_t **out_tensor)
{
    char what[512];
    FY_TRY(FYT_CLEAR_OUT("npz_read", out_tensor));
    if (index >= fy_npz_count(file))
        return FYT_FAIL(INVALID_ARGUMENT, "npz_read: array %zu of %zu", index, fy_npz_count(file));
    const member_t *member = &file->members[index];
    unsigned char *bytes = malloc(member->nbytes + 1);
    if (!bytes)
        return FYT_FAIL(OUT_OF_MEMORY, "%s: no host memory for %" PRIu64 " bytes", file->path,
                        member->nbytes);
    fy_status_t status = read_bytes(file, member, bytes);
    const uint32_t crc = status == FY_STATUS_OK
                             ? (uint32_t)crc32_z(0, bytes, (z_size_t)member->nbytes)
                             : member->crc;
    if (crc != member->crc)
        status = FYT_FAIL(CORRUPT_DATA, "%s: '%.80s' has the CRC-32 0x%08x, not 0x%08x", file->path,
                          member->name, crc, member->crc);
    snprintf(what, sizeof what, "%.400s: '%.80s'", file->path, member->name);
    if (status == FY_STATUS_OK)
        status = fyt_npy_read_memory(what, bytes, member->nbytes, out_tensor);
    free(bytes);
    return status;
}
