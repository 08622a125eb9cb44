/* A safetensors header: its grammar, and that shapes, offsets and the file's length agree. The
 * grammar is {"__metadata__": {text: text} or null, name: {"dtype": text, "shape": [whole...],
 * "data_offsets": [whole, whole]}, ...} with each key once; everything else is refused, so the text
 * bounds depth and memory. Not here: pieces of JSON (runtime/base/json.c), the file
 * (safetensors.c), writing (safetensors_write.c). */
#include "train/safetensors.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/c_locale.h"
#include "runtime/base/json.h"
#include "train/fail.h"

/* In the format's own order (the reference writer sorts by it, last first). */
static const struct {
    const char *text;
    int nbits; /* of an element */
    fy_dtype_t dtype;
} dtypes[] = {
    { "BOOL", 8, FY_DTYPE_BOOL },       { "F4", 4, FYT_NO_DTYPE },
    { "F6_E2M3", 6, FYT_NO_DTYPE },     { "F6_E3M2", 6, FYT_NO_DTYPE },
    { "U8", 8, FY_DTYPE_U8 },           { "I8", 8, FYT_NO_DTYPE },
    { "F8_E5M2", 8, FYT_NO_DTYPE },     { "F8_E4M3", 8, FYT_NO_DTYPE },
    { "F8_E8M0", 8, FYT_NO_DTYPE },     { "F8_E4M3FNUZ", 8, FYT_NO_DTYPE },
    { "F8_E5M2FNUZ", 8, FYT_NO_DTYPE }, { "I16", 16, FYT_NO_DTYPE },
    { "U16", 16, FYT_NO_DTYPE },        { "F16", 16, FY_DTYPE_F16 },
    { "BF16", 16, FY_DTYPE_BF16 },      { "I32", 32, FY_DTYPE_I32 },
    { "U32", 32, FYT_NO_DTYPE },        { "F32", 32, FY_DTYPE_F32 },
    { "C64", 64, FYT_NO_DTYPE },        { "F64", 64, FY_DTYPE_F64 },
    { "I64", 64, FY_DTYPE_I64 },        { "U64", 64, FYT_NO_DTYPE },
};
enum { NDTYPES = sizeof dtypes / sizeof *dtypes };

int fyt_dtype_order(fy_dtype_t dtype)
{
    for (int i = 0; i < NDTYPES; i++)
        if (dtypes[i].dtype == dtype) return i;
    return -1;
}

const char *fyt_dtype_text(fy_dtype_t dtype)
{
    const int order = dtype == FYT_NO_DTYPE ? -1 : fyt_dtype_order(dtype);
    return order < 0 ? "?" : dtypes[order].text;
}

typedef struct reader {
    const char *path;
    fy__json_t json;
    fyt_header_t *header;
    size_t tensor_room, pair_room;
    int has_metadata;
} reader_t;

/* ---- failing ---- */

typedef struct shown {
    char text[52];
} shown_t;

/* A name from a file, made safe for an error text: short, in one line. */
static shown_t show(const char *name)
{
    shown_t s;
    size_t n = strlen(name), most = sizeof s.text - 4;
    const int is_cut = n > most;
    if (is_cut)
        for (n = most; n && ((unsigned char)name[n] & 0xC0) == 0x80;) n--;
    for (size_t i = 0; i < n; i++)
        s.text[i] = (unsigned char)name[i] < ' ' || name[i] == 127 ? '?' : name[i];
    memcpy(s.text + n, is_cut ? "..." : "", is_cut ? 4 : 1);
    return s;
}

static fy_status_t corrupt(const reader_t *r, const char *format, ...) FY_PRINTF(2, 3);
static fy_status_t corrupt(const reader_t *r, const char *format, ...)
{
    char what[256];
    va_list args;
    va_start(args, format);
    fy__vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return FYT_FAIL(CORRUPT_DATA, "%s is not a whole safetensors file: byte %zu of its header: %s",
                    r->path, (size_t)(r->json.at - r->json.begin), what);
}

static fy_status_t syntax(const reader_t *r) { return corrupt(r, "%s", r->json.wrong); }
#define TAKE(expr)                     \
    do {                               \
        if (!(expr)) return syntax(r); \
    } while (0)

/* Room for one more; doubles, so that it stays within a small multiple of the text. */
static fy_status_t grow(const reader_t *r, void **array, size_t count, size_t *room, size_t size)
{
    if (count < *room) return FY_STATUS_OK;
    const size_t more = *room ? *room * 2 : 8;
    void *larger = realloc(*array, more * size);
    if (!larger)
        return FYT_FAIL(OUT_OF_MEMORY,
                        "no host memory for the %zu tensors or more that the header of %s names",
                        count + 1, r->path);
    *array = larger;
    *room = more;
    return FY_STATUS_OK;
}

/* ---- the grammar ---- */

static fy_status_t read_dtype(reader_t *r, fy_safetensors_info_t *info)
{
    char *text;
    TAKE(fy__json_string(&r->json, &text));
    for (int i = 0; i < NDTYPES; i++) {
        if (strcmp(dtypes[i].text, text) != 0) continue;
        info->dtype = dtypes[i].dtype;
        info->file_dtype = dtypes[i].text;
        info->is_supported = info->dtype != FYT_NO_DTYPE;
        return FY_STATUS_OK;
    }
    return corrupt(r, "tensor '%s' is of an unknown dtype, '%s'", show(info->name).text,
                   show(text).text);
}

/* After the first byte of a list or an object. 0: it is empty, and `closer` was taken. */
static int has_first(reader_t *r, char closer)
{
    if (fy__json_peek(&r->json) != closer) return 1;
    r->json.at++;
    return 0;
}

static fy_status_t read_shape(reader_t *r, fy_safetensors_info_t *info)
{
    TAKE(fy__json_take(&r->json, '['));
    int more = has_first(r, ']');
    while (more) {
        uint64_t dim;
        TAKE(fy__json_whole(&r->json, &dim));
        if (dim > INT64_MAX)
            return corrupt(r, "a dim of tensor '%s' is past 2^63 - 1", show(info->name).text);
        if (info->rank == FY_MAX_RANK)
            return FYT_FAIL(UNSUPPORTED, "%s: tensor '%s' has more than %d axes, Ferry's most",
                            r->path, show(info->name).text, FY_MAX_RANK);
        info->dims[info->rank++] = (int64_t)dim;
        TAKE(fy__json_more(&r->json, ']', &more));
    }
    return FY_STATUS_OK;
}

/* Until the shape is known, nbytes is the length between the offsets. */
static fy_status_t read_offsets(reader_t *r, fy_safetensors_info_t *info)
{
    uint64_t end;
    int more;
    TAKE(fy__json_take(&r->json, '['));
    TAKE(fy__json_whole(&r->json, &info->offset));
    TAKE(fy__json_more(&r->json, ']', &more));
    if (!more)
        return corrupt(r, "data_offsets of tensor '%s' has one number, not two",
                       show(info->name).text);
    TAKE(fy__json_whole(&r->json, &end));
    TAKE(fy__json_more(&r->json, ']', &more));
    if (more)
        return corrupt(r, "data_offsets of tensor '%s' has more than two numbers",
                       show(info->name).text);
    if (info->offset > end)
        return corrupt(r, "tensor '%s' ends at %llu, before it begins, at %llu",
                       show(info->name).text, (unsigned long long)end,
                       (unsigned long long)info->offset);
    info->nbytes = end - info->offset;
    return FY_STATUS_OK;
}

static int nbits_of(const char *file_dtype)
{
    for (int i = 0; i < NDTYPES; i++)
        if (dtypes[i].text == file_dtype) return dtypes[i].nbits;
    return 0;
}

static fy_status_t check_size(const reader_t *r, const fy_safetensors_info_t *info)
{
    /* as if no dim were 0: no tensor can have such a shape, and fy_empty refuses it too */
    uint64_t nbits = (uint64_t)nbits_of(info->file_dtype);
    bool is_empty = false;
    for (int i = 0; i < info->rank; i++) {
        if (info->dims[i] == 0)
            is_empty = true;
        else if (__builtin_mul_overflow(nbits, (uint64_t)info->dims[i], &nbits) ||
                 nbits / 8 > INT64_MAX / 8)
            return corrupt(r, "the size of tensor '%s' overflows", show(info->name).text);
    }
    if (is_empty) nbits = 0;
    if (nbits % 8)
        return corrupt(r, "tensor '%s' of dtype %s has %llu bits, which are no whole bytes",
                       show(info->name).text, info->file_dtype, (unsigned long long)nbits);
    const uint64_t nbytes = nbits / 8;
    if (nbytes != info->nbytes)
        return corrupt(
            r, "tensor '%s' has %llu bytes by its shape and dtype, and %llu by its offsets",
            show(info->name).text, (unsigned long long)nbytes, (unsigned long long)info->nbytes);
    return FY_STATUS_OK;
}

static fy_status_t read_tensor(reader_t *r, char *name)
{
    static const struct {
        const char *key;
        fy_status_t (*read)(reader_t *r, fy_safetensors_info_t *info);
    } keys[] = { { "dtype", read_dtype },
                 { "shape", read_shape },
                 { "data_offsets", read_offsets } };
    enum { NKEYS = sizeof keys / sizeof *keys };
    fyt_header_t *header = r->header;
    FY_TRY(grow(r, (void **)&header->tensors, header->count, &r->tensor_room,
                sizeof *header->tensors));
    fy_safetensors_info_t *info = &header->tensors[header->count];
    *info = (fy_safetensors_info_t){ .struct_size = sizeof *info, .name = name };

    int seen = 0, more = 1;
    TAKE(fy__json_take(&r->json, '{'));
    while (more) {
        char *key;
        int k = 0;
        TAKE(fy__json_string(&r->json, &key));
        while (k < NKEYS && strcmp(keys[k].key, key) != 0) k++;
        if (k == NKEYS)
            return corrupt(r, "tensor '%s' has an unknown key, '%s'", show(name).text,
                           show(key).text);
        if (seen & 1 << k) return corrupt(r, "tensor '%s' has '%s' twice", show(name).text, key);
        seen |= 1 << k;
        TAKE(fy__json_take(&r->json, ':'));
        FY_TRY(keys[k].read(r, info));
        TAKE(fy__json_more(&r->json, '}', &more));
    }
    for (int k = 0; k < NKEYS; k++)
        if (!(seen & 1 << k))
            return corrupt(r, "tensor '%s' has no '%s'", show(name).text, keys[k].key);
    FY_TRY(check_size(r, info));
    header->count++;
    return FY_STATUS_OK;
}

static fy_status_t read_metadata(reader_t *r)
{
    fyt_header_t *header = r->header;
    if (r->has_metadata) return corrupt(r, "'__metadata__' appears twice");
    r->has_metadata = 1;
    if (fy__json_word(&r->json, "null")) return FY_STATUS_OK; /* as the reference reader */
    TAKE(fy__json_take(&r->json, '{'));
    int more = has_first(r, '}');
    while (more) {
        char *key, *value;
        FY_TRY(
            grow(r, (void **)&header->pairs, header->npairs, &r->pair_room, sizeof *header->pairs));
        TAKE(fy__json_string(&r->json, &key));
        TAKE(fy__json_take(&r->json, ':'));
        TAKE(fy__json_string(&r->json, &value));
        header->pairs[header->npairs++] = (fy_safetensors_pair_t){ key, value };
        TAKE(fy__json_more(&r->json, '}', &more));
    }
    return FY_STATUS_OK;
}

static fy_status_t read_header(reader_t *r)
{
    if (*r->json.at != '{') return corrupt(r, "a header begins with '{'");
    r->json.at++;
    int more = has_first(r, '}');
    while (more) {
        char *name;
        TAKE(fy__json_string(&r->json, &name));
        TAKE(fy__json_take(&r->json, ':'));
        FY_TRY(strcmp(name, "__metadata__") == 0 ? read_metadata(r) : read_tensor(r, name));
        TAKE(fy__json_more(&r->json, '}', &more));
    }
    (void)fy__json_peek(&r->json);
    return r->json.at == r->json.end ? FY_STATUS_OK
                                     : corrupt(r, "something behind the header's end");
}

/* ---- conditions of the whole header ---- */

static int compare_data(const void *a, const void *b)
{
    const fy_safetensors_info_t *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    /* empty ones first: the others begin where they end */
    if (x->nbytes != y->nbytes) return x->nbytes < y->nbytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int compare_pairs(const void *a, const void *b)
{
    return strcmp(((const fy_safetensors_pair_t *)a)->key, ((const fy_safetensors_pair_t *)b)->key);
}

const char *fyt_pairs_sort(size_t count, fy_safetensors_pair_t *pairs)
{
    if (count) qsort(pairs, count, sizeof *pairs, compare_pairs);
    for (size_t i = 1; i < count; i++)
        if (strcmp(pairs[i - 1].key, pairs[i].key) == 0) return pairs[i].key;
    return NULL;
}

static int compare_names(const void *a, const void *b, void *tensors)
{
    const fy_safetensors_info_t *all = tensors;
    return strcmp(all[*(const size_t *)a].name, all[*(const size_t *)b].name);
}

static fy_status_t check_names(reader_t *r)
{
    fyt_header_t *h = r->header;
    h->by_name = malloc((h->count ? h->count : 1) * sizeof *h->by_name);
    if (!h->by_name)
        return FYT_FAIL(OUT_OF_MEMORY, "no host memory for the names of %zu tensors", h->count);
    for (size_t i = 0; i < h->count; i++) h->by_name[i] = i;
    if (h->count) qsort_r(h->by_name, h->count, sizeof *h->by_name, compare_names, h->tensors);
    for (size_t i = 1; i < h->count; i++)
        if (strcmp(h->tensors[h->by_name[i - 1]].name, h->tensors[h->by_name[i]].name) == 0)
            return corrupt(r, "two tensors are called '%s'",
                           show(h->tensors[h->by_name[i]].name).text);
    const char *twice = fyt_pairs_sort(h->npairs, h->pairs);
    return twice ? corrupt(r, "__metadata__ has '%s' twice", show(twice).text) : FY_STATUS_OK;
}

static fy_status_t check_cover(reader_t *r, uint64_t data_nbytes)
{
    fyt_header_t *h = r->header;
    uint64_t end = 0;
    if (h->count) qsort(h->tensors, h->count, sizeof *h->tensors, compare_data);
    for (size_t i = 0; i < h->count; i++) {
        const fy_safetensors_info_t *t = &h->tensors[i];
        if (t->offset != end)
            return corrupt(r,
                           "tensor '%s' begins at byte %llu of the data, and the tensors "
                           "before it end at %llu: %s",
                           show(t->name).text, (unsigned long long)t->offset,
                           (unsigned long long)end, t->offset < end ? "they overlap" : "a hole");
        /* each is at most 2^63 - 1, and begins at a sum that has not overflowed: checked below */
        end += t->nbytes;
        if (end > data_nbytes)
            return corrupt(r, "tensor '%s' ends at byte %llu of the data, and the file has %llu",
                           show(t->name).text, (unsigned long long)end,
                           (unsigned long long)data_nbytes);
    }
    if (end != data_nbytes)
        return corrupt(r, "%llu bytes behind the last tensor",
                       (unsigned long long)(data_nbytes - end));
    return FY_STATUS_OK;
}

fy_status_t fyt_header_read(const char *path, char *text, size_t nbytes, uint64_t data_nbytes,
                            fyt_header_t *out_header)
{
    *out_header = (fyt_header_t){ .text = text };
    text[nbytes] = 0;
    reader_t r = { .path = path,
                   .json = { text, text, text + nbytes, NULL },
                   .header = out_header };
    fy_status_t status = fy__utf8_is_valid(text, nbytes)
                             ? read_header(&r)
                             : corrupt(&r, "the header is not valid UTF-8");
    if (status == FY_STATUS_OK) status = check_cover(&r, data_nbytes);
    if (status == FY_STATUS_OK) status = check_names(&r);
    if (status != FY_STATUS_OK) fyt_header_free(out_header);
    return status;
}

void fyt_header_free(fyt_header_t *header)
{
    free(header->pairs);
    free(header->by_name);
    free(header->tensors);
    free(header->text);
    *header = (fyt_header_t){ 0 };
}
