/* JSON strings. The writers of JSON are runtime/record/event_write.c and
 * transfer/ledger_write.c. */
#include "runtime/base/json_text.h"

#include <stdio.h>
#include <string.h>

/* Length of the UTF-8 sequence at `s`, 0 if it is none (RFC 3629). */
static size_t utf8_length(const unsigned char *s)
{
    const size_t n = s[0] < 0x80                   ? 1
                     : s[0] >= 0xC2 && s[0] < 0xE0 ? 2
                     : s[0] >= 0xE0 && s[0] < 0xF0 ? 3
                     : s[0] >= 0xF0 && s[0] < 0xF5 ? 4
                                                   : 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xC0) != 0x80) return 0;
    if ((s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] >= 0xA0)) return 0;
    if ((s[0] == 0xF0 && s[1] < 0x90) || (s[0] == 0xF4 && s[1] >= 0x90)) return 0;
    return n;
}

size_t fy__json_text(const char *text, char *out, size_t size)
{
    size_t used = 0;
    out[used++] = '"';
    for (const unsigned char *s = (const unsigned char *)text; *s;) {
        char escape[8];
        const char *piece = escape;
        size_t length = utf8_length(s), n = length;
        if (!length) {
            piece = "\\ufffd";
            length = 1;
            n = 6;
        } else if (*s < ' ') {
            snprintf(escape, sizeof escape, "\\u%04x", *s);
            n = 6;
        } else if (*s == '"' || *s == '\\') {
            escape[0] = '\\';
            escape[1] = (char)*s;
            n = 2;
        } else
            piece = (const char *)s;
        if (used + n + 1 > size) break;
        memcpy(out + used, piece, n);
        used += n;
        s += length;
    }
    out[used++] = '"';
    return used;
}
