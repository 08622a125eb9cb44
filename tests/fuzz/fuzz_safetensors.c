/* Passes a safetensors header to its reader. The first two bytes are the length of the data after
 * the header, the rest is its text: so a mutation can reach the rules about the data's length. An
 * accepted header must be valid: no gap, no overlap, names in order.
 * Not here: the file around it, which adds eight bytes of length (tests/unit/train/). How to run:
 * README.md. */
#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "train/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    fyt_header_t header;
    uint64_t end = 0;
    if (nbytes < 4) return 0;
    const uint64_t data_nbytes = data[0] | (uint64_t)data[1] << 8;
    char *text = malloc(nbytes - 2 + 1);
    if (!text) return 0;
    memcpy(text, data + 2, nbytes - 2);
    if (fyt_header_read("fuzz", text, nbytes - 2, data_nbytes, &header) != FY_STATUS_OK) return 0;
    for (size_t i = 0; i < header.count; i++) {
        const fy_safetensors_info_t *info = &header.tensors[i];
        if (info->offset != end) abort();
        end += info->nbytes;
        if (info->is_supported) {
            uint64_t nelem = 1;
            for (int d = 0; d < info->rank; d++) nelem *= (uint64_t)info->dims[d];
            if (nelem * fy_dtype_size(info->dtype) != info->nbytes) abort();
        }
        if (i && strcmp(header.tensors[header.by_name[i - 1]].name,
                        header.tensors[header.by_name[i]].name) >= 0)
            abort();
    }
    if (end != data_nbytes) abort();
    for (size_t i = 1; i < header.npairs; i++)
        if (strcmp(header.pairs[i - 1].key, header.pairs[i].key) >= 0) abort();
    fyt_header_free(&header);
    return 0;
}
