/* Text files from outside: read whole, or by lines. Not here: how files are opened
 * (runtime/base/input.h), JSON (json_tree.h), events (event_file.h).
 * Next: text_file.c. */
#ifndef FERRY_TOOLS_TEXT_FILE_H_
#define FERRY_TOOLS_TEXT_FILE_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferry/status.h>

#include "runtime/base/input.h"

/* All of a text, from malloc, zero-terminated. `what` it should be is named in failures; `begins`:
 * what its first character that is no blank may be.
 * Fails: IO, CORRUPT_DATA (longer than most_nbytes, begins otherwise, has a zero byte),
 * OUT_OF_MEMORY. */
fy_status_t text_file_read(const char *path, const char *what, const char *begins,
                           size_t most_nbytes, char **out_text);

/* No line of a file of ours comes near it. */
enum { TEXT_LINE_MOST_NBYTES = 1 << 20 };

typedef struct text_lines {
    fy__input_t input;
    struct unzip *unzip; /* NULL: the file is not compressed */
    bool is_begun;       /* that is known */
    const char *what;    /* the file should be, for failures */
    /* TEXT_LINE_MOST_NBYTES of the file, of which [begin, end) are still to be handed out */
    char *bytes;
    size_t begin, end;
    uint64_t number; /* of the last line, from 1 */
    uint64_t most;   /* the reader's: there are no lines after that one; 0: all are read */
    bool is_over;    /* the file is; bytes may be left */
    bool is_partial; /* the last line has no line end: the file may be cut off in it */
    bool takes_cut;  /* the reader's: compressed data may be cut off behind the first line */
    char *again;     /* the line that text_lines_back has put back; NULL: none */
    char *last;
} text_lines_t;

/* Reads gzip too, whatever the file's name. On OK, close it. Fails: IO, OUT_OF_MEMORY. */
fy_status_t text_lines_open(text_lines_t *lines, const char *path, const char *what);
/* The next line, zero-terminated, without its end; NULL: there is none. It may be changed, and
 * stays until the next call.
 * Fails: IO, CORRUPT_DATA (a zero byte, a line of more than TEXT_LINE_MOST_NBYTES - 1, compressed
 * data that are damaged or cut off), OUT_OF_MEMORY. */
fy_status_t text_lines_next(text_lines_t *lines, char **out_line);
/* The next call gives the last line again. */
void text_lines_back(text_lines_t *lines);
void text_lines_close(text_lines_t *lines);

#endif
