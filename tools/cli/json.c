/* The JSON writer. Not here: what the documents hold (docs/cli.md). */
#include "tools/cli/json.h"

#include <inttypes.h>
#include <math.h>

/* Length of the UTF-8 sequence at `s`, 0 if it is none (RFC 3629: no surrogates, nothing overlong,
 * nothing past U+10FFFF). */
static int utf8_length(const unsigned char *s)
{
    int n = s[0] < 0x80                   ? 1
            : s[0] >= 0xC2 && s[0] < 0xE0 ? 2
            : s[0] >= 0xE0 && s[0] < 0xF0 ? 3
            : s[0] >= 0xF0 && s[0] < 0xF5 ? 4
                                          : 0;
    for (int i = 1; i < n; i++)
        if ((s[i] & 0xC0) != 0x80) return 0;
    if (s[0] == 0xE0 && s[1] < 0xA0) return 0;
    if (s[0] == 0xED && s[1] >= 0xA0) return 0;
    if (s[0] == 0xF0 && s[1] < 0x90) return 0;
    if (s[0] == 0xF4 && s[1] >= 0x90) return 0;
    return n;
}

static void write_string(json_t *json, const char *text)
{
    fputc('"', json->file);
    for (const unsigned char *s = (const unsigned char *)text; *s;) {
        int n = utf8_length(s);
        if (n == 0) {
            fputs("\\ufffd", json->file);
            s++;
        } else if (*s == '"' || *s == '\\') {
            fprintf(json->file, "\\%c", *s++);
        } else if (*s < ' ') {
            fprintf(json->file, "\\u%04x", *s++);
        } else {
            fwrite(s, 1, (size_t)n, json->file);
            s += n;
        }
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
