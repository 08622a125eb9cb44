/* Passes the text of an .npy header to its reader. An accepted header must describe an array that
 * fits 2^63 bytes, and must read the same again after the writer has written it.
 * Not here: the file around it (tests/unit/train/test_npy.c). How to run: README.md. */
#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "train/npy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    fyt_npy_t npy, again;
    char text[FYT_NPY_HEADER_ROOM];
    size_t length;
    char *own = malloc(nbytes ? nbytes : 1); /* a reader that passes its end is caught */
    if (!own) return 0;
    memcpy(own, data, nbytes);
    const fy_status_t status = fyt_npy_read_header("fuzz", own, nbytes, &npy);
    free(own);
    if (status != FY_STATUS_OK) return 0;
    if (npy.rank > FY_MAX_RANK || npy.nbytes > INT64_MAX) abort();
    if (fyt_npy_write_header(&npy, text, &length) != FY_STATUS_OK || length % 64) abort();
    if (fyt_npy_read_header("fuzz", text + 10, length - 10, &again) != FY_STATUS_OK) abort();
    if (npy.dtype != again.dtype || npy.rank != again.rank || npy.nbytes != again.nbytes ||
        npy.is_fortran != again.is_fortran ||
        memcmp(npy.dims, again.dims, sizeof npy.dims[0] * (size_t)npy.rank) != 0)
        abort();
    return 0;
}
