/* The airfoil self-noise data set (Brooks, Pope, Marcolini 1989), 1503 rows of five features and a
 * target: found or made up.
 * Next: airfoil.c. */
#ifndef FERRY_TOOLS_AIRFOIL_H_
#define FERRY_TOOLS_AIRFOIL_H_

#include <ferry/train/table.h>

enum { AIRFOIL_COLUMNS = 6, AIRFOIL_FEATURES = 5 };

/* Looks for the file in data_folder(data); `data` may also be the file itself. If it is missing,
 * and `data` is NULL, makes a table of the same shape and says so on standard error. `out_origin`
 * (of `room` bytes): the file's path, or "synthetic". The table is the caller's. Fails: as
 * fy_table_read; IO if `data` holds no such file. */
fy_status_t airfoil_load(const char *data, char *out_origin, size_t room, fy_table_t **out_table);

#endif
