/* Parses device specs and byte sizes. */
#include "runtime/base/spec.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/c_locale.h"
#include "runtime/base/fail.h"

bool fy__bytes_parse(const char *text, uint64_t *out_nbytes)
{
    static const struct {
        const char *suffix;
        double factor;
    } units[] = { { "", 1 },         { "B", 1 },      { "K", 0x1p10 },   { "k", 0x1p10 },
                  { "KiB", 0x1p10 }, { "M", 0x1p20 }, { "MiB", 0x1p20 }, { "G", 0x1p30 },
                  { "GiB", 0x1p30 }, { "T", 0x1p40 }, { "TiB", 0x1p40 }, { "kB", 1e3 },
                  { "MB", 1e6 },     { "GB", 1e9 },   { "TB", 1e12 } };
    char *end;
    if (!isdigit((unsigned char)text[0])) return false;
    const double value = fy__strtod(text, &end);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(end, units[i].suffix) == 0) {
            const double nbytes = value * units[i].factor;
            if (!(nbytes < 0x1p63)) return false;
            *out_nbytes = (uint64_t)nbytes;
            return true;
        }
    return false;
}

static fy_status_t malformed(const char *text, const char *why)
{
    return FY_FAIL(INVALID_ARGUMENT,
                   "device_open: '%.100s': %s\n  A spec looks like host, auto, cuda:0 or "
                   "sim:1?profile=h200&capacity=8GiB",
                   text, why);
}

fy_status_t fy__spec_parse(const char *text, fy__spec_t *out_spec)
{
    memset(out_spec, 0, sizeof *out_spec);
    const size_t name = strcspn(text, ":?");
    if (!name || name >= sizeof out_spec->backend)
        return malformed(text, "the name of the backend is missing or too long");
    memcpy(out_spec->backend, text, name);
    const char *rest = text + name;
    if (*rest == ':') {
        char *end;
        const long index = isdigit((unsigned char)rest[1]) ? strtol(rest + 1, &end, 10) : -1;
        if (index < 0 || index > 65535) return malformed(text, "a device number must follow ':'");
        out_spec->index = (int)index;
        rest = end;
    }
    if (!*rest) return FY_STATUS_OK;
    if (*rest != '?') return malformed(text, "only '?' and options may follow the device number");
    if (strlen(rest + 1) >= sizeof out_spec->options)
        return malformed(text, "the options are too long");
    strcpy(out_spec->options, rest + 1);
    strcpy(out_spec->text, rest + 1);
    for (char *pair = out_spec->text; *pair;) {
        char *next = pair + strcspn(pair, "&"), *equals = strchr(pair, '=');
        if (*next) *next++ = 0;
        if (!equals || equals == pair || equals >= next || !equals[1])
            return malformed(text, "each option must be key=value");
        if (out_spec->noptions == FY__SPEC_OPTIONS) return malformed(text, "too many options");
        *equals = 0;
        for (size_t i = 0; i < out_spec->noptions; i++)
            if (strcmp(out_spec->option[i].key, pair) == 0)
                return malformed(text, "an option may be given once only");
        fy_backend_option_t *option = &out_spec->option[out_spec->noptions++];
        option->key = pair;
        option->value = equals + 1;
        option->is_size = fy__bytes_parse(option->value, &option->nbytes);
        pair = next;
    }
    return FY_STATUS_OK;
}
