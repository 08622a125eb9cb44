/* The tree: recursive descent with a limit on depth. Pieces of JSON: runtime/base/json.h. */
#include "tools/cli/json_tree.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/json.h"
#include "tools/cli/tool.h"

enum { MOST_DEPTH = 32, CHUNK = 1024 };

typedef struct chunk {
    struct chunk *next;
    json_value_t values[CHUNK];
} chunk_t;

typedef struct reader {
    fy__json_t json;
    json_tree_t *tree;
    size_t used; /* of the first chunk */
    int depth;
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
    r->json.wrong = wrong;
    return false;
}

static bool read_word(reader_t *r, json_value_t *value)
{
    static const char *const words[] = { "null", "false", "true" };
    for (int i = 0; i < 3; i++)
        if (fy__json_word(&r->json, words[i])) {
            value->kind = (json_kind_t)(JSON_NULL + i);
            return true;
        }
    return fail(r, r->json.at < r->json.end ? "something that is no value"
                                            : "its end where a value must be");
}

/* ---- values ---- */

static bool read_value(reader_t *r, json_value_t *value);

static bool read_key(reader_t *r, json_value_t *member)
{
    char *key;
    if (fy__json_peek(&r->json) != '"') return fail(r, "no key where there must be one");
    if (!fy__json_string(&r->json, &key)) return false;
    member->key = key;
    return fy__json_take(&r->json, ':') || fail(r, "a key without a value");
}

static bool read_members(reader_t *r, json_value_t *value, char closer)
{
    json_value_t **link = &value->child;
    const bool is_object = closer == '}';
    int more = 1;
    value->kind = is_object ? JSON_OBJECT : JSON_LIST;
    if (++r->depth > MOST_DEPTH) return fail(r, "lists in lists, too deep");
    r->json.at++;
    if (fy__json_peek(&r->json) == closer) {
        r->json.at++;
        more = 0;
    }
    while (more) {
        json_value_t *member = *link = new_value(r);
        link = &member->next;
        if (is_object && !read_key(r, member)) return false;
        if (!read_value(r, member)) return false;
        if (!fy__json_peek(&r->json)) return fail(r, "no end: the file is cut off");
        char *after = r->json.at;
        if (!fy__json_more(&r->json, closer, &more)) return false;
        /* the number's text ends here, at the latest */
        if (member->kind == JSON_NUMBER) *after = 0;
    }
    r->depth--;
    return true;
}

static bool read_value(reader_t *r, json_value_t *value)
{
    const char first = fy__json_peek(&r->json);
    char *text;
    if (first == '{') return read_members(r, value, '}');
    if (first == '[') return read_members(r, value, ']');
    if (first == '"') {
        value->kind = JSON_STRING;
        if (!fy__json_string(&r->json, &text)) return false;
        value->text = text;
        return true;
    }
    if (first != '-' && !isdigit((unsigned char)first)) return read_word(r, value);
    value->kind = JSON_NUMBER;
    return fy__json_number(&r->json, &value->text);
}

const char *json_tree_parse(char *text, json_tree_t *out_tree, size_t *out_line)
{
    reader_t r = { .json = { .begin = text, .at = text, .end = text + strlen(text) },
                   .tree = out_tree };
    *out_tree = (json_tree_t){ NULL, NULL };
    out_tree->root = new_value(&r);
    const bool ok = read_value(&r, out_tree->root);
    if (ok && fy__json_peek(&r.json)) (void)fail(&r, "something behind its end");
    *out_line = r.json.newlines + 1;
    return r.json.wrong;
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
