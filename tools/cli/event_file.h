/* Reads event files (docs/internals/events.md): lines of JSON, each a flat object whose values are
 * numbers, texts, null, true, false or lists of numbers. Not here: sums (event_totals.h). Next:
 * event_file.c. */
#ifndef FERRY_TOOLS_EVENT_FILE_H_
#define FERRY_TOOLS_EVENT_FILE_H_

#include <stdbool.h>
#include <stdint.h>

#include <ferry/status.h>

#include "tools/cli/text_file.h"

enum { EVENT_FIELDS = 32 };

typedef struct event_field {
    const char *key;
    const char *text; /* of a text, decoded; of a list, its text in the file; else NULL */
    double number;    /* of null, true and false: NaN */
    uint64_t whole;   /* the number, if it is an integer that is not negative */
} event_field_t;

/* The operands of an op: "dtypes", "shapes" and, if not all are without gaps, "strides"; the first
 * `sources` are sources. A key of NULL: absent. */
enum { EVENT_SIGNATURE_KEYS = 3 };
typedef struct event_signature {
    uint64_t sources;
    event_field_t field[EVENT_SIGNATURE_KEYS];
} event_signature_t;

/* One line; its texts lie in the line's own memory, those of its call site and its signature live
 * until the file is read. */
typedef struct event {
    uint64_t line;                      /* from 1 */
    const event_signature_t *signature; /* NULL: it has none */
    size_t count;
    event_field_t field[EVENT_FIELDS];
} event_t;

/* Makes an event of `line`, which is changed. Returns NULL on success, else the error as a text. */
const char *event_parse(char *line, event_t *out_event);

/* "" and 0 if there is no such key. The keys of an op's signature are its keys too. A call site is
 * a text, also where the file has its number; so are names of tensors (event_file.c). */
const char *event_text(const event_t *event, const char *key);
uint64_t event_whole(const event_t *event, const char *key);
/* Is the key absent, or a whole number from 0 to `most` < 2^63? If not, *out_count is 0. */
bool event_count(const event_t *event, const char *key, uint64_t most, uint64_t *out_count);
bool event_has(const event_t *event, const char *key);
bool event_is(const event_t *event, const char *kind);
/* Pairs in a list of them, or in a list that is one pair; returns how many there are, of which
 * `most` are given. */
size_t event_pairs(const event_t *event, const char *key, uint64_t (*out_pairs)[2], size_t most);

typedef struct event_file_info {
    uint64_t lines, events, lost;
    uint64_t memory_nbytes; /* of the host; 0: unknown */
    bool has_end;           /* the last line is an end */
    bool is_whole;          /* and its count is right */
} event_file_info_t;

/* Calls `fn` for each line but the first and the last. Fails: IO, CORRUPT_DATA (says which line;
 * lines before it were handed out). A file that just ends, also within a line or within compressed
 * data, is OK but not whole. */
fy_status_t event_file_read(const char *path, void (*fn)(void *user, const event_t *event),
                            void *user, event_file_info_t *out_info);
/* The same of an open file. */
fy_status_t event_lines_read(text_lines_t *lines, void (*fn)(void *user, const event_t *event),
                             void *user, event_file_info_t *out_info);

#endif
