/* Pieces of a line of JSON, for the writer's sources. A line is shorter than FY__EVENT_LINE_MOST
 * and begins only if that much is free in the buffer. Formatted by hand, because the writer must
 * keep up with all other threads. */
#ifndef FERRY_RUNTIME_EVENT_TEXT_H_
#define FERRY_RUNTIME_EVENT_TEXT_H_

#include <string.h>

#include "runtime/base/json.h"
#include "runtime/record/event_write.h"

static inline void put_raw(fy__event_writer_t *w, const char *text, size_t n)
{
    memcpy(w->buffer + w->used, text, n);
    w->used += n;
}

static inline void put_number(fy__event_writer_t *w, uint64_t value)
{
    char digits[20];
    size_t n = sizeof digits;
    do digits[--n] = (char)('0' + value % 10);
    while (value /= 10);
    put_raw(w, digits + n, sizeof digits - n);
}

/* At most a quarter of the longest line. */
static inline void put_string(fy__event_writer_t *w, const char *text)
{
    w->used += fy__json_quote(text, w->buffer + w->used, FY__EVENT_LINE_MOST / 4);
}

/* `key` with its quotes, comma and colon: ",\"stream\":". */
#define KEY(w, key)           put_raw((w), ",\"" key "\":", sizeof ",\"" key "\":" - 1)
#define NUMBER(w, key, value) (KEY(w, key), put_number((w), (value)))
#define STRING(w, key, value) (KEY(w, key), put_string((w), (value)))

static inline void put_bytes(fy__event_writer_t *w, fy__event_bytes_t bytes)
{
    if (!bytes.id) {
        put_raw(w, "null", 4);
        return;
    }
    put_raw(w, "[", 1);
    put_number(w, bytes.id);
    put_raw(w, ",", 1);
    put_number(w, bytes.version);
    put_raw(w, "]", 1);
}

static inline void put_list(fy__event_writer_t *w, const fy__event_bytes_t *bytes, unsigned count)
{
    put_raw(w, "[", 1);
    for (unsigned i = 0; i < count; i++) {
        if (i) put_raw(w, ",", 1);
        put_bytes(w, bytes[i]);
    }
    put_raw(w, "]", 1);
}

static inline void put_flag(fy__event_writer_t *w, const char *key, bool value)
{
    put_raw(w, key, strlen(key));
    put_raw(w, value ? "true" : "false", value ? 4 : 5);
}

/* When and where the event was. */
static inline void put_context(fy__event_writer_t *w, const fy__event_t *e)
{
    char path[768];
    NUMBER(w, "t_ns", e->at_ns > w->start_ns ? e->at_ns - w->start_ns : 0);
    if (e->model_ns != FY__EVENT_NO_MODEL) NUMBER(w, "model_ns", e->model_ns);
    NUMBER(w, "thread", e->thread);
    STRING(w, "scope", e->scope ? fy__node_path(e->scope, path, sizeof path) : "");
}

#endif
