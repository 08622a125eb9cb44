/* Walks a document; see figures.h. The reader of JSON bounds the depth. */
#include "tools/cli/figures.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/tool.h"

enum { PATH_ROOM = 256 };

static double number_of(const json_value_t *value)
{
    return value && value->kind == JSON_NUMBER ? strtod(value->text, NULL) : NAN;
}

static bool ends_in(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n > m && strcmp(text + n - m, end) == 0;
}

/* "ns_per_iter_low" and so on: parts of another figure. */
static bool is_part(const char *key)
{
    static const char *const ends[] = { "_q1", "_q3", "_low", "_high", "_half_percent" };
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends_in(key, ends[i])) return true;
    return false;
}

/* "total_ns", "ns_per_iter", "step_model_ns"; not what only one run has, its worst round and its
 * peer's. */
static bool is_time(const char *key)
{
    if (strncmp(key, "model_", 6) == 0) key += 6;
    if (strncmp(key, "worst_", 6) == 0 || strncmp(key, "peer_", 5) == 0) return false;
    return strncmp(key, "ns_", 3) == 0 || strcmp(key, "ns") == 0 || strstr(key, "_ns_") ||
           ends_in(key, "_ns");
}

static const json_value_t *member_of(const json_value_t *object, const char *key, const char *end)
{
    char name[96];
    snprintf(name, sizeof name, "%s%s", key, end);
    return json_member(object, name);
}

/* A row with a unit is by a clock only if that is a time; a row can also have no clock at all. */
static bool has_clock(const json_value_t *object)
{
    const json_value_t *unit = json_member(object, "unit"), *clock = json_member(object, "clock");
    if (clock && clock->kind != JSON_STRING) return false;
    return !unit || unit->kind != JSON_STRING || strncmp(unit->text, "ns", 2) == 0 ||
           strstr(unit->text, " ns");
}

static void add(document_t *d, const char *path, figure_t figure)
{
    bool is_new;
    size_t *place = text_index_at(&d->index, path, &is_new);
    if (!is_new || !isfinite(figure.value)) return; /* the first of equal rows */
    *place = d->count;
    d->figures = tool_grow(d->figures, d->count, sizeof *d->figures);
    figure.path = text_index_keep(&d->index, path);
    d->figures[d->count++] = figure;
}

/* Texts that say something about the run of a row, not which row it is. */
static bool is_about_run(const char *key)
{
    static const char *const names[] = { "clock", "status", "holds", "verdict", "implementation" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(key, names[i]) == 0) return true;
    return false;
}

/* Numbers that tell rows apart. */
static bool is_size(const char *key)
{
    static const char *const names[] = { "size",    "nbytes",   "pieces", "batch",      "threads",
                                         "devices", "elements", "row",    "live_blocks" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(key, names[i]) == 0) return true;
    return false;
}

static void name_element(const json_value_t *element, size_t place, char *out_name, size_t room)
{
    size_t used = 0;
    out_name[0] = '\0';
    for (const json_value_t *at = element->kind == JSON_OBJECT ? element->child : NULL; at;
         at = at->next) {
        const bool tells = at->kind == JSON_STRING   ? !is_about_run(at->key)
                           : at->kind == JSON_NUMBER ? is_size(at->key)
                                                     : false;
        if (tells && used < room)
            used += (size_t)snprintf(out_name + used, room - used, "%s%s", used > 0 ? " " : "",
                                     at->text);
    }
    if (used == 0) snprintf(out_name, room, "%zu", place);
}

typedef struct walk {
    document_t *document;
    const char *key; /* NULL: times */
} walk_t;

static void walk(walk_t *w, const char *path, const json_value_t *value, bool is_model,
                 bool is_chosen);

static void walk_member(walk_t *w, const char *path, const json_value_t *object,
                        const json_value_t *member, bool is_model, bool is_chosen)
{
    char below[PATH_ROOM];
    const char *key = member->key;
    const json_value_t *low = member_of(object, key, "_low");
    snprintf(below, sizeof below, "%s%s%s", path, *path ? "/" : "", key);
    if (!w->key && member->kind == JSON_NUMBER) {
        if (!is_part(key) && (low || is_time(key)))
            add(w->document, below,
                (figure_t){ NULL, number_of(member), number_of(low),
                            number_of(member_of(object, key, "_high")), has_clock(object),
                            is_model || strncmp(key, "model_", 6) == 0 || strstr(key, "_model_") });
        return;
    }
    walk(w, below, member, is_model, is_chosen || (w->key && strcmp(key, w->key) == 0));
}

static void walk(walk_t *w, const char *path, const json_value_t *value, bool is_model,
                 bool is_chosen)
{
    char below[PATH_ROOM], name[160];
    size_t place = 0;
    if (value->kind == JSON_NUMBER && is_chosen)
        add(w->document, path, (figure_t){ NULL, number_of(value), NAN, NAN, true, is_model });
    if (value->kind == JSON_LIST)
        for (const json_value_t *x = value->child; x; x = x->next) {
            name_element(x, place++, name, sizeof name);
            snprintf(below, sizeof below, "%s%s%s", path, *path ? "/" : "", name);
            walk(w, below, x, is_model, is_chosen);
        }
    if (value->kind != JSON_OBJECT) return;
    const char *clock = json_member_text(value, "clock");
    if (clock) is_model = strcmp(clock, "model") == 0;
    for (const json_value_t *member = value->child; member; member = member->next)
        walk_member(w, path, value, member, is_model, is_chosen);
}

fy_status_t document_parse(document_t *document, char *text, const char *key)
{
    size_t line;
    walk_t w = { document, key };
    document->text = text;
    const char *wrong = json_tree_parse(text, &document->tree, &line);
    if (wrong) return TOOL_FAIL(CORRUPT_DATA, "%s, line %zu: %s", document->path, line, wrong);
    walk(&w, "", document->tree.root, false, false);
    return FY_STATUS_OK;
}

void document_close(document_t *document)
{
    if (document->text) json_tree_free(&document->tree);
    free(document->text);
    free(document->figures);
    text_index_free(&document->index);
}

const figure_t *document_find(document_t *document, const char *path)
{
    bool is_new;
    const size_t place = *text_index_at(&document->index, path, &is_new);
    return place == SIZE_MAX ? NULL : &document->figures[place];
}

const char *document_kind(const document_t *document, char *text, size_t room)
{
    static const char *const kinds[] = { "experiment", "bench", "calibrate", "model" };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const char *name = json_member_text(document->tree.root, kinds[i]);
        if (!name) continue;
        snprintf(text, room, "%s %s", kinds[i], name);
        return text;
    }
    return NULL;
}
