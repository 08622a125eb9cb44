/* Reads snapshots of memory (docs/internals/snapshot.md) back into what the library wrote them
 * from. A file whose blocks do not fill their segments, or whose sums are not its figures, is
 * refused. Next: snapshot_file.c; json_tree.h. */
#ifndef FERRY_TOOLS_SNAPSHOT_FILE_H_
#define FERRY_TOOLS_SNAPSHOT_FILE_H_

#include <ferry/status.h>

#include "alloc/report/snapshot.h"
#include "tools/cli/json_tree.h"

typedef struct snapshot_file {
    fy__snapshot_t snapshot; /* its texts lie in `text` */
    json_tree_t tree;
    char *text;
} snapshot_file_t;

/* Fails: IO, CORRUPT_DATA (names the error and its position). snapshot_file_close in either
 * case. */
fy_status_t snapshot_file_open(const char *path, snapshot_file_t *out_file);
void snapshot_file_close(snapshot_file_t *file);
/* Draws it; on failure no file stays. */
fy_status_t snapshot_file_draw(const snapshot_file_t *file, const char *path);

/* ---- memory_pytorch.c: memory events as the snapshot that PyTorch's memory viewer reads ---- */

/* Reads the event file `from`, writes the pickle `to`, and prints which pool is which device.
 * Fails: IO, CORRUPT_DATA, INVALID_ARGUMENT (no memory events). */
fy_status_t memory_pytorch_write(const char *from, const char *to);

#endif
