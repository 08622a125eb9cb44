/* IDX: images and labels of MNIST's kind. The header is read first, and nothing is allocated before
 * the file's length agrees with it.
 * Not here: opening and inflating (inflate.c), writing (dataset_write.c). Source of the format:
 * LeCun, "The MNIST database". */
#include "dataset.h"

#include <stdio.h>
#include <stdlib.h>

#include "train/abi.h"

#define IDX_UNSIGNED_BYTE 0x08
#define IDX_MAX_RANK      8
#define FIRST_ROOM        (1u << 20)

typedef struct idx {
    int rank;
    uint64_t dims[IDX_MAX_RANK];
    uint64_t nbytes; /* of the data behind the header */
} idx_t;

static const char *type_name(unsigned char type)
{
    switch (type) {
    case 0x09: return "signed bytes";
    case 0x0b: return "16-bit integers";
    case 0x0c: return "32-bit integers";
    case 0x0d: return "32-bit floats";
    case 0x0e: return "64-bit floats";
    default: return "no type of IDX";
    }
}

static fy_status_t read_magic(fyt_source_t *source, int rank_min, int rank_max, const char *what,
                              int *out_rank)
{
    unsigned char magic[4];
    uint64_t got;
    FY_TRY(fyt_source_read(source, magic, sizeof magic, &got));
    if (got < sizeof magic)
        return FYT_FAIL(CORRUPT_DATA,
                        "%s: %llu bytes: an IDX file begins with two zero bytes, a type and a rank",
                        source->name, (unsigned long long)got);
    if (magic[0] || magic[1])
        return FYT_FAIL(CORRUPT_DATA,
                        "%s: byte 0: an IDX file begins with two zero bytes, found 0x%02x 0x%02x",
                        source->name, magic[0], magic[1]);
    if (magic[2] != IDX_UNSIGNED_BYTE)
        return FYT_FAIL(CORRUPT_DATA,
                        "%s: byte 2: type 0x%02x (%s) where %s are unsigned bytes, 0x08",
                        source->name, magic[2], type_name(magic[2]), what);
    if (magic[3] < 1 || magic[3] > IDX_MAX_RANK)
        return FYT_FAIL(CORRUPT_DATA, "%s: byte 3: rank %d; in IDX files it is 1 to %d",
                        source->name, magic[3], IDX_MAX_RANK);
    if (magic[3] < rank_min || magic[3] > rank_max)
        return FYT_FAIL(
            CORRUPT_DATA,
            "%s: byte 3: rank %d; that of %s is %d%s: these are perhaps the other file's",
            source->name, magic[3], what, rank_min, rank_max > rank_min ? " or 4" : "");
    *out_rank = magic[3];
    return FY_STATUS_OK;
}

/* "[60000, 28, 28]" */
static const char *dims_text(const idx_t *idx, char *text, size_t room)
{
    size_t used = 0;
    for (int i = 0; i < idx->rank && used < room; i++)
        used += (size_t)snprintf(text + used, room - used, "%s%llu%s", i ? ", " : "[",
                                 (unsigned long long)idx->dims[i], i + 1 < idx->rank ? "" : "]");
    return text;
}

static fy_status_t read_header(fyt_source_t *source, int rank_min, int rank_max, const char *what,
                               idx_t *idx)
{
    unsigned char size[4];
    char text[160];
    uint64_t got;
    *idx = (idx_t){ .nbytes = 1 };
    FY_TRY(read_magic(source, rank_min, rank_max, what, &idx->rank));
    for (int i = 0; i < idx->rank; i++) {
        FY_TRY(fyt_source_read(source, size, sizeof size, &got));
        if (got < sizeof size)
            return FYT_FAIL(CORRUPT_DATA, "%s: it ends inside of its header, which has %d sizes",
                            source->name, idx->rank);
        idx->dims[i] = (uint64_t)size[0] << 24 | (uint64_t)size[1] << 16 | (uint64_t)size[2] << 8 |
                       size[3];
        if (!idx->dims[i])
            return FYT_FAIL(CORRUPT_DATA, "%s: byte %d: size %d is 0", source->name, 4 + 4 * i, i);
        if (__builtin_mul_overflow(idx->nbytes, idx->dims[i], &idx->nbytes))
            return FYT_FAIL(CORRUPT_DATA, "%s: byte %d: the product of the sizes is past 2^64",
                            source->name, 4 + 4 * i);
    }
    dims_text(idx, text, sizeof text);
    if (idx->nbytes > source->max_nbytes || idx->nbytes > PTRDIFF_MAX)
        return FYT_FAIL(
            CORRUPT_DATA,
            "%s: %s are %llu bytes, more than max_nbytes = %llu: raise the limit if that is meant",
            source->name, text, (unsigned long long)idx->nbytes,
            (unsigned long long)source->max_nbytes);
    const uint64_t left = fyt_source_at_most(source);
    if (idx->nbytes > left || (fyt_source_is_exact(source) && idx->nbytes != left))
        return FYT_FAIL(CORRUPT_DATA, "%s: %s are %llu bytes, but %s%llu follow the header",
                        source->name, text, (unsigned long long)idx->nbytes,
                        source->z ? "at most " : "", (unsigned long long)left);
    return FY_STATUS_OK;
}

/* Reads up to idx->nbytes into *bytes, which the caller frees. A compressed file or a pipe may end
 * before the length in its header: then memory is allocated as bytes arrive. */
static fy_status_t read_growing(fyt_source_t *source, const idx_t *idx, unsigned char **bytes,
                                uint64_t *out_got)
{
    const uint64_t most = idx->nbytes;
    uint64_t room = fyt_source_is_exact(source) || most < FIRST_ROOM ? most : FIRST_ROOM, n;
    for (*out_got = 0;;) {
        unsigned char *larger = realloc(*bytes, room);
        if (!larger)
            return FYT_FAIL(OUT_OF_MEMORY, "%s: no host memory for %llu bytes", source->name,
                            (unsigned long long)room);
        *bytes = larger;
        FY_TRY(fyt_source_read(source, larger + *out_got, room - *out_got, &n));
        *out_got += n;
        if (*out_got < room || room == most) return FY_STATUS_OK;
        room = room > most / 2 ? most : 2 * room;
    }
}

/* Reads the data, and checks that nothing follows it. */
static fy_status_t read_body(fyt_source_t *source, const idx_t *idx, unsigned char **out_bytes)
{
    unsigned char behind, *bytes = NULL;
    uint64_t got, more = 0;
    fy_status_t status = read_growing(source, idx, &bytes, &got);
    if (status == FY_STATUS_OK && got == idx->nbytes)
        status = fyt_source_read(source, &behind, 1, &more);
    if (status == FY_STATUS_OK && got < idx->nbytes)
        status = FYT_FAIL(CORRUPT_DATA,
                          "%s: the header says %llu bytes of data, but %llu follow it",
                          source->name, (unsigned long long)idx->nbytes, (unsigned long long)got);
    if (status == FY_STATUS_OK && more)
        status = FYT_FAIL(CORRUPT_DATA, "%s: more data than the %llu bytes that the header says",
                          source->name, (unsigned long long)idx->nbytes);
    if (status != FY_STATUS_OK) {
        free(bytes);
        return status;
    }
    *out_bytes = bytes;
    return FY_STATUS_OK;
}

/* One int32_t for each byte; the largest decides how many classes there are. */
static fy_status_t widen_labels(const unsigned char *bytes, uint64_t count, const char *name,
                                int32_t **out_labels, int *out_classes)
{
    int32_t *labels = malloc(count * sizeof *labels);
    if (!labels)
        return FYT_FAIL(OUT_OF_MEMORY, "%s: no host memory for %llu labels", name,
                        (unsigned long long)count);
    int largest = 0;
    for (uint64_t i = 0; i < count; i++) {
        labels[i] = bytes[i];
        if (bytes[i] > largest) largest = bytes[i];
    }
    *out_labels = labels;
    *out_classes = largest + 1;
    return FY_STATUS_OK;
}

static void keep_first(fy_dataset_info_t *info, uint64_t max_samples, uint64_t sample_nbytes,
                       unsigned char **data, int32_t **labels)
{
    if (!max_samples || max_samples >= info->samples) return;
    info->samples = max_samples;
    unsigned char *fewer = realloc(*data, max_samples * sample_nbytes);
    int32_t *fewer_labels = realloc(*labels, max_samples * sizeof **labels);
    if (fewer) *data = fewer;
    if (fewer_labels) *labels = fewer_labels;
}

fy_status_t fyt_dataset_parse_idx(fyt_source_t *images, fyt_source_t *labels,
                                  const fy_dataset_options_t *options, fy_dataset_t **out_dataset)
{
    idx_t image, label;
    unsigned char *data = NULL, *bytes = NULL;
    int32_t *own_labels = NULL;
    fy_dataset_info_t info = FY_DATASET_INFO_INIT;
    FY_TRY(read_header(images, 3, 4, "images", &image));
    FY_TRY(read_header(labels, 1, 1, "labels", &label));
    if (image.dims[0] != label.dims[0])
        return FYT_FAIL(CORRUPT_DATA, "%s has %llu images, %s has %llu labels", images->name,
                        (unsigned long long)image.dims[0], labels->name,
                        (unsigned long long)label.dims[0]);
    info.samples = image.dims[0];
    info.rank = 3;
    info.dtype = FY_DTYPE_U8;
    for (int i = 0; i < 3; i++) info.dims[i] = i + 1 < image.rank ? (int64_t)image.dims[i + 1] : 1;
    fy_status_t status = read_body(labels, &label, &bytes);
    if (status == FY_STATUS_OK) status = read_body(images, &image, &data);
    if (status == FY_STATUS_OK)
        status = widen_labels(bytes, info.samples, labels->name, &own_labels, &info.classes);
    if (status == FY_STATUS_OK)
        keep_first(&info, options->max_samples, image.nbytes / image.dims[0], &data, &own_labels);
    free(bytes);
    return fyt_dataset_new(status, &info, data, own_labels, out_dataset);
}

fy_status_t fy_dataset_read_idx(const char *images_path, const char *labels_path,
                                const fy_dataset_options_t *options, fy_dataset_t **out_dataset)
{
    FY_TRY(FYT_CLEAR_OUT("dataset_read_idx", out_dataset));
    if (!images_path || !labels_path)
        return FYT_FAIL(INVALID_ARGUMENT, "dataset_read_idx: %s is NULL",
                        images_path ? "labels_path" : "images_path");
    fy_dataset_options_t checked;
    fyt_source_t images = { 0 }, labels = { 0 };
    FY_TRY(FY__READ(dataset_options, "dataset", options, &checked));
    fy_status_t status = fyt_source_open_file(images_path, checked.max_nbytes, &images);
    if (status == FY_STATUS_OK)
        status = fyt_source_open_file(labels_path, checked.max_nbytes, &labels);
    if (status == FY_STATUS_OK)
        status = fyt_dataset_parse_idx(&images, &labels, &checked, out_dataset);
    fyt_source_close(&images);
    fyt_source_close(&labels);
    return status;
}
