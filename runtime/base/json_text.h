/* A text as a JSON string (RFC 8259). Bytes that are not UTF-8 become U+FFFD. */
#ifndef FERRY_RUNTIME_BASE_JSON_TEXT_H_
#define FERRY_RUNTIME_BASE_JSON_TEXT_H_

#include <stddef.h>

/* Writes the text with its quotes, without a final 0; returns the bytes written. Truncates at
 * `size` (at least 2). */
size_t fy__json_text(const char *text, char *out, size_t size);

#endif
