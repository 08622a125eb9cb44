/* The pieces of a JSON text (RFC 8259), one after the other, for readers that know the next kind of
 * piece: a strict reader for input files. Not here: trees (there are none), the meaning of the
 * pieces (safetensors_header.c). Not public. See json_text.c. */
#ifndef FERRY_TRAIN_JSON_TEXT_INTERNAL_H_
#define FERRY_TRAIN_JSON_TEXT_INTERNAL_H_

#include <stddef.h>
#include <stdint.h>

typedef struct fyt_json {
    char *begin, *at, *end; /* texts are decoded in place */
    const char *wrong;      /* after a failed call: the error at `at`, as a static text */
} fyt_json_t;

/* Whether these bytes are UTF-8 (RFC 3629: no overlong forms, no surrogates, nothing past
 * U+10FFFF). */
int fyt_utf8_is_valid(const char *text, size_t nbytes);

/* The next byte that is not blank, without taking it; 0 at the end. */
char fyt_json_peek(fyt_json_t *json);
/* Takes `c`. 0: it is not there. */
int fyt_json_take(fyt_json_t *json, char c);
/* After a member or an element: takes ',' (*out_more 1) or `closer` (*out_more 0). 0: neither is
 * there. */
int fyt_json_more(fyt_json_t *json, char closer, int *out_more);
/* A text, decoded and ended by 0. The bytes must have passed fyt_utf8_is_valid. 0: none is there,
 * or it is malformed, or has a zero in it. */
int fyt_json_text(fyt_json_t *json, char **out_text);
/* A whole number from 0 to 2^64 - 1, in digits only: no sign, point, exponent or leading zero. 0:
 * anything else. */
int fyt_json_whole(fyt_json_t *json, uint64_t *out_number);

#endif
