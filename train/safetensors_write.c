/* Writing safetensors files: byte for byte like the reference writer (its order, its JSON without
 * spaces, its padding), to a temporary file that is renamed to the path. Every error of the tensors
 * is detected before the file is begun.
 * Not here: reading (safetensors.c), how a file is replaced (runtime/base/replace.c). */
#include "train/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ferry/device.h>
#include <ferry/ops.h>

#include "runtime/base/json.h"
#include "train/fail.h"
#include "train/npy.h"

/* An entry, ready to be written. */
typedef struct item {
    const char *name;
    fy_tensor_info_t info;
    fy_tensor_t *dense; /* a dense copy if the entry is not contiguous, else NULL */
    const void *data;
} item_t;

/* A text that grows. After a failed allocation it does not change and reports the failure. */
typedef struct text {
    char *bytes;
    size_t used, room;
    int is_out_of_memory;
} text_t;

/* ---- the header ---- */

static void put(text_t *text, const char *bytes, size_t n)
{
    if (!n || text->is_out_of_memory) return;
    if (text->used + n > text->room) {
        const size_t room = (text->used + n) * 2;
        char *larger = realloc(text->bytes, room);
        if (!larger) {
            text->is_out_of_memory = 1;
            return;
        }
        text->bytes = larger;
        text->room = room;
    }
    memcpy(text->bytes + text->used, bytes, n);
    text->used += n;
}

static void put_text(text_t *text, const char *bytes) { put(text, bytes, strlen(bytes)); }

static void put_number(text_t *text, uint64_t number)
{
    char digits[24];
    put(text, digits, (size_t)snprintf(digits, sizeof digits, "%llu", (unsigned long long)number));
}

/* As the reference's serializer escapes: short forms where there are any, other control characters
 * as \u00xx, nothing else. */
static void put_quoted(text_t *text, const char *s)
{
    static const char from[] = "\"\\\b\f\n\r\t", into[] = "\"\\bfnrt";
    put_text(text, "\"");
    for (; *s; s++) {
        const char *escape = strchr(from, *s);
        char escaped[8];
        if (escape)
            put(text, (char[]){ '\\', into[escape - from] }, 2);
        else if ((unsigned char)*s < ' ')
            put(text, escaped,
                (size_t)snprintf(escaped, sizeof escaped, "\\u%04x", (unsigned)(unsigned char)*s));
        else
            put(text, s, 1);
    }
    put_text(text, "\"");
}

static void put_item(text_t *text, const item_t *item, uint64_t begin)
{
    put_quoted(text, item->name);
    put_text(text, ":{\"dtype\":\"");
    put_text(text, fyt_dtype_text(item->info.dtype));
    put_text(text, "\",\"shape\":[");
    for (int i = 0; i < item->info.rank; i++) {
        if (i) put_text(text, ",");
        put_number(text, (uint64_t)item->info.dims[i]);
    }
    put_text(text, "],\"data_offsets\":[");
    put_number(text, begin);
    put_text(text, ",");
    put_number(text, begin + item->info.nbytes);
    put_text(text, "]}");
}

static fy_status_t make_header(const char *path, size_t count, const item_t *items, size_t npairs,
                               const fy_safetensors_pair_t *pairs, text_t *text)
{
    uint64_t begin = 0;
    put_text(text, "{");
    if (npairs) put_text(text, "\"__metadata__\":{");
    for (size_t i = 0; i < npairs; i++) {
        if (i) put_text(text, ",");
        put_quoted(text, pairs[i].key);
        put_text(text, ":");
        put_quoted(text, pairs[i].value);
    }
    if (npairs) put_text(text, count ? "}," : "}");
    for (size_t i = 0; i < count; i++) {
        if (i) put_text(text, ",");
        put_item(text, &items[i], begin);
        begin += items[i].info.nbytes;
    }
    put_text(text, "}");
    while (text->used % 8 && !text->is_out_of_memory) put_text(text, " ");
    if (text->is_out_of_memory)
        return FYT_FAIL(OUT_OF_MEMORY, "safetensors_write: no host memory for the header of %s",
                        path);
    if (text->used > FYT_HEADER_MOST_NBYTES)
        return FYT_FAIL(INVALID_ARGUMENT,
                        "safetensors_write: the header of %s would have %zu bytes; no reader takes "
                        "more than %u",
                        path, text->used, FYT_HEADER_MOST_NBYTES);
    return FY_STATUS_OK;
}

/* ---- checking ---- */

static int compare_items(const void *a, const void *b)
{
    const item_t *x = a, *y = b;
    const int order = fyt_dtype_order(y->info.dtype) - fyt_dtype_order(x->info.dtype);
    return order ? order : strcmp(x->name, y->name);
}

static int compare_item_names(const void *a, const void *b)
{
    return strcmp(((const item_t *)a)->name, ((const item_t *)b)->name);
}

static fy_status_t check_pairs(size_t npairs, fy_safetensors_pair_t *pairs)
{
    for (size_t i = 0; i < npairs; i++) {
        const char *key = pairs[i].key, *value = pairs[i].value;
        if (!key || !value || !fy__utf8_is_valid(key, strlen(key)) ||
            !fy__utf8_is_valid(value, strlen(value)))
            return FYT_FAIL(INVALID_ARGUMENT,
                            "safetensors_write: key or value of pair %zu is NULL or not UTF-8", i);
    }
    const char *twice = fyt_pairs_sort(npairs, pairs);
    if (!twice) return FY_STATUS_OK;
    return FYT_FAIL(INVALID_ARGUMENT, "safetensors_write: two pairs have the key '%.64s'", twice);
}

/* After it, item->data is dense, and stays as long as the entry and item->dense do. */
static fy_status_t take_entry(size_t index, const fy_safetensors_entry_t *entry, item_t *item)
{
    const char *name = entry->name;
    if (!name || !entry->tensor)
        return FYT_FAIL(INVALID_ARGUMENT, "safetensors_write: entry %zu has no %s", index,
                        name ? "tensor" : "name");
    if (strcmp(name, "__metadata__") == 0)
        return FYT_FAIL(INVALID_ARGUMENT,
                        "safetensors_write: the name of entry %zu is '__metadata__', which is "
                        "taken: give it another",
                        index);
    if (!fy__utf8_is_valid(name, strlen(name)))
        return FYT_FAIL(INVALID_ARGUMENT, "safetensors_write: the name of entry %zu is not UTF-8",
                        index);
    item->name = name;
    item->info = (fy_tensor_info_t)FY_TENSOR_INFO_INIT;
    FY_TRY(fy_tensor_query(entry->tensor, &item->info));
    if (item->info.device != fy_device_host())
        return FYT_FAIL(DEVICE_MISMATCH,
                        "safetensors_write: tensor '%.64s' is on %s\n  Ferry moves nothing by "
                        "itself. Download it first: %llu bytes",
                        name, fy_device_name(item->info.device),
                        (unsigned long long)item->info.nbytes);
    fy_tensor_t *from = (fy_tensor_t *)entry->tensor; /* mapped for reading only */
    if (!item->info.is_contiguous) {
        FY_TRY(fy_tensor_create(fy_device_host(), item->info.dtype, item->info.rank,
                                item->info.dims, &item->dense));
        FY_TRY(fy_copy(item->dense, entry->tensor));
        from = item->dense;
    }
    void *data;
    FY_TRY(fy_tensor_map(from, FY_ACCESS_READ, &data));
    item->data = data;
    return fyt_check_bools("safetensors_write", item->info.dtype, data, item->info.nbytes);
}

static fy_status_t take_entries(size_t count, const fy_safetensors_entry_t *entries, item_t *items)
{
    for (size_t i = 0; i < count; i++) FY_TRY(take_entry(i, &entries[i], &items[i]));
    if (count) qsort(items, count, sizeof *items, compare_item_names);
    for (size_t i = 1; i < count; i++)
        if (strcmp(items[i - 1].name, items[i].name) == 0)
            return FYT_FAIL(INVALID_ARGUMENT, "safetensors_write: two tensors are called '%.64s'",
                            items[i].name);
    if (count) qsort(items, count, sizeof *items, compare_items);
    return FY_STATUS_OK;
}

/* ---- the file ---- */

static fy_status_t write_file(const char *path, const text_t *header, size_t count,
                              const item_t *items)
{
    fy__replace_t file;
    const uint64_t length = header->used;
    FY_TRY(fyt_replace_begin(&file, path));
    fy_status_t status = fyt_replace_write(&file, &length, sizeof length);
    if (status == FY_STATUS_OK) status = fyt_replace_write(&file, header->bytes, header->used);
    for (size_t i = 0; i < count && status == FY_STATUS_OK; i++)
        status = fyt_replace_write(&file, items[i].data, items[i].info.nbytes);
    if (status == FY_STATUS_OK) return fyt_replace_commit(&file);
    fy__replace_abort(&file);
    return status;
}

fy_status_t fy_safetensors_write(const char *path, size_t count,
                                 const fy_safetensors_entry_t *entries, size_t npairs,
                                 const fy_safetensors_pair_t *pairs)
{
    if (!path || (count && !entries) || (npairs && !pairs))
        return FYT_FAIL(INVALID_ARGUMENT, "safetensors_write: %s is NULL",
                        !path               ? "path"
                        : count && !entries ? "entries"
                                            : "pairs");
    text_t header = { 0 };
    item_t *items = calloc(count ? count : 1, sizeof *items);
    fy_safetensors_pair_t *sorted = calloc(npairs ? npairs : 1, sizeof *sorted);
    fy_status_t status = FY_STATUS_OK;
    if (!items || !sorted) {
        status = FYT_FAIL(OUT_OF_MEMORY,
                          "safetensors_write: no host memory for the names of %zu tensors", count);
        goto done;
    }
    if (npairs) memcpy(sorted, pairs, npairs * sizeof *sorted);
    status = check_pairs(npairs, sorted);
    if (status == FY_STATUS_OK) status = take_entries(count, entries, items);
    if (status == FY_STATUS_OK) status = make_header(path, count, items, npairs, sorted, &header);
    if (status == FY_STATUS_OK) status = write_file(path, &header, count, items);
done:
    for (size_t i = 0; items && i < count; i++) fy_tensor_destroy(items[i].dense);
    free(header.bytes);
    free(sorted);
    free(items);
    return status;
}
