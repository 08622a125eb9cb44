/* Gradient buckets: parts of a model's gradients that are reduced over ranks in one call each, in
 * the order in which the backward completes them. As PyTorch's DistributedDataParallel (Li et al.,
 * "PyTorch Distributed", VLDB 2020): the first bucket is small, so that its sum starts early. So is
 * the last one, whose sum nothing can hide. Next: buckets.c. */
#ifndef FERRY_TOOLS_BUCKETS_H_
#define FERRY_TOOLS_BUCKETS_H_

#include <stddef.h>
#include <stdint.h>

#define BUCKET_FIRST_NBYTES (1ull << 20)
#define BUCKET_NBYTES       (25ull << 20)
#define BUCKET_LAST_NBYTES  (256ull << 10)

/* `nbytes` are the sizes of `count` gradients, in the order in which they are complete. A bucket
 * ends with the gradient that brings it to `first` bytes (the first bucket) or `most` bytes; the
 * last one with the last gradient. The last gradients of together at most `last` bytes have a
 * separate bucket, if there are others. out_end[b]: the number of gradients up to the end of bucket
 * b; it has room for `count`. Returns the number of buckets. */
size_t buckets_cut(size_t count, const uint64_t *nbytes, uint64_t first, uint64_t most,
                   uint64_t last, size_t *out_end);

#endif
