/* Writes one JSON document (RFC 8259) to a stream: brackets, commas and escapes are kept right
 * here, nowhere else.
 * `key` is NULL for members of an array and for the document itself. Next: json.c. */
#ifndef FERRY_TOOLS_JSON_H_
#define FERRY_TOOLS_JSON_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { JSON_MAX_DEPTH = 16 };

typedef struct json {
    FILE *file;
    int depth;
    char closers[JSON_MAX_DEPTH];
    bool has_members[JSON_MAX_DEPTH + 1];
} json_t;

void json_begin_object(json_t *json, const char *key);
void json_begin_array(json_t *json, const char *key);
/* Closes the innermost object or array. */
void json_end(json_t *json);
/* NULL is null. Bytes that are not UTF-8 become U+FFFD. */
void json_text(json_t *json, const char *key, const char *text);
/* `nbytes` bytes, zeros too. is_utf8: they are UTF-8. Else each byte is a character: those above
 * 127 are \u0080 to \u00ff (Latin-1). */
void json_bytes(json_t *json, const char *key, const char *bytes, size_t nbytes, bool is_utf8);
void json_int(json_t *json, const char *key, int64_t value);
void json_uint(json_t *json, const char *key, uint64_t value);
/* Nine significant digits; NaN and infinities become null. */
void json_real(json_t *json, const char *key, double value);
void json_bool(json_t *json, const char *key, bool value);

#endif
