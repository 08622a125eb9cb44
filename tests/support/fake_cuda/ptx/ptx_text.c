/* Cuts a PTX text into statements and words. */
#include <stdlib.h>
#include <string.h>

#include "tests/support/fake_cuda/ptx/text.h"

int ptx_span_is(ptx_span_t span, const char *word)
{
    return span.n == strlen(word) && memcmp(span.at, word, span.n) == 0;
}
int ptx_span_equals(ptx_span_t a, ptx_span_t b)
{
    return a.n == b.n && memcmp(a.at, b.at, a.n) == 0;
}
int ptx_span_begins(ptx_span_t span, const char *word)
{
    return span.n >= strlen(word) && memcmp(span.at, word, strlen(word)) == 0;
}

static int is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

ptx_span_t ptx_span_trim(ptx_span_t span)
{
    while (span.n > 0 && is_space(*span.at)) span.at++, span.n--;
    while (span.n > 0 && is_space(span.at[span.n - 1])) span.n--;
    return span;
}

ptx_span_t ptx_span_cut(ptx_span_t span, const char *separators, ptx_span_t *rest)
{
    int depth = 0;
    for (size_t k = 0; k < span.n; k++) {
        const char c = span.at[k];
        depth += (c == '{' || c == '[' || c == '(') - (c == '}' || c == ']' || c == ')');
        if (depth != 0 || strchr(separators, c) == NULL) continue;
        *rest = ptx_span_trim((ptx_span_t){ span.at + k + 1, span.n - k - 1 });
        return ptx_span_trim((ptx_span_t){ span.at, k });
    }
    *rest = (ptx_span_t){ span.at + span.n, 0 };
    return ptx_span_trim(span);
}

int ptx_span_number(ptx_span_t span, uint64_t *out)
{
    char text[32], *end;
    if (span.n == 0 || span.n >= sizeof text) return 0;
    memcpy(text, span.at, span.n);
    text[span.n] = '\0';
    if (strchr("-0123456789", text[0]) == NULL) return 0;
    if (text[0] == '0' && strchr("fFdD", text[1]) != NULL && text[1] != '\0')
        *out = strtoull(text + 2, &end, 16);
    else if (text[0] == '-')
        *out = (uint64_t)strtoll(text, &end, 0);
    else
        *out = strtoull(text, &end, 0);
    return *end == '\0' || strcmp(end, "U") == 0;
}

static int is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '$' || c == '%';
}

ptx_span_t ptx_next_statement(const char **at)
{
    const char *begin = *at, *end;
    while (is_space(*begin) || strncmp(begin, "//", 2) == 0)
        begin += is_space(*begin) ? 1 : strcspn(begin, "\n");
    end = begin;
    if (*begin == '{' || *begin == '}') {
        *at = begin + 1;
        return (ptx_span_t){ begin, 1 };
    }
    if (strncmp(begin, ".loc", 4) == 0) {
        *at = begin + strcspn(begin, "\n");
        return (ptx_span_t){ begin, (size_t)(*at - begin) };
    }
    while (is_word(*end)) end++;
    if (*end == ':') {
        *at = end + 1;
        return (ptx_span_t){ begin, (size_t)(*at - begin) };
    }
    end = begin + strcspn(begin, ";");
    *at = end + (*end == ';');
    return ptx_span_trim((ptx_span_t){ begin, (size_t)(end - begin) });
}

int ptx_parse_variable(ptx_span_t text, ptx_variable_t *out)
{
    uint64_t bits = 0, length = 1;
    *out = (ptx_variable_t){ .alignment = 0 };
    for (ptx_span_t word, rest = text; rest.n > 0;) {
        word = ptx_span_cut(rest, " \t", &rest);
        if (ptx_span_is(word, ".align")) {
            word = ptx_span_cut(rest, " \t", &rest);
            if (!ptx_span_number(word, &out->alignment)) return 0;
        } else if (word.n > 2 && word.at[0] == '.' && strchr("bsuf", word.at[1]) != NULL &&
                   ptx_span_number((ptx_span_t){ word.at + 2, word.n - 2 }, &bits)) {
        } else if (word.n > 0 && word.at[0] != '.') {
            const char *bracket = memchr(word.at, '[', word.n);
            out->name = word;
            if (bracket != NULL) {
                out->name.n = (size_t)(bracket - word.at);
                length = strtoull(bracket + 1, NULL, 10);
            }
        }
    }
    out->nbytes = bits / 8 * length;
    if (out->alignment == 0) out->alignment = bits / 8;
    return out->name.n > 0 && out->nbytes > 0;
}
