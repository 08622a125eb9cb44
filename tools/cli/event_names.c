/* See event_names.h. Numbers beyond the table are not replaced. */
#include "tools/cli/event_names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/tool.h"

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

void event_names_resolve(event_names_t *names, event_t *event)
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

void event_names_free(event_names_t *names)
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
