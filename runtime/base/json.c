/* Pieces of JSON. Text that is not exactly valid is refused, even if other readers accept it, so
 * that two readers of one file cannot read different values. Not here: the allowed order of pieces
 * (train/safetensors_header.c, backends/sim/profile_file.c, tools/cli/json_tree.c). */
#include "runtime/base/json.h"

#include <stdio.h>
#include <string.h>

/* ---- UTF-8 ---- */

/* Length of the UTF-8 sequence at `s`, which has `left` bytes; 0: it is none (RFC 3629). */
static size_t utf8_length(const unsigned char *s, size_t left)
{
    const size_t n = s[0] < 0x80                   ? 1
                     : s[0] >= 0xC2 && s[0] < 0xE0 ? 2
                     : s[0] >= 0xE0 && s[0] < 0xF0 ? 3
                     : s[0] >= 0xF0 && s[0] < 0xF5 ? 4
                                                   : 0;
    if (n < 2) return n;
    if (n > left) return 0;
    /* The range of the second byte excludes overlong forms, surrogates and values past U+10FFFF. */
    const unsigned low = s[0] == 0xE0   ? 0xA0
                         : s[0] == 0xF0 ? 0x90
                                        : 0x80,
                   high = s[0] == 0xED   ? 0x9F
                          : s[0] == 0xF4 ? 0x8F
                                         : 0xBF;
    if (s[1] < low || s[1] > high) return 0;
    for (size_t i = 2; i < n; i++)
        if ((s[i] & 0xC0) != 0x80) return 0;
    return n;
}

int fy__utf8_is_valid(const char *text, size_t nbytes)
{
    const unsigned char *s = (const unsigned char *)text, *end = s + nbytes;
    while (s < end) {
        const size_t length = utf8_length(s, (size_t)(end - s));
        if (!length) return 0;
        s += length;
    }
    return 1;
}

/* ---- writing ---- */

size_t fy__json_quote_next(const char **text, char out[FY__JSON_QUOTED])
{
    const unsigned char *s = (const unsigned char *)*text;
    const size_t length = utf8_length(s, strnlen(*text, 4));
    *text += length ? length : 1;
    if (!length) return (size_t)snprintf(out, FY__JSON_QUOTED, "\\ufffd");
    if (*s < ' ') return (size_t)snprintf(out, FY__JSON_QUOTED, "\\u%04x", *s);
    if (*s == '"' || *s == '\\') return (size_t)snprintf(out, FY__JSON_QUOTED, "\\%c", *s);
    memcpy(out, s, length);
    return length;
}

size_t fy__json_quote(const char *text, char *out, size_t size)
{
    size_t used = 0;
    out[used++] = '"';
    while (*text) {
        char piece[FY__JSON_QUOTED];
        const size_t n = fy__json_quote_next(&text, piece);
        if (used + n + 1 > size) break;
        memcpy(out + used, piece, n);
        used += n;
    }
    out[used++] = '"';
    return used;
}

/* ---- reading ---- */

static int fail(fy__json_t *json, const char *wrong)
{
    json->wrong = wrong;
    return 0;
}

char fy__json_peek(fy__json_t *json)
{
    for (; json->at < json->end; json->at++) {
        if (*json->at == '\n')
            json->newlines++;
        else if (*json->at != ' ' && *json->at != '\t' && *json->at != '\r')
            break;
    }
    return json->at < json->end ? *json->at : 0;
}

int fy__json_take(fy__json_t *json, char c)
{
    static const struct {
        char c;
        const char *wrong;
    } wrongs[] = { { '{', "a '{' was expected" },
                   { '[', "a '[' was expected" },
                   { ']', "a ']' was expected" },
                   { ':', "a ':' was expected" } };
    if (fy__json_peek(json) == c) {
        json->at++;
        return 1;
    }
    for (size_t i = 0; i < sizeof wrongs / sizeof *wrongs; i++)
        if (wrongs[i].c == c) return fail(json, wrongs[i].wrong);
    return fail(json, "something else was expected");
}

int fy__json_more(fy__json_t *json, char closer, int *out_more)
{
    const char c = fy__json_peek(json);
    *out_more = c == ',';
    if (c != ',' && c != closer)
        return fail(json,
                    closer == '}' ? "a ',' or '}' was expected" : "a ',' or ']' was expected");
    json->at++;
    return 1;
}

static int hex4(const char *s, const char *end, unsigned *out_code)
{
    *out_code = 0;
    if (end - s < 4) return 0;
    for (int i = 0; i < 4; i++) {
        const char c = s[i];
        const int digit = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
        if (digit < 0) return 0;
        *out_code = *out_code * 16 + (unsigned)digit;
    }
    return 1;
}

static char *put_utf8(char *to, unsigned code)
{
    if (code < 0x80) {
        *to++ = (char)code;
        return to;
    }
    const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    *to++ = (char)((0xF00 >> (more + 1)) | code >> 6 * more);
    for (int i = more; i-- > 0;) *to++ = (char)(0x80 | (code >> 6 * i & 0x3F));
    return to;
}

/* json->at is after "\u". The output is never longer than the input (a pair: 12 bytes to 4). */
static char *take_unicode(fy__json_t *json, char *to)
{
    unsigned code, low;
    if (!hex4(json->at, json->end, &code) || (code >= 0xDC00 && code < 0xE000)) return NULL;
    json->at += 4;
    if (code >= 0xD800 && code < 0xDC00) {
        if (json->end - json->at < 6 || json->at[0] != '\\' || json->at[1] != 'u' ||
            !hex4(json->at + 2, json->end, &low) || low < 0xDC00 || low >= 0xE000)
            return NULL;
        json->at += 6;
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    return code ? put_utf8(to, code) : NULL; /* a zero would end the text in C */
}

int fy__json_string(fy__json_t *json, char **out_text)
{
    static const char from[] = "\"\\/bfnrt", into[] = "\"\\/\b\f\n\r\t";
    const char first = fy__json_peek(json);
    if (first != '"')
        return fail(json, first == '{' || first == '[' ? "something nested, where a text must be"
                                                       : "a text was expected");
    char *to = ++json->at;
    *out_text = to;
    while (json->at < json->end && *json->at != '"') {
        if ((unsigned char)*json->at < ' ') return fail(json, "a control character in a text");
        if (*json->at != '\\') {
            *to++ = *json->at++;
            continue;
        }
        if (json->end - json->at < 2) break;
        const char escaped = json->at[1], *escape = escaped ? strchr(from, escaped) : NULL;
        json->at += 2;
        if (escape)
            *to++ = into[escape - from];
        else if (escaped != 'u' || !(to = take_unicode(json, to)))
            return fail(json, "an unknown escape, half of a surrogate pair, or a zero");
    }
    if (json->at >= json->end || *json->at != '"') return fail(json, "a text without an end");
    json->at++;
    *to = 0; /* at the closing quote, at the latest */
    return 1;
}

int fy__json_whole(fy__json_t *json, uint64_t *out_number)
{
    const char first = fy__json_peek(json);
    uint64_t number = 0;
    if (first == '{' || first == '[')
        return fail(json, "something nested, where a whole number must be");
    if (first < '0' || first > '9') return fail(json, "a whole number, 0 or more, was expected");
    if (first == '0' && json->end - json->at > 1 && json->at[1] >= '0' && json->at[1] <= '9')
        return fail(json, "a number that begins with 0");
    for (; json->at < json->end && *json->at >= '0' && *json->at <= '9'; json->at++)
        if (__builtin_mul_overflow(number, 10, &number) ||
            __builtin_add_overflow(number, (uint64_t)(*json->at - '0'), &number))
            return fail(json, "a number past 2^64 - 1");
    if (json->at < json->end && (*json->at == '.' || *json->at == 'e' || *json->at == 'E'))
        return fail(json, "a number with a point or an exponent, where a whole number must be");
    *out_number = number;
    return 1;
}

static int is_digit_at(const fy__json_t *json)
{
    return json->at < json->end && *json->at >= '0' && *json->at <= '9';
}

static int skip_digits(fy__json_t *json, const char *wrong)
{
    if (!is_digit_at(json)) return fail(json, wrong);
    while (is_digit_at(json)) json->at++;
    return 1;
}

int fy__json_number(fy__json_t *json, const char **out_text)
{
    const char first = fy__json_peek(json);
    *out_text = json->at;
    json->at += first == '-';
    const int is_zero = is_digit_at(json) && *json->at == '0';
    const char *digits = json->at;
    if (!skip_digits(json, "a number was expected")) return 0;
    if (is_zero && json->at - digits > 1) return fail(json, "a number that begins with 0");
    if (json->at < json->end && *json->at == '.') {
        json->at++;
        if (!skip_digits(json, "a number without digits behind its point")) return 0;
    }
    if (json->at < json->end && (*json->at == 'e' || *json->at == 'E')) {
        json->at++;
        json->at += json->at < json->end && (*json->at == '-' || *json->at == '+');
        if (!skip_digits(json, "a number without digits in its exponent")) return 0;
    }
    return 1;
}

int fy__json_word(fy__json_t *json, const char *word)
{
    const size_t length = strlen(word);
    (void)fy__json_peek(json);
    if ((size_t)(json->end - json->at) < length || memcmp(json->at, word, length) != 0) return 0;
    json->at += length;
    return 1;
}
