/* Replaces a file completely or not at all: writes a temporary file beside it, syncs, renames. Used
 * for snapshots (alloc/), checkpoints, weights and data sets (train/), profiles (tools/). It needs
 * nothing else of Ferry, and is compiled into each of the three.
 * Next: replace.c. */
#ifndef FERRY_RUNTIME_BASE_REPLACE_H_
#define FERRY_RUNTIME_BASE_REPLACE_H_

#include <stddef.h>

/* A file that is being written. After begin, call exactly one of commit and abort. */
typedef struct fy__replace {
    char *path; /* of the file itself: symbolic links are resolved */
    /* "PATH.PID-N.tmp", of a long name the first bytes; NULL: `path` is a pipe or a device, written
     * in place */
    char *temp;
    int fd;
    int error;         /* of the last failure, an errno; ENOMEM: no host memory */
    char problem[600]; /* the failure as text, without a newline */
} fy__replace_t;

/* Makes an empty file beside the file that `path` names. A symbolic link stays, and its target,
 * which need not exist, is replaced. The new file has the mode of the old one, and its owner and
 * group as far as the process may set them. A pipe or a device is opened for writing (a pipe blocks
 * until it has a reader), a folder is refused. On failure there is nothing to commit or abort.
 * Each call returns 0 or replace->error. */
int fy__replace_begin(fy__replace_t *replace, const char *path);
/* If it fails, abort. */
int fy__replace_write(fy__replace_t *replace, const void *data, size_t nbytes);
/* Closes a pipe or a device. Else syncs the temporary file, renames it to `path`, and syncs the
 * folder. On failure the temporary file is removed and `path` is unchanged; if only the sync of the
 * folder failed, `path` is the new file. */
int fy__replace_commit(fy__replace_t *replace);
/* Removes the temporary file. */
void fy__replace_abort(fy__replace_t *replace);

#endif
