/* Inside of a table, shared by the files table*.c. Not public. Next: table.c. */
#ifndef FERRY_TRAIN_TABLE_INTERNAL_H_
#define FERRY_TRAIN_TABLE_INTERNAL_H_

#include <ferry/train/table.h>

#include "train/fail.h"

struct fy_table {
    uint64_t rows, cols;
    double *values; /* [rows, cols]; never NULL, room for one value at least */
};

#endif
