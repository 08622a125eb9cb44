/* Inside of a table, shared by the files table*.c, and the numbers of synthetic data. Not public.
 * Next: table.c. */
#ifndef FERRY_TRAIN_TABLE_INTERNAL_H_
#define FERRY_TRAIN_TABLE_INTERNAL_H_

#include <ferry/train/table.h>

#include "train/fail.h"

struct fy_table {
    uint64_t rows, cols;
    double *values; /* [rows, cols]; never NULL, room for one value at least */
};

/* The next number of a seed. SplitMix64 (Steele, Lea, Flood 2014): any seed will do. */
static inline uint64_t fyt_draw(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

#endif
