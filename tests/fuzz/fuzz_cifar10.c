/* Passes a file of CIFAR-10's binary format to its reader, gzip or not. An accepted file must be
 * complete: each byte of it is read.
 * Not here: opening files. How to run: README.md. */
#include "tests/fuzz/fuzz.h"
#include "train/dataset.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    const uint64_t max_nbytes = 1 << 18;
    fyt_cifar10_t set = { .max_samples = nbytes % 5 };
    fy_dataset_t *dataset = NULL;
    fyt_source_t source = { 0 };
    fy_status_t status = fyt_source_open_bytes(data, nbytes, "fuzz", max_nbytes, &source);
    if (status == FY_STATUS_OK) status = fyt_cifar10_parse(&set, &source);
    fyt_source_close(&source);
    status = status == FY_STATUS_OK ? fyt_cifar10_finish(&set, &dataset)
                                    : (fyt_cifar10_finish(&set, NULL), status);
    if (status == FY_STATUS_OK) {
        static unsigned char sample[FYT_CIFAR10_RECORD - 1];
        if (!dataset->info.samples || dataset->info.samples > max_nbytes / FYT_CIFAR10_RECORD)
            abort();
        for (uint64_t i = 0; i < dataset->info.samples; i++) {
            int32_t label;
            if (fy_dataset_get(dataset, i, sample, &label) != FY_STATUS_OK || label < 0 ||
                label > 9)
                abort();
        }
    }
    fy_dataset_destroy(dataset);
    return 0;
}
