/* The reader of event files. It reads only the JSON that such files hold; anything else is refused
 * with the line's number. */
#include "tools/cli/event_file.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/json.h"
#include "tools/cli/tool.h"

static char *skip_space(char *s)
{
    while (*s == ' ' || *s == '\t' || *s == '\r' || *s == '\n') s++;
    return s;
}

/* Decodes the text that begins at the quote `s`, in place; *out_end is behind it. NULL: it is
 * none. */
static const char *read_text(char *s, char *line_end, char **out_end)
{
    fy__json_t json = { .begin = s, .at = s, .end = line_end };
    char *text;
    if (!fy__json_string(&json, &text)) return NULL;
    *out_end = json.at;
    return text;
}

/* A list of numbers and lists; NULL: it is none. */
static char *skip_list(char *s)
{
    int depth = 0;
    for (;; s++) {
        if (*s == '[')
            depth++;
        else if (*s == ']' && --depth == 0)
            return s + 1;
        else if (*s != ']' && *s != ',' && *s != ' ' && !(*s >= '0' && *s <= '9') &&
                 strncmp(s, "null", 4) != 0)
            return NULL;
        if (*s == 'n') s += 3;
    }
}

/* Nearly every number is whole and short. NULL: no number. */
static char *read_number(char *s, event_field_t *field)
{
    enum { DIGITS = 15 }; /* a double has them exactly */
    uint64_t whole = 0;
    char *end = s;
    for (; end - s < DIGITS && isdigit((unsigned char)*end); end++)
        whole = whole * 10 + (uint64_t)(*end - '0');
    if (end == s && *s != '-') return NULL;
    if (end > s && !isdigit((unsigned char)*end) && !strchr(".eE", *end)) {
        field->number = (double)whole;
        field->whole = whole;
        return end;
    }
    field->number = strtod(s, &end);
    field->whole = *s == '-' ? 0 : strtoull(s, NULL, 10);
    return end;
}

/* NULL: no value. */
static char *read_value(char *s, char *line_end, event_field_t *field)
{
    static const char *const words[] = { "null", "false", "true" };
    char *end;
    if (*s == '"') return (field->text = read_text(s, line_end, &end)) ? end : NULL;
    if (*s == '[') {
        if (!(end = skip_list(s))) return NULL;
        field->text = s;
        return end;
    }
    for (int i = 0; i < 3; i++)
        if (strncmp(s, words[i], strlen(words[i])) == 0) {
            field->number = (double)NAN;
            field->whole = i == 2;
            return s + strlen(words[i]);
        }
    return read_number(s, field);
}

const char *event_parse(char *line, event_t *out_event)
{
    char *s = skip_space(line), *end, *line_end = s + strlen(s);
    out_event->count = 0;
    out_event->signature = NULL;
    if (*s++ != '{') return "is no JSON object";
    for (end = line_end; end > s && (end[-1] == '\n' || end[-1] == '\r' || end[-1] == ' ');) end--;
    if (end[-1] != '}') return "is cut off";
    while (*(s = skip_space(s)) != '}') {
        event_field_t *field = &out_event->field[out_event->count];
        if (out_event->count == EVENT_FIELDS) return "has too many keys";
        *field = (event_field_t){ NULL, NULL, 0, 0 };
        if (*s != '"' || !(field->key = read_text(s, line_end, &end)))
            return "has no key where there must be one";
        s = skip_space(end);
        if (*s != ':') return "has a key without a value";
        if (!(s = read_value(skip_space(s + 1), line_end, field)))
            return "has a value that no event has";
        out_event->count++;
        s = skip_space(s);
        const char next = *s;
        if (field->text && field->text[0] == '[') *s = 0; /* the list's text ends here */
        if (next == ',') {
            s++;
            continue;
        }
        if (next == '}') return *skip_space(s + 1) ? "has something behind its end" : NULL;
        return "has something between its keys";
    }
    return *skip_space(s + 1) ? "has something behind its end" : NULL;
}

/* Most texts differ in one of their first two bytes, which costs no call. */
static inline bool is_equal(const char *a, const char *b)
{
    return a[0] == b[0] && (!a[0] || (a[1] == b[1] && strcmp(a, b) == 0));
}

static const event_field_t *find(const event_t *event, const char *key)
{
    for (size_t i = 0; i < event->count; i++)
        if (is_equal(event->field[i].key, key)) return &event->field[i];
    for (size_t i = 0; event->signature && i < EVENT_SIGNATURE_KEYS; i++) {
        const event_field_t *field = &event->signature->field[i];
        if (field->key && is_equal(field->key, key)) return field;
    }
    return NULL;
}

bool event_has(const event_t *event, const char *key) { return find(event, key) != NULL; }
bool event_is(const event_t *event, const char *kind)
{
    return is_equal(event_text(event, "ev"), kind);
}

const char *event_text(const event_t *event, const char *key)
{
    const event_field_t *field = find(event, key);
    return field && field->text ? field->text : "";
}

uint64_t event_whole(const event_t *event, const char *key)
{
    const event_field_t *field = find(event, key);
    return field ? field->whole : 0;
}

/* The two values of a number are equal only if it is such a number. */
bool event_count(const event_t *event, const char *key, uint64_t most, uint64_t *out_count)
{
    const event_field_t *field = find(event, key);
    const bool is_count =
        !field || (!field->text && field->whole <= most && field->number == (double)field->whole);
    *out_count = field && is_count ? field->whole : 0;
    return is_count;
}

size_t event_pairs(const event_t *event, const char *key, uint64_t (*out_pairs)[2], size_t most)
{
    size_t n = 0;
    for (const char *s = event_text(event, key); (s = strpbrk(s, "0123456789")); n++) {
        char *end;
        const uint64_t id = strtoull(s, &end, 10),
                       version = strtoull(end + (*end == ','), &end, 10);
        if (n < most) {
            out_pairs[n][0] = id;
            out_pairs[n][1] = version;
        }
        s = end;
    }
    return n;
}

/* ---- lines to which later lines refer by a number: call sites, signatures, names of tensors.
 * Numbers beyond the table are not replaced ---- */

enum { EVENT_NAMES = 1 << 16, EVENT_NAMES_TEXT = 512 };

typedef struct event_names {
    char **site;                   /* by id; NULL: none has it */
    char **name;                   /* by id */
    event_signature_t **signature; /* by id */
    char tensors[EVENT_NAMES_TEXT];
} event_names_t;

static void free_signature(event_signature_t *signature)
{
    for (size_t i = 0; signature && i < EVENT_SIGNATURE_KEYS; i++)
        free((char *)signature->field[i].text);
    free(signature);
}

static void keep_text(char ***texts, const char *text, uint64_t id)
{
    if (!*texts) *texts = tool_alloc(EVENT_NAMES * sizeof **texts);
    free((*texts)[id]);
    (*texts)[id] = tool_copy_text(text);
}

static void keep_signature(event_names_t *names, const event_t *event, uint64_t id)
{
    static const char *const keys[EVENT_SIGNATURE_KEYS] = { "dtypes", "shapes", "strides" };
    event_signature_t *signature = tool_alloc(sizeof *signature);
    if (!names->signature) names->signature = tool_alloc(EVENT_NAMES * sizeof *names->signature);
    free_signature(names->signature[id]);
    signature->sources = event_whole(event, "sources");
    for (size_t i = 0; i < EVENT_SIGNATURE_KEYS; i++)
        if (event_has(event, keys[i]))
            signature->field[i] =
                (event_field_t){ .key = keys[i],
                                 .text = tool_copy_text(event_text(event, keys[i])) };
    names->signature[id] = signature;
}

static const char *name_at(const event_names_t *names, uint64_t id)
{
    const char *name = names->name && id < EVENT_NAMES ? names->name[id] : NULL;
    return id && name ? name : "-";
}

/* "[3,0]" becomes "x, -"; names beyond the text's end are left out. */
static const char *join(event_names_t *names, const char *list)
{
    size_t used = 0;
    names->tensors[0] = 0;
    for (const char *at = list; (at = strpbrk(at, "0123456789"));) {
        char *end;
        const char *name = name_at(names, strtoull(at, &end, 10));
        at = end;
        if (used + strlen(name) + 3 > sizeof names->tensors) break;
        used += (size_t)snprintf(names->tensors + used, sizeof names->tensors - used, "%s%s",
                                 used ? ", " : "", name);
    }
    return names->tensors;
}

/* Does the event give a number its text? Then keeps it. */
static bool keep(event_names_t *names, const event_t *event)
{
    const uint64_t id = event_whole(event, "id");
    const bool is_site = event_is(event, "site"), is_name = event_is(event, "name");
    if (!is_site && !is_name && !event_is(event, "signature")) return false;
    if (!id || id >= EVENT_NAMES) return true;
    if (is_site)
        keep_text(&names->site, event_text(event, "site"), id);
    else if (is_name)
        keep_text(&names->name, event_text(event, "name"), id);
    else
        keep_signature(names, event, id);
    return true;
}

/* Keeps a `site`, `name` or `signature` line; gives any other event the texts of its numbers:
 * "site" and "name" get their text, "names" the names as "x, w1, -" (-: a tensor without a name;
 * valid until the next event), and the keys of its signature become keys of the event. */
static void event_names_resolve(event_names_t *names, event_t *event)
{
    event->signature = NULL;
    if (keep(names, event)) return;
    for (size_t i = 0; i < event->count; i++) {
        event_field_t *field = &event->field[i];
        if (field->text && field->text[0] == '[' && strcmp(field->key, "names") == 0)
            field->text = join(names, field->text);
        if (field->text || !field->whole || field->whole >= EVENT_NAMES) continue;
        if (names->site && strcmp(field->key, "site") == 0)
            field->text = names->site[field->whole];
        else if (strcmp(field->key, "name") == 0)
            field->text = name_at(names, field->whole);
        else if (names->signature && strcmp(field->key, "signature") == 0)
            event->signature = names->signature[field->whole];
    }
}

static void event_names_free(event_names_t *names)
{
    for (size_t i = 0; i < EVENT_NAMES; i++) {
        if (names->site) free(names->site[i]);
        if (names->name) free(names->name[i]);
        if (names->signature) free_signature(names->signature[i]);
    }
    free(names->site);
    free(names->name);
    free(names->signature);
}

/* ---- files ---- */

/* Makes an event of a line and counts it. The last line of a file that is cut off is no event: its
 * number is 0. */
static fy_status_t read_line(const text_lines_t *lines, char *line, event_t *event,
                             event_file_info_t *info)
{
    const char *path = lines->input.path;
    if (++info->lines == 1) {
        if (*line && *line != '{')
            return TOOL_FAIL(CORRUPT_DATA,
                             "%s is no event file: line 1 begins with byte 0x%02x, not with '{'",
                             path, (unsigned char)*line);
        if (strncmp(line, "{\"snapshot\"", 11) == 0)
            return TOOL_FAIL(
                CORRUPT_DATA,
                "%s is a snapshot of memory, no event file; 'ferry memory %s' reads it", path,
                path);
    }
    const char *wrong = info->has_end ? "follows the end of the recording"
                                      : event_parse(line, event);
    if (!wrong && info->lines == 1 && !event_is(event, "ferry"))
        wrong = "does not begin an event file: its \"ev\" must be \"ferry\"";
    if (wrong && lines->is_partial && info->lines > 1 && !info->has_end) {
        event->line = 0;
        return FY_STATUS_OK;
    }
    if (wrong)
        return TOOL_FAIL(CORRUPT_DATA, "%s is no whole event file: line %llu %s", path,
                         (unsigned long long)info->lines, wrong);
    if (info->lines == 1 && event_whole(event, "version") != 1)
        return TOOL_FAIL(CORRUPT_DATA, "%s is of version %llu; this command reads version 1", path,
                         (unsigned long long)event_whole(event, "version"));
    if (info->lines == 1) info->memory_nbytes = event_whole(event, "memory_bytes");
    event->line = info->lines;
    return FY_STATUS_OK;
}

static fy_status_t read_lines(text_lines_t *lines, event_names_t *names,
                              void (*fn)(void *user, const event_t *event), void *user,
                              event_file_info_t *out_info)
{
    event_file_info_t *info = out_info;
    event_t event;
    char *line;
    *info = (event_file_info_t){ .is_whole = false };
    for (;;) {
        FY_TRY(text_lines_next(lines, &line));
        if (!line) break;
        FY_TRY(read_line(lines, line, &event, info));
        if (!event.line) break;
        if (event_is(&event, "end")) {
            info->has_end = true;
            if (!event_count(&event, "lost", INT64_MAX, &info->lost))
                return TOOL_FAIL(CORRUPT_DATA,
                                 "%s is no whole event file: \"lost\" of line %llu is no whole "
                                 "number below 2^63",
                                 lines->input.path, (unsigned long long)info->lines);
            info->is_whole = event_whole(&event, "events") == info->events;
        } else if (info->lines > 1) {
            info->events++;
            event_names_resolve(names, &event);
            fn(user, &event);
        }
    }
    return info->lines ? FY_STATUS_OK
                       : TOOL_FAIL(CORRUPT_DATA, "%s is empty: no event file", lines->input.path);
}

fy_status_t event_lines_read(text_lines_t *lines, void (*fn)(void *user, const event_t *event),
                             void *user, event_file_info_t *out_info)
{
    event_names_t names = { .site = NULL };
    lines->takes_cut = true;
    const fy_status_t status = read_lines(lines, &names, fn, user, out_info);
    event_names_free(&names);
    return status;
}

fy_status_t event_file_read(const char *path, void (*fn)(void *user, const event_t *event),
                            void *user, event_file_info_t *out_info)
{
    text_lines_t lines;
    *out_info = (event_file_info_t){ .is_whole = false };
    FY_TRY(text_lines_open(&lines, path, "event file"));
    const fy_status_t status = event_lines_read(&lines, fn, user, out_info);
    text_lines_close(&lines);
    return status;
}
