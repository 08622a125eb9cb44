/* See pickle.h. */
#include "tools/cli/pickle.h"

#include <stdlib.h>
#include <string.h>

#include "tools/cli/output.h"
#include "tools/cli/tool.h"

enum { ROOM = 1 << 16, TEXT_LONGEST = 4096, LONGEST = TEXT_LONGEST + 16 };

static void flush(pickle_t *pickle)
{
    if (!pickle->error)
        pickle->error = fy__replace_write(&pickle->replace, pickle->buffer, pickle->used);
    pickle->used = 0;
}

static void put(pickle_t *pickle, const void *bytes, size_t nbytes)
{
    if (ROOM - pickle->used < LONGEST) flush(pickle);
    memcpy(pickle->buffer + pickle->used, bytes, nbytes);
    pickle->used += nbytes;
}

/* An opcode and a little-endian argument. */
static void put_code(pickle_t *pickle, unsigned char code, uint64_t argument, size_t nbytes)
{
    unsigned char bytes[9] = { code };
    for (size_t i = 0; i < nbytes; i++) bytes[1 + i] = (unsigned char)(argument >> 8 * i);
    put(pickle, bytes, 1 + nbytes);
}

fy_status_t pickle_open(pickle_t *pickle, const char *path)
{
    *pickle = (pickle_t){ .used = 0 };
    FY_TRY(output_begin(&pickle->replace, path));
    pickle->buffer = tool_alloc(ROOM);
    put_code(pickle, 0x80, 2, 1); /* PROTO 2 */
    return FY_STATUS_OK;
}

void pickle_abort(pickle_t *pickle)
{
    output_abort(&pickle->replace);
    free(pickle->buffer);
}

fy_status_t pickle_commit(pickle_t *pickle)
{
    put(pickle, ".", 1); /* STOP */
    flush(pickle);
    if (pickle->error) {
        const fy_status_t status = TOOL_FAIL(IO, "%s", pickle->replace.problem);
        pickle_abort(pickle);
        return status;
    }
    free(pickle->buffer);
    return output_commit(&pickle->replace);
}

void pickle_begin_dict(pickle_t *pickle) { put(pickle, "}(", 2); } /* EMPTY_DICT, MARK */
void pickle_end_dict(pickle_t *pickle) { put(pickle, "u", 1); }    /* SETITEMS */
void pickle_begin_list(pickle_t *pickle) { put(pickle, "](", 2); } /* EMPTY_LIST, MARK */
void pickle_end_list(pickle_t *pickle) { put(pickle, "e", 1); }    /* APPENDS */

void pickle_text(pickle_t *pickle, const char *text)
{
    size_t nbytes = strnlen(text, TEXT_LONGEST);
    while (nbytes == TEXT_LONGEST || (text[nbytes] & 0xC0) == 0x80) nbytes--; /* whole characters */
    put_code(pickle, 'X', nbytes, 4);                                         /* BINUNICODE */
    put(pickle, text, nbytes);
}

void pickle_whole(pickle_t *pickle, uint64_t number)
{
    if (number <= INT32_MAX) {
        put_code(pickle, 'J', number, 4); /* BININT */
        return;
    }
    put_code(pickle, 0x8a, 9, 1); /* LONG1 of 9 bytes, the last of which is the sign */
    put_code(pickle, (unsigned char)number, number >> 8, 8);
}

void pickle_flag(pickle_t *pickle, bool flag) { put_code(pickle, flag ? 0x88 : 0x89, 0, 0); }

uint32_t pickle_keep(pickle_t *pickle)
{
    put_code(pickle, 'r', pickle->kept, 4); /* LONG_BINPUT */
    return pickle->kept++;
}

void pickle_again(pickle_t *pickle, uint32_t kept)
{
    put_code(pickle, 'j', kept, 4); /* LONG_BINGET */
}
