/* Files that are there whole or not at all: written beside, synced, renamed over. The one writer of files that
 * are to be whole: snapshots (alloc/), checkpoints, weights and data sets (train/), profiles (tools/). Needs nothing of Ferry: it is compiled
 * into each of the three. Next: replace.c. */
#ifndef FERRY_RUNTIME_BASE_REPLACE_H_
#define FERRY_RUNTIME_BASE_REPLACE_H_

#include <stddef.h>

/* A file on its way. After begin, exactly one of commit and abort. */
typedef struct fy__replace {
    char *path; /* of the file itself: symbolic links are resolved */
    char *temp; /* "PATH.PID-N.tmp"; NULL: `path` is a pipe or a device, which is written to and not replaced */
    int fd;
    int error;         /* of the last failure, an errno; ENOMEM: no host memory */
    char problem[600]; /* and in words, without a line's end */
} fy__replace_t;

/* Makes an empty file beside the file that `path` names. A symbolic link stays, and its target, which need not exist, is replaced. A pipe or a
 * device is opened for writing (a pipe blocks until it has a reader). On failure there is nothing to commit or abort.
 * Each call returns 0 or replace->error. */
int fy__replace_begin(fy__replace_t *replace, const char *path);
/* If it fails, abort. */
int fy__replace_write(fy__replace_t *replace, const void *data, size_t nbytes);
/* A pipe or a device is closed. Else syncs the file, renames it over `path`, syncs the folder. If it fails, nothing is left beside, and `path` is as it was, or, if only the
 * folder could not be synced, the new file. */
int fy__replace_commit(fy__replace_t *replace);
/* Takes the file away that was begun. */
void fy__replace_abort(fy__replace_t *replace);

#endif
