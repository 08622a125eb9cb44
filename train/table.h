/* Inside of a table, shared by the files table*.c. Not public. Next: table.c. */
#ifndef FERRY_TRAIN_TABLE_INTERNAL_H_
#define FERRY_TRAIN_TABLE_INTERNAL_H_

#include <ferry/train/table.h>

struct fy_table {
    uint64_t rows, cols;
    double *values; /* [rows, cols]; never NULL, room for one value at least */
};

/* return FYT_FAIL(IO, "cannot open %s", path); the train library's FY_FAIL, by public means. */
#define FYT_FAIL(code, ...) fy_error_set(FY_STATUS_##code, __FILE__, __LINE__, __VA_ARGS__)

#endif
