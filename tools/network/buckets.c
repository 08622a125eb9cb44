/* Gradient buckets; see buckets.h. Not here: the sums (train/parallel.c). */
#include "tools/network/buckets.h"

size_t buckets_cut(size_t count, const uint64_t *nbytes, uint64_t first, uint64_t most,
                   uint64_t last, size_t *out_end)
{
    size_t nbuckets = 0, tail = count; /* where the last bucket begins */
    uint64_t filled = 0, left = last;
    while (tail > 0 && nbytes[tail - 1] <= left) left -= nbytes[--tail];
    for (size_t i = 0; i < count; i++) {
        filled += nbytes[i];
        if (filled < (nbuckets ? most : first) && i + 1 < count && i + 1 != tail) continue;
        out_end[nbuckets++] = i + 1;
        filled = 0;
    }
    return nbuckets;
}
