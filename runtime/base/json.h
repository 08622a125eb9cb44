/* JSON (RFC 8259): its pieces, one after the other, for readers that know the next kind of piece,
 * and quoted texts for writers. A strict reader for input files. libferry_train and the command
 * compile it too. Not here: trees (tools/cli/json_tree.h), the meaning of the pieces. */
#ifndef FERRY_RUNTIME_BASE_JSON_H_
#define FERRY_RUNTIME_BASE_JSON_H_

#include <stddef.h>
#include <stdint.h>

/* Whether these bytes are UTF-8 (RFC 3629: no overlong forms, no surrogates, nothing past
 * U+10FFFF). */
int fy__utf8_is_valid(const char *text, size_t nbytes);

/* ---- writing ---- */

enum { FY__JSON_QUOTED = 8 };
/* Writes the next character of `text`, which is not empty, as a JSON text has it. Returns the bytes
 * written and moves `text` on. A byte that is not UTF-8 becomes U+FFFD. */
size_t fy__json_quote_next(const char **text, char out[FY__JSON_QUOTED]);
/* Writes the text with its quotes, without a final 0; returns the bytes written. Truncates at
 * `size` (at least 2). */
size_t fy__json_quote(const char *text, char *out, size_t size);

/* ---- reading ---- */

typedef struct fy__json {
    char *begin, *at, *end; /* texts are decoded in place */
    const char *wrong;      /* after a failed call: the error at `at`, as a static text */
    size_t newlines;        /* before `at` */
} fy__json_t;

/* The next byte that is not blank, without taking it; 0 at the end. */
char fy__json_peek(fy__json_t *json);
/* Takes `c`. 0: it is not there. */
int fy__json_take(fy__json_t *json, char c);
/* After a member or an element: takes ',' (*out_more 1) or `closer` (*out_more 0). 0: neither is
 * there. */
int fy__json_more(fy__json_t *json, char closer, int *out_more);
/* A text, decoded and ended by 0. Bytes above 127 are not checked (fy__utf8_is_valid). 0: none is
 * there, or it is malformed, or has a zero in it. */
int fy__json_string(fy__json_t *json, char **out_text);
/* A whole number from 0 to 2^64 - 1, in digits only: no sign, point, exponent or leading zero. 0:
 * anything else. */
int fy__json_whole(fy__json_t *json, uint64_t *out_number);
/* Any number: *out_text is its first byte, and `at` is after its last. 0: none is there. */
int fy__json_number(fy__json_t *json, const char **out_text);
/* Takes `word`: true, false or null. 0: it is not there; `wrong` does not change. */
int fy__json_word(fy__json_t *json, const char *word);

#endif
