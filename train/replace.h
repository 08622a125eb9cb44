/* Files that are there whole or not at all: written beside, synced, renamed over. Shared by whatever of train/ writes files. Not public.
 * Next: replace.c. */
#ifndef FERRY_TRAIN_REPLACE_INTERNAL_H_
#define FERRY_TRAIN_REPLACE_INTERNAL_H_

#include <ferry/status.h>

/* A file on its way. After begin, exactly one of commit and abort. */
typedef struct fyt_replace {
    const char *path; /* borrowed from begin's caller until commit or abort */
    char *temp;       /* "PATH.PID-N.tmp" */
    int fd;
} fyt_replace_t;

/* Makes an empty file beside `path`. On failure there is nothing to commit or abort. Fails: IO, OUT_OF_MEMORY. */
fy_status_t fyt_replace_begin(fyt_replace_t *replace, const char *path);
/* Fails: IO; abort it then. */
fy_status_t fyt_replace_write(fyt_replace_t *replace, const void *data, size_t nbytes);
/* Syncs the file, renames it over `path`, syncs the folder. Fails: IO; nothing is left beside, and `path` is as it was, or, if only the
 * folder could not be synced, the new file. */
fy_status_t fyt_replace_commit(fyt_replace_t *replace);
/* Takes the file away that was begun. */
void fyt_replace_abort(fyt_replace_t *replace);

#endif
