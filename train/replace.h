/* Files that are there whole or not at all: written beside, synced, renamed over. Shared by whatever of train/ writes files. Not public.
 * Next: runtime/base/replace.h, which it is. */
#ifndef FERRY_TRAIN_REPLACE_INTERNAL_H_
#define FERRY_TRAIN_REPLACE_INTERNAL_H_

#include <ferry/status.h>

#include "runtime/base/replace.h"

/* A file on its way. After begin, exactly one of commit and abort. */
typedef fy__replace_t fyt_replace_t;

/* Makes an empty file beside the file that `path` names. A symbolic link stays, and its target, which need not exist, is replaced. A pipe or a
 * device is opened for writing (a pipe blocks until it has a reader). On failure there is nothing to commit or abort.
 * Fails: IO (a loop of links among others), OUT_OF_MEMORY. */
fy_status_t fyt_replace_begin(fyt_replace_t *replace, const char *path);
/* Fails: IO; abort it then. */
fy_status_t fyt_replace_write(fyt_replace_t *replace, const void *data, size_t nbytes);
/* A pipe or a device is closed. Else syncs the file, renames it over `path`, syncs the folder. Fails: IO; nothing is left beside, and `path` is as it was, or, if only the
 * folder could not be synced, the new file. */
fy_status_t fyt_replace_commit(fyt_replace_t *replace);
/* Takes the file away that was begun. */
void fyt_replace_abort(fyt_replace_t *replace);

#endif
