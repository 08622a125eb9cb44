/* The JSON writer. Not here: what the documents hold (docs/cli.md). */
#include "tools/cli/json.h"

#include <inttypes.h>
#include <math.h>

#include "runtime/base/json.h"

static void write_string(json_t *json, const char *text)
{
    fputc('"', json->file);
    while (*text) {
        char piece[FY__JSON_QUOTED];
        fwrite(piece, 1, fy__json_quote_next(&text, piece), json->file);
    }
    fputc('"', json->file);
}

static void write_key(json_t *json, const char *key)
{
    if (json->has_members[json->depth]) fputc(',', json->file);
    if (json->depth) fprintf(json->file, "\n%*s", 2 * json->depth, "");
    json->has_members[json->depth] = true;
    if (key) {
        write_string(json, key);
        fputs(": ", json->file);
    }
}

static void begin(json_t *json, const char *key, char opener, char closer)
{
    write_key(json, key);
    fputc(opener, json->file);
    if (json->depth < JSON_MAX_DEPTH) json->closers[json->depth++] = closer;
    json->has_members[json->depth] = false;
}

void json_begin_object(json_t *json, const char *key) { begin(json, key, '{', '}'); }
void json_begin_array(json_t *json, const char *key) { begin(json, key, '[', ']'); }

void json_end(json_t *json)
{
    bool had_members = json->has_members[json->depth--];
    if (had_members) fprintf(json->file, "\n%*s", 2 * json->depth, "");
    fputc(json->closers[json->depth], json->file);
    if (json->depth == 0) fputc('\n', json->file);
}

void json_text(json_t *json, const char *key, const char *text)
{
    write_key(json, key);
    if (text)
        write_string(json, text);
    else
        fputs("null", json->file);
}

void json_bytes(json_t *json, const char *key, const char *bytes, size_t nbytes, bool is_utf8)
{
    write_key(json, key);
    fputc('"', json->file);
    for (size_t i = 0; i < nbytes; i++) {
        const unsigned char c = (unsigned char)bytes[i];
        if (c < ' ' || (c >= 0x80 && !is_utf8))
            fprintf(json->file, "\\u%04x", c);
        else
            fprintf(json->file, c == '"' || c == '\\' ? "\\%c" : "%c", c);
    }
    fputc('"', json->file);
}

void json_int(json_t *json, const char *key, int64_t value)
{
    write_key(json, key);
    fprintf(json->file, "%" PRId64, value);
}

void json_uint(json_t *json, const char *key, uint64_t value)
{
    write_key(json, key);
    fprintf(json->file, "%" PRIu64, value);
}

void json_real(json_t *json, const char *key, double value)
{
    write_key(json, key);
    if (isfinite(value))
        fprintf(json->file, "%.9g", value);
    else
        fputs("null", json->file);
}

void json_bool(json_t *json, const char *key, bool value)
{
    write_key(json, key);
    fputs(value ? "true" : "false", json->file);
}
