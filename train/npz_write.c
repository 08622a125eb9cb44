/* Writes .npz archives with the bytes of numpy.savez: members are stored, dated 1980-01-01, and
 * have a zip64 field, as Python's zipfile does with force_zip64. Not here: reading (npz.c), the
 * arrays (npy.c). See include/ferry/train/npz.h. */
#include "train/npy.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "runtime/base/json.h"
#include "train/fail.h"

enum { NAME_MOST = 65531, ENTRIES_MOST = 65535, VERSION_ZIP64 = 45, UNIX = 3, DATE_1980 = 33 };
/* zipfile's limits for its older, shorter fields */
#define ZIP64_LIMIT 0x7fffffffu

typedef struct member {
    uint64_t offset, nbytes;
    uint32_t crc, name_nbytes; /* with ".npy" */
    uint16_t flags;
} member_t;

static char *put(char *at, uint64_t value, int nbytes)
{
    for (int i = 0; i < nbytes; i++) *at++ = (char)(value >> 8 * i);
    return at;
}

/* Version to extract, flags, stored, time 0, date: the same in both headers. */
static char *put_common(char *at, const member_t *member)
{
    at = put(at, VERSION_ZIP64, 2);
    at = put(at, member->flags, 2);
    at = put(at, 0, 4); /* stored; midnight */
    at = put(at, DATE_1980, 2);
    return put(at, member->crc, 4);
}

static fy_status_t write_name(fy__replace_t *file, const char *name)
{
    FY_TRY(fyt_replace_write(file, name, strlen(name)));
    return fyt_replace_write(file, ".npy", 4);
}

static fy_status_t write_member(fy__replace_t *file, const fy_npz_entry_t *entry, member_t *member)
{
    char head[FYT_ZIP_LOCAL], extra[20], *at = head;
    fyt_npy_bytes_t bytes;
    FY_TRY(fyt_npy_prepare("npz_write", entry->tensor, &bytes));
    uLong crc = crc32_z(0, (const Bytef *)bytes.header, bytes.header_nbytes);
    crc = crc32_z(crc, bytes.data ? bytes.data : (const void *)"", (z_size_t)bytes.nbytes);
    member->crc = (uint32_t)crc;
    member->nbytes = bytes.header_nbytes + bytes.nbytes;
    at = put(at, FYT_ZIP_LOCAL_MAGIC, 4);
    at = put_common(at, member);
    at = put(at, UINT64_MAX, 8); /* both sizes are in the zip64 field */
    at = put(at, member->name_nbytes, 2);
    put(at, sizeof extra, 2);
    at = put(extra, FYT_ZIP64, 2);
    at = put(at, 16, 2);
    at = put(at, member->nbytes, 8);
    put(at, member->nbytes, 8);
    fy_status_t status = fyt_replace_write(file, head, sizeof head);
    if (status == FY_STATUS_OK) status = write_name(file, entry->name);
    if (status == FY_STATUS_OK) status = fyt_replace_write(file, extra, sizeof extra);
    if (status == FY_STATUS_OK) status = fyt_replace_write(file, bytes.header, bytes.header_nbytes);
    if (status == FY_STATUS_OK) status = fyt_replace_write(file, bytes.data, (size_t)bytes.nbytes);
    fy_tensor_destroy(bytes.own);
    return status;
}

/* One line of the directory; *out_nbytes of it. */
static fy_status_t write_central(fy__replace_t *file, const char *name, const member_t *member,
                                 uint64_t *out_nbytes)
{
    char head[FYT_ZIP_CENTRAL], extra[4 + 3 * 8], *at = head, *end = extra + 4;
    const int is_large = member->nbytes > ZIP64_LIMIT, is_far = member->offset > ZIP64_LIMIT;
    if (is_large) end = put(put(end, member->nbytes, 8), member->nbytes, 8);
    if (is_far) end = put(end, member->offset, 8);
    const size_t extra_nbytes = is_large || is_far ? (size_t)(end - extra) : 0;
    put(put(extra, FYT_ZIP64, 2), (uint64_t)(end - extra - 4), 2);
    at = put(at, FYT_ZIP_CENTRAL_MAGIC, 4);
    at = put(at, VERSION_ZIP64 | UNIX << 8, 2);
    at = put_common(at, member);
    at = put(at, is_large ? UINT32_MAX : member->nbytes, 4);
    at = put(at, is_large ? UINT32_MAX : member->nbytes, 4);
    at = put(at, member->name_nbytes, 2);
    at = put(at, extra_nbytes, 2);
    at = put(at, 0, 6);           /* no comment; disk 0; internal attributes */
    at = put(at, 0600u << 16, 4); /* the file's mode */
    put(at, is_far ? UINT32_MAX : member->offset, 4);
    *out_nbytes = sizeof head + member->name_nbytes + extra_nbytes;
    FY_TRY(fyt_replace_write(file, head, sizeof head));
    FY_TRY(write_name(file, name));
    return fyt_replace_write(file, extra, extra_nbytes);
}

static fy_status_t write_end(fy__replace_t *file, uint64_t count, uint64_t offset, uint64_t nbytes)
{
    char end64[FYT_ZIP_END64 + FYT_ZIP_LOCATOR], end[FYT_ZIP_END], *at = end64;
    if (offset > ZIP64_LIMIT || nbytes > ZIP64_LIMIT) {
        at = put(at, FYT_ZIP_END64_MAGIC, 4);
        at = put(at, FYT_ZIP_END64 - 12, 8);
        at = put(put(at, VERSION_ZIP64, 2), VERSION_ZIP64, 2);
        at = put(at, 0, 8); /* disks */
        at = put(put(at, count, 8), count, 8);
        at = put(put(at, nbytes, 8), offset, 8);
        at = put(put(at, FYT_ZIP_LOCATOR_MAGIC, 4), 0, 4);
        put(put(at, offset + nbytes, 8), 1, 4);
        FY_TRY(fyt_replace_write(file, end64, sizeof end64));
    }
    at = put(put(end, FYT_ZIP_END_MAGIC, 4), 0, 4);
    at = put(put(at, count, 2), count, 2);
    at = put(at, nbytes < UINT32_MAX ? nbytes : UINT32_MAX, 4);
    at = put(at, offset < UINT32_MAX ? offset : UINT32_MAX, 4);
    put(at, 0, 2);
    return fyt_replace_write(file, end, sizeof end);
}

static fy_status_t write_all(fy__replace_t *file, size_t count, const fy_npz_entry_t *entries,
                             member_t *members)
{
    uint64_t offset = 0, directory = 0, nbytes;
    for (size_t i = 0; i < count; i++) {
        members[i].offset = offset;
        FY_TRY(write_member(file, &entries[i], &members[i]));
        offset += FYT_ZIP_LOCAL + members[i].name_nbytes + 20 + members[i].nbytes;
    }
    for (size_t i = 0; i < count; i++, directory += nbytes)
        FY_TRY(write_central(file, entries[i].name, &members[i], &nbytes));
    return write_end(file, count, offset, directory);
}

static fy_status_t check(size_t count, const fy_npz_entry_t *entries, member_t *members)
{
    for (size_t i = 0; i < count; i++) {
        const char *name = entries[i].name;
        if (!entries[i].tensor || !name)
            return FYT_FAIL(INVALID_ARGUMENT, "npz_write: %s of entry %zu is NULL",
                            name ? "tensor" : "name", i);
        const size_t length = strlen(name);
        if (!length || length > NAME_MOST)
            return FYT_FAIL(INVALID_ARGUMENT,
                            "npz_write: the name of entry %zu has %zu bytes; 1 to %d are possible",
                            i, length, NAME_MOST);
        if (!fy__utf8_is_valid(name, length))
            return FYT_FAIL(INVALID_ARGUMENT, "npz_write: the name of entry %zu is not UTF-8", i);
        members[i].name_nbytes = (uint32_t)length + 4;
        for (const char *c = name; *c; c++)
            if ((unsigned char)*c >= 0x80) members[i].flags = FYT_ZIP_UTF8;
    }
    const char **names = malloc((count + 1) * sizeof *names), *twice = NULL;
    if (!names) return FYT_FAIL(OUT_OF_MEMORY, "npz_write: no host memory for %zu names", count);
    for (size_t i = 0; i < count; i++) names[i] = entries[i].name;
    twice = fyt_npz_find_twice(names, count);
    free(names);
    if (!twice) return FY_STATUS_OK;
    return FYT_FAIL(INVALID_ARGUMENT, "npz_write: two of the %zu entries are '%.80s'", count,
                    twice);
}

fy_status_t fy_npz_write(const char *path, size_t count, const fy_npz_entry_t *entries)
{
    fy__replace_t file;
    if (!path || (count && !entries))
        return FYT_FAIL(INVALID_ARGUMENT, "npz_write: %s is NULL", path ? "entries" : "path");
    if (count > ENTRIES_MOST)
        return FYT_FAIL(INVALID_ARGUMENT, "npz_write: %zu arrays; at most %d are possible", count,
                        ENTRIES_MOST);
    member_t *members = calloc(count ? count : 1, sizeof *members);
    if (!members) return FYT_FAIL(OUT_OF_MEMORY, "npz_write: no host memory for %zu names", count);
    fy_status_t status = check(count, entries, members);
    if (status == FY_STATUS_OK) status = fyt_replace_begin(&file, path);
    if (status == FY_STATUS_OK) {
        status = write_all(&file, count, entries, members);
        if (status == FY_STATUS_OK)
            status = fyt_replace_commit(&file);
        else
            fy__replace_abort(&file);
    }
    free(members);
    return status;
}
