/* Replaces a file completely or not at all, with failures as statuses, for all writers of train/.
 * Not public.
 * Next: runtime/base/replace.h, which does it. */
#ifndef FERRY_TRAIN_REPLACE_INTERNAL_H_
#define FERRY_TRAIN_REPLACE_INTERNAL_H_

#include <ferry/status.h>

#include "runtime/base/replace.h"

/* A file on its way. After begin, exactly one of commit and abort. */
typedef fy__replace_t fyt_replace_t;

/* Makes an empty file beside the file that `path` names. A symbolic link stays, and its target,
 * which need not exist, is replaced. A pipe or a device is opened for writing (a pipe blocks until
 * it has a reader). On failure there is nothing to commit or abort.
 * Fails: IO (a loop of links among others), OUT_OF_MEMORY. */
fy_status_t fyt_replace_begin(fyt_replace_t *replace, const char *path);
/* Fails: IO; abort it then. */
fy_status_t fyt_replace_write(fyt_replace_t *replace, const void *data, size_t nbytes);
/* Closes a pipe or a device. Else syncs the temporary file, renames it to `path`, and syncs the
 * folder. Fails: IO; the temporary file is then removed and `path` is unchanged, or, if only the
 * sync of the folder failed, the new file. */
fy_status_t fyt_replace_commit(fyt_replace_t *replace);
/* Removes the temporary file. */
void fyt_replace_abort(fyt_replace_t *replace);

#endif
