/* Gradient buckets; see buckets.h. Not here: the sums (train/parallel.c). */
#include "tools/network/buckets.h"

size_t buckets_cut(size_t count, const uint64_t *nbytes, uint64_t first, uint64_t most,
                   size_t *out_end)
{
    size_t nbuckets = 0;
    uint64_t filled = 0;
    for (size_t i = 0; i < count; i++) {
        filled += nbytes[i];
        if (filled < (nbuckets ? most : first) && i + 1 < count) continue;
        out_end[nbuckets++] = i + 1;
        filled = 0;
    }
    return nbuckets;
}
