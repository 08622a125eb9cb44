/* Reads gzip data of a file from outside, piece by piece, in bounded memory. Not here: opening the
 * file (runtime/base/input.h), lines (text_file.h). */
#ifndef FERRY_TOOLS_UNZIP_H_
#define FERRY_TOOLS_UNZIP_H_

#include <stdbool.h>
#include <stddef.h>

#include <ferry/status.h>

#include "runtime/base/input.h"

typedef struct unzip unzip_t;

/* Whether the file that begins with these bytes is compressed. */
bool unzip_is_packed(const char *bytes, size_t nbytes);
/* For a file whose first bytes were read already. Fails: OUT_OF_MEMORY. */
fy_status_t unzip_open(fy__input_t *input, const char *begin, size_t nbytes, unzip_t **out_unzip);
/* The next bytes, at most `room`; *out_nread is 0 at the end only. Fails: IO, CORRUPT_DATA
 * (damaged, or cut off), OUT_OF_MEMORY. */
fy_status_t unzip_read(unzip_t *unzip, void *to, size_t room, size_t *out_nread);
/* Did unzip_read fail because the compressed data have no end? */
bool unzip_is_cut(const unzip_t *unzip);
void unzip_close(unzip_t *unzip);

#endif
