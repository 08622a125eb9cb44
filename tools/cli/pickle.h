/* Writes a pickle (Python's serialised objects, protocol 2): dicts, lists, texts, whole numbers,
 * booleans. Any object may be kept and repeated by its number. Not here: reading one.
 * Python's Lib/pickletools.py documents the opcodes. */
#ifndef FERRY_TOOLS_PICKLE_H_
#define FERRY_TOOLS_PICKLE_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferry/status.h>

#include "runtime/base/replace.h"

typedef struct pickle {
    fy__replace_t replace;
    int error; /* of the first write that failed; then nothing more is written */
    size_t used;
    uint32_t kept;
    unsigned char *buffer;
} pickle_t;

/* Then one object; then commit or abort. Fails: IO. */
fy_status_t pickle_open(pickle_t *pickle, const char *path);
/* Fails: IO; the file is then as it was. */
fy_status_t pickle_commit(pickle_t *pickle);
void pickle_abort(pickle_t *pickle);

/* A dict has a text, its key, before each value. */
void pickle_begin_dict(pickle_t *pickle);
void pickle_end_dict(pickle_t *pickle);
void pickle_begin_list(pickle_t *pickle);
void pickle_end_list(pickle_t *pickle);
void pickle_text(pickle_t *pickle, const char *text);
void pickle_whole(pickle_t *pickle, uint64_t number);
void pickle_flag(pickle_t *pickle, bool flag);
/* Keeps the object that was written last: its number, for pickle_again. */
uint32_t pickle_keep(pickle_t *pickle);
void pickle_again(pickle_t *pickle, uint32_t kept);

#endif
