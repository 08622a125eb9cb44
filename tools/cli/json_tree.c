/* The JSON reader: recursive descent with a limit on depth; texts are decoded where they lie. */
#include "tools/cli/json_tree.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/tool.h"

enum { MOST_DEPTH = 32, CHUNK = 1024 };

typedef struct chunk {
    struct chunk *next;
    json_value_t values[CHUNK];
} chunk_t;

typedef struct reader {
    char *s;
    json_tree_t *tree;
    size_t used; /* of the first chunk */
    size_t line;
    int depth;
    const char *wrong;
} reader_t;

static json_value_t *new_value(reader_t *r)
{
    if (!r->tree->chunks || r->used == CHUNK) {
        chunk_t *chunk = tool_alloc(sizeof *chunk);
        chunk->next = r->tree->chunks;
        r->tree->chunks = chunk;
        r->used = 0;
    }
    return &((chunk_t *)r->tree->chunks)->values[r->used++];
}

static bool fail(reader_t *r, const char *wrong)
{
    if (!r->wrong) r->wrong = wrong;
    return false;
}

static char next_char(reader_t *r)
{
    for (; *r->s == ' ' || *r->s == '\t' || *r->s == '\r' || *r->s == '\n'; r->s++)
        r->line += *r->s == '\n';
    return *r->s;
}

/* ---- texts ---- */

static bool hex4(const char *s, unsigned *out_code)
{
    *out_code = 0;
    for (int i = 0; i < 4; i++) {
        if (!isxdigit((unsigned char)s[i])) return false;
        *out_code = *out_code * 16 +
                    (unsigned)(isdigit((unsigned char)s[i]) ? s[i] - '0' : (s[i] | 32) - 'a' + 10);
    }
    return true;
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

/* *s is after "\u"; writes at most as many bytes as it reads. */
static char *read_unicode(char **s, char *to)
{
    unsigned code, low;
    if (!hex4(*s, &code)) return NULL;
    *s += 4;
    if (code >= 0xDC00 && code < 0xE000) return NULL;
    if (code >= 0xD800 && code < 0xDC00) {
        if ((*s)[0] != '\\' || (*s)[1] != 'u' || !hex4(*s + 2, &low) || low < 0xDC00 ||
            low >= 0xE000)
            return NULL;
        *s += 6;
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    return code ? put_utf8(to, code) : NULL; /* a zero would end the text */
}

const char *json_text_decode(char *s, char **out_end)
{
    static const char from[] = "\"\\/bfnrt", into[] = "\"\\/\b\f\n\r\t";
    char *to = ++s;
    while (*s != '"') {
        if ((unsigned char)*s < ' ')
            return *s ? "a text with a control character in it" : "a text without an end";
        if (*s != '\\') {
            *to++ = *s++;
            continue;
        }
        const char escaped = s[1], *escape = escaped ? strchr(from, escaped) : NULL;
        s += 2;
        if (escape)
            *to++ = into[escape - from];
        else if (escaped != 'u' || !(to = read_unicode(&s, to)))
            return "a text with an unknown escape";
    }
    *out_end = s + 1;
    *to = 0;
    return NULL;
}

static bool read_string(reader_t *r, const char **out_text)
{
    *out_text = r->s + 1;
    const char *wrong = json_text_decode(r->s, &r->s);
    return !wrong || fail(r, wrong);
}

/* ---- numbers and words ---- */

static void skip_digits(reader_t *r)
{
    while (isdigit((unsigned char)*r->s)) r->s++;
}

static bool read_number(reader_t *r, json_value_t *value)
{
    value->kind = JSON_NUMBER;
    value->text = r->s;
    r->s += *r->s == '-';
    if (!isdigit((unsigned char)*r->s)) return fail(r, "something that is no value");
    if (*r->s == '0' && isdigit((unsigned char)r->s[1]))
        return fail(r, "a number that begins with 0");
    skip_digits(r);
    if (*r->s == '.') {
        r->s++;
        if (!isdigit((unsigned char)*r->s))
            return fail(r, "a number without digits behind its point");
        skip_digits(r);
    }
    if (*r->s == 'e' || *r->s == 'E') {
        r->s++;
        r->s += *r->s == '-' || *r->s == '+';
        if (!isdigit((unsigned char)*r->s))
            return fail(r, "a number without digits in its exponent");
        skip_digits(r);
    }
    return true;
}

static bool read_word(reader_t *r, json_value_t *value)
{
    static const char *const words[] = { "null", "false", "true" };
    for (int i = 0; i < 3; i++)
        if (strncmp(r->s, words[i], strlen(words[i])) == 0) {
            value->kind = (json_kind_t)(JSON_NULL + i);
            r->s += strlen(words[i]);
            return true;
        }
    return fail(r, *r->s ? "something that is no value" : "its end where a value must be");
}

/* ---- values ---- */

static bool read_value(reader_t *r, json_value_t *value);

static bool read_members(reader_t *r, json_value_t *value, char closer)
{
    json_value_t **link = &value->child;
    const bool is_object = closer == '}';
    value->kind = is_object ? JSON_OBJECT : JSON_LIST;
    if (++r->depth > MOST_DEPTH) return fail(r, "lists in lists, too deep");
    r->s++;
    if (next_char(r) != closer) {
        for (;;) {
            json_value_t *member = *link = new_value(r);
            link = &member->next;
            if (is_object) {
                if (next_char(r) != '"') return fail(r, "no key where there must be one");
                if (!read_string(r, &member->key)) return false;
                if (next_char(r) != ':') return fail(r, "a key without a value");
                r->s++;
            }
            if (!read_value(r, member)) return false;
            const char after = next_char(r);
            if (after == closer) break;
            if (after != ',')
                return fail(r,
                            after ? "something between two values" : "no end: the file is cut off");
            /* the number's text ends here, at the latest */
            if (member->kind == JSON_NUMBER) *r->s = 0;
            r->s++;
        }
    }
    r->s++;
    r->depth--;
    return true;
}

static bool read_value(reader_t *r, json_value_t *value)
{
    switch (next_char(r)) {
    case '{': return read_members(r, value, '}');
    case '[': return read_members(r, value, ']');
    case '"': value->kind = JSON_STRING; return read_string(r, &value->text);
    case '-': return read_number(r, value);
    default: return isdigit((unsigned char)*r->s) ? read_number(r, value) : read_word(r, value);
    }
}

const char *json_tree_parse(char *text, json_tree_t *out_tree, size_t *out_line)
{
    reader_t r = { .s = text, .tree = out_tree, .line = 1 };
    *out_tree = (json_tree_t){ NULL, NULL };
    out_tree->root = new_value(&r);
    const bool ok = read_value(&r, out_tree->root);
    if (ok && next_char(&r)) (void)fail(&r, "something behind its end");
    *out_line = r.line;
    return r.wrong;
}

void json_tree_free(json_tree_t *tree)
{
    for (chunk_t *chunk = tree->chunks, *next; chunk; chunk = next) {
        next = chunk->next;
        free(chunk);
    }
    *tree = (json_tree_t){ NULL, NULL };
}

/* ---- looking ---- */

const json_value_t *json_member(const json_value_t *object, const char *key)
{
    if (!object || object->kind != JSON_OBJECT) return NULL;
    const json_value_t *member = object->child;
    while (member && strcmp(member->key, key) != 0) member = member->next;
    return member;
}

const char *json_member_text(const json_value_t *object, const char *key)
{
    const json_value_t *member = json_member(object, key);
    return member && member->kind == JSON_STRING ? member->text : NULL;
}

bool json_whole(const json_value_t *value, uint64_t *out_number)
{
    char *end;
    if (!value || value->kind != JSON_NUMBER || !isdigit((unsigned char)*value->text)) return false;
    errno = 0;
    *out_number = strtoull(value->text, &end, 10);
    return !errno && *end != '.' && *end != 'e' && *end != 'E';
}
