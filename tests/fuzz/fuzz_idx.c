/* Passes a pair of IDX files to their reader, gzip or not: the first two bytes are the length of
 * the images after them, the rest are the labels. An accepted pair must be complete: each byte of
 * it is read. Not here: opening files. How to run: README.md. */
#include "tests/fuzz/fuzz.h"
#include "train/dataset.h"

static void look(const fy_dataset_t *dataset, uint64_t max_samples)
{
    unsigned char *sample = malloc(dataset->sample_nbytes);
    if (!sample) return;
    const fy_dataset_info_t *info = &dataset->info;
    if (!info->samples || (max_samples && info->samples > max_samples) || info->rank != 3) abort();
    if ((uint64_t)(info->dims[0] * info->dims[1] * info->dims[2]) != dataset->sample_nbytes)
        abort();
    for (uint64_t i = 0; i < info->samples; i++) {
        int32_t label;
        if (fy_dataset_get(dataset, i, sample, &label) != FY_STATUS_OK || label < 0 ||
            label >= info->classes)
            abort();
    }
    free(sample);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    fy_dataset_options_t options = FY_DATASET_OPTIONS_INIT;
    fy_dataset_t *dataset = NULL;
    fyt_source_t images = { 0 }, labels = { 0 };
    if (nbytes < 2) return 0;
    const size_t behind = nbytes - 2;
    size_t split = data[0] | (size_t)data[1] << 8;
    options.max_nbytes = 1 << 20;
    options.max_samples = split >> 14; /* lengths are shorter than that: two bits are free */
    split &= 0x3fff;
    if (split > behind) split = behind;
    if (fyt_source_open_bytes(data + 2, split, "images", options.max_nbytes, &images) ==
            FY_STATUS_OK &&
        fyt_source_open_bytes(data + 2 + split, behind - split, "labels", options.max_nbytes,
                              &labels) == FY_STATUS_OK &&
        fyt_dataset_parse_idx(&images, &labels, &options, &dataset) == FY_STATUS_OK)
        look(dataset, options.max_samples);
    fyt_source_close(&images);
    fyt_source_close(&labels);
    fy_dataset_destroy(dataset);
    return 0;
}
