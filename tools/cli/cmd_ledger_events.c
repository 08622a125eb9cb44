/* `ferry ledger FILE --events`: one line an event: when, thread, scope, what, and then what there
 * is to say, key by key. */
#include <inttypes.h>
#include <string.h>

#include "tools/cli/cmd_ledger.h"

/* In front of the rest, or said by the kind alone. */
static bool is_cached(const char *key)
{
    static const char *const front[] = { "ev", "t_ns", "thread", "scope", "op", "direction" };
    for (size_t i = 0; i < sizeof front / sizeof *front; i++)
        if (strcmp(key, front[i]) == 0) return true;
    return false;
}

void event_print(FILE *file, const event_t *event)
{
    const char *kind = event_text(event, "ev"), *op = event_text(event, "op"),
               *direction = event_text(event, "direction");
    const char *scope = event_text(event, "scope");
    const uint64_t t_ns = event_whole(event, "t_ns");
    fprintf(file, "%8" PRIu64 ".%03" PRIu64 " us  thread %-3" PRIu64 " %-24s  ", t_ns / 1000,
            t_ns % 1000, event_whole(event, "thread"), *scope ? scope : "-");
    fprintf(file, "%s%s%s%s%s", kind, *op ? " " : "", op, *direction ? " " : "", direction);
    for (size_t i = 0; i < event->count; i++) {
        const event_field_t *field = &event->field[i];
        if (is_cached(field->key)) continue;
        if (field->text)
            fprintf(file, "  %s=%s", field->key, field->text);
        else if (field->number < 0)
            fprintf(file, "  %s=%.0f", field->key, field->number);
        else
            fprintf(file, "  %s=%" PRIu64, field->key, field->whole);
    }
    fputc('\n', file);
}
