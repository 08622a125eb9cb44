/* Opens an archive of these bytes and reads all of its arrays. An accepted archive has names
 * without duplicates, and no array larger than 1,032 times its bytes and a header.
 * Not here: the text of an array's header (fuzz_npy.c). How to run: README.md. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <ferry/train/npz.h>

#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    char path[64];
    fy_npz_t *file;
    const int fd = memfd_create("npz", 0);
    if (fd < 0) return 0;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (write(fd, data, nbytes) == (ssize_t)nbytes && fy_npz_open(path, &file) == FY_STATUS_OK) {
        for (size_t i = 0; i < fy_npz_count(file); i++) {
            fy_tensor_t *tensor;
            fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
            if (i && strcmp(fy_npz_name(file, i - 1), fy_npz_name(file, i)) == 0) abort();
            if (fy_npz_read(file, i, &tensor) != FY_STATUS_OK) continue;
            if (fy_tensor_query(tensor, &info) != FY_STATUS_OK || info.nbytes > 1033 * nbytes)
                abort();
            fy_tensor_destroy(tensor);
        }
        fy_npz_close(file);
    }
    close(fd);
    return 0;
}
