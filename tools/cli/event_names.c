/* See event_names.h. Numbers beyond the table are not replaced. */
#include "tools/cli/event_names.h"

#include <stdlib.h>
#include <string.h>

#include "tools/cli/tool.h"

static char *copy_of(const char *text)
{
    const size_t nbytes = strlen(text) + 1;
    return memcpy(tool_alloc(nbytes), text, nbytes);
}

static void free_signature(event_signature_t *signature)
{
    for (size_t i = 0; signature && i < EVENT_SIGNATURE_KEYS; i++)
        free((char *)signature->field[i].text);
    free(signature);
}

static void keep_site(event_names_t *names, const event_t *event, uint64_t id)
{
    if (!names->site) names->site = tool_alloc(EVENT_NAMES * sizeof *names->site);
    free(names->site[id]);
    names->site[id] = copy_of(event_text(event, "site"));
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
                (event_field_t){ .key = keys[i], .text = copy_of(event_text(event, keys[i])) };
    names->signature[id] = signature;
}

void event_names_resolve(event_names_t *names, event_t *event)
{
    const uint64_t id = event_whole(event, "id");
    event->signature = NULL;
    if (event_is(event, "site") || event_is(event, "signature")) {
        if (id && id < EVENT_NAMES)
            (event_is(event, "site") ? keep_site : keep_signature)(names, event, id);
        return;
    }
    for (size_t i = 0; i < event->count; i++) {
        event_field_t *field = &event->field[i];
        if (field->text || !field->whole || field->whole >= EVENT_NAMES) continue;
        if (names->site && strcmp(field->key, "site") == 0)
            field->text = names->site[field->whole];
        else if (names->signature && strcmp(field->key, "signature") == 0)
            event->signature = names->signature[field->whole];
    }
}

void event_names_free(event_names_t *names)
{
    for (size_t i = 0; i < EVENT_NAMES; i++) {
        if (names->site) free(names->site[i]);
        if (names->signature) free_signature(names->signature[i]);
    }
    free(names->site);
    free(names->signature);
}
