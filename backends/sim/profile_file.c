/* Reading a profile. The input is untrusted, so there is one grammar: an object of known members,
 * "figures" an object of known figures, each an object with a whole number "value" and its "unit".
 * No tree is built and no function recurses. For any bytes, the text names the error and its line.
 * tools/calibrate/cal.c writes such files. */
#include "backends/sim/profile_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/sim/sim.h"
#include "runtime/base/c_locale.h"
#include "runtime/base/input.h"
#include "runtime/base/json.h"

/* ---- the figures ---- */

#define LATENCY_MOST_NS 1000000000ull          /* a second */
#define RATE_MOST       1000000000000000000ull /* far below what profile.c's arithmetic takes */
#define MEMORY_LEAST    (1ull << 20)
#define MEMORY_MOST     (1ull << 46) /* address space: a block needs twice its size */

typedef struct figure {
    const char *key, *unit;
    size_t offset;
    uint64_t least, most;
} figure_t;

#define OF_DEVICE(key, unit, field, least, most)                          \
    {                                                                     \
        key, unit, offsetof(fy__sim_figures_t, device.field), least, most \
    }
#define OF_HOST(key, unit, field, least, most)                          \
    {                                                                   \
        key, unit, offsetof(fy__sim_figures_t, host.field), least, most \
    }

static const figure_t figures[] = {
    OF_DEVICE("memory_bytes", "bytes", memory_nbytes, MEMORY_LEAST, MEMORY_MOST),
    OF_DEVICE("f32_flops_per_s", "flop/s", f32_flops_per_s, 1, RATE_MOST),
    OF_DEVICE("f64_flops_per_s", "flop/s", f64_flops_per_s, 1, RATE_MOST),
    OF_DEVICE("f16_flops_per_s", "flop/s", f16_flops_per_s, 1, RATE_MOST),
    OF_DEVICE("bf16_flops_per_s", "flop/s", bf16_flops_per_s, 1, RATE_MOST),
    OF_DEVICE("memory_bytes_per_s", "bytes/s", memory_bytes_per_s, 1, RATE_MOST),
    OF_DEVICE("pinned_bytes_per_s", "bytes/s", pinned_bytes_per_s, 1, RATE_MOST),
    OF_DEVICE("pageable_bytes_per_s", "bytes/s", pageable_bytes_per_s, 1, RATE_MOST),
    OF_DEVICE("peer_bytes_per_s", "bytes/s", peer_bytes_per_s, 1, RATE_MOST),
    OF_DEVICE("launch_submit_ns", "ns", launch_submit_ns, 0, LATENCY_MOST_NS),
    OF_DEVICE("copy_submit_ns", "ns", copy_submit_ns, 0, LATENCY_MOST_NS),
    OF_DEVICE("poll_ns", "ns", poll_ns, 1, LATENCY_MOST_NS), /* not 0: a loop that polls must end */
    OF_DEVICE("wake_ns", "ns", wake_ns, 0, LATENCY_MOST_NS),
    OF_DEVICE("kernel_ns", "ns", kernel_ns, 0, LATENCY_MOST_NS),
    OF_DEVICE("copy_setup_ns", "ns", copy_setup_ns, 0, LATENCY_MOST_NS),
    OF_HOST("host_flops_per_s", "flop/s", flops_per_s, 1, RATE_MOST),
    OF_HOST("host_bytes_per_s", "bytes/s", bytes_per_s, 1, RATE_MOST),
    OF_HOST("host_op_ns", "ns", op_ns, 0, LATENCY_MOST_NS),
    OF_HOST("host_copy_bytes_per_s", "bytes/s", copy_bytes_per_s, 1, RATE_MOST),
};
enum { NFIGURES = sizeof figures / sizeof figures[0] };

static uint64_t *place(fy__sim_figures_t *out, size_t i)
{
    return (uint64_t *)(void *)((char *)out + figures[i].offset);
}

void fy__sim_figures_builtin(const fy__sim_profile_t *profile, fy__sim_figures_t *out_figures)
{
    *out_figures = (fy__sim_figures_t){ .device = *profile, .host = fy__sim_host_profile };
    snprintf(out_figures->name, sizeof out_figures->name, "%s", profile->name);
    out_figures->device.name = out_figures->name;
}

void fy__sim_figures_copy(const fy__sim_figures_t *from, fy__sim_figures_t *out_figures)
{
    *out_figures = *from;
    out_figures->device.name = out_figures->name;
}

void fy__sim_figures_say(const fy__sim_figures_t *from, fy_fact_fn say, void *user)
{
    say(user, "profile", from->name);
    for (size_t i = 0; i < NFIGURES; i++) {
        uint64_t value;
        char text[24];
        memcpy(&value, (const char *)from + figures[i].offset, sizeof value);
        snprintf(text, sizeof text, "%" PRIu64, value);
        say(user, figures[i].key, text);
    }
}

int fy__sim_profile_is_path(const char *value) { return strpbrk(value, "/.") != NULL; }

/* ---- reading ---- */

typedef struct reader {
    const char *name, *path;
    fy__json_t json;
    fy__sim_figures_t *out;
    uint32_t seen; /* figures, by bit */
    int has_version, has_name, has_base, has_figures;
} reader_t;

#define BAD(reader, ...) bad((reader), __LINE__, __VA_ARGS__)

FY_PRINTF(3, 4) static fy_status_t bad(const reader_t *r, int line, const char *format, ...)
{
    char what[200];
    va_list args;
    va_start(args, format);
    fy__vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return fy__sim_host->fail(FY_STATUS_INVALID_ARGUMENT, __FILE__, line,
                              "%s: profile=%s, line %zu: %s\n  ferry calibrate writes such files; "
                              "docs/simulator.md says what is in one",
                              r->name, r->path, r->json.newlines + 1, what);
}

/* A piece of JSON that `where` must have. */
#define TAKE(reader, expr, where)                                                   \
    do {                                                                            \
        if (!(expr)) return BAD((reader), "%s: %s", (where), (reader)->json.wrong); \
    } while (0)

static int is(const char *text, const char *word) { return strcmp(text, word) == 0; }

static fy_status_t take_key(reader_t *r, const char *where, char **out_key)
{
    *out_key = NULL;
    TAKE(r, fy__json_string(&r->json, out_key), where);
    TAKE(r, fy__json_take(&r->json, ':'), where);
    return FY_STATUS_OK;
}

/* A text that only people read. */
static fy_status_t skip_text(reader_t *r, const char *what)
{
    char *text;
    TAKE(r, fy__json_string(&r->json, &text), what);
    return FY_STATUS_OK;
}

/* A number that only people read. */
static fy_status_t skip_number(reader_t *r, const char *what)
{
    const char *text;
    TAKE(r, fy__json_number(&r->json, &text), what);
    return *text == '-' ? BAD(r, "%s is negative", what) : FY_STATUS_OK;
}

/* ---- the grammar ---- */

static fy_status_t figure_member(reader_t *r, size_t i, int *value_seen, int *unit_seen)
{
    const char *figure = figures[i].key;
    char *key, *unit;
    FY_TRY(take_key(r, figure, &key));
    if (is(key, "value") && !*value_seen) {
        uint64_t value = 0;
        TAKE(r, fy__json_whole(&r->json, &value), figure);
        if (value < figures[i].least || value > figures[i].most)
            return BAD(r, "%s is %" PRIu64 "; it may be from %" PRIu64 " to %" PRIu64 " %s", figure,
                       value, figures[i].least, figures[i].most, figures[i].unit);
        *place(r->out, i) = value;
        *value_seen = 1;
        return FY_STATUS_OK;
    }
    if (is(key, "unit") && !*unit_seen) {
        TAKE(r, fy__json_string(&r->json, &unit), figure);
        if (!is(unit, figures[i].unit))
            return BAD(r, "the unit of %s is %s, not '%.40s'", figure, figures[i].unit, unit);
        *unit_seen = 1;
        return FY_STATUS_OK;
    }
    if (is(key, "how")) return skip_text(r, "how");
    if (is(key, "spread")) return skip_number(r, "spread");
    return BAD(r, "%s has '%.40s' twice, or it is unknown; there are value, unit, spread and how",
               figure, key);
}

static fy_status_t one_figure(reader_t *r)
{
    char *key;
    size_t i = 0;
    int goes_on = 1, value_seen = 0, unit_seen = 0;
    FY_TRY(take_key(r, "figures", &key));
    while (i < NFIGURES && !is(key, figures[i].key)) i++;
    if (i == NFIGURES) return BAD(r, "'%.60s' is no figure of a profile", key);
    if (r->seen & 1u << i) return BAD(r, "%s appears twice", figures[i].key);
    TAKE(r, fy__json_take(&r->json, '{'), figures[i].key);
    while (goes_on) {
        FY_TRY(figure_member(r, i, &value_seen, &unit_seen));
        TAKE(r, fy__json_more(&r->json, '}', &goes_on), figures[i].key);
    }
    if (!value_seen || !unit_seen)
        return BAD(r, "%s has no %s", figures[i].key, value_seen ? "unit" : "value");
    r->seen |= 1u << i;
    return FY_STATUS_OK;
}

static fy_status_t all_figures(reader_t *r)
{
    int goes_on = 1;
    TAKE(r, fy__json_take(&r->json, '{'), "figures");
    while (goes_on) {
        FY_TRY(one_figure(r));
        TAKE(r, fy__json_more(&r->json, '}', &goes_on), "figures");
    }
    r->has_figures = 1;
    return FY_STATUS_OK;
}

/* The built-in profile that has the figures that this file lacks; it precedes the figures. */
static fy_status_t read_base(reader_t *r)
{
    char *name;
    TAKE(r, fy__json_string(&r->json, &name), "base");
    const fy__sim_profile_t *base = fy__sim_profile_find(name);
    if (!base) return BAD(r, "base is '%.60s', which is no built-in profile", name);
    if (r->has_figures) return BAD(r, "base must precede the figures");
    char own[FY__SIM_PROFILE_NAME];
    memcpy(own, r->out->name, sizeof own);
    fy__sim_figures_builtin(base, r->out);
    memcpy(r->out->name, own, sizeof own);
    r->has_base = 1;
    return FY_STATUS_OK;
}

/* The name appears in errors and reports: one line, without quotes. */
static int is_plain(const char *name)
{
    for (; *name; name++)
        if ((unsigned char)*name < ' ' || *name == '"' || *name == '\\') return 0;
    return 1;
}

static fy_status_t read_name(reader_t *r)
{
    char *name;
    TAKE(r, fy__json_string(&r->json, &name), "name");
    const size_t length = strlen(name);
    if (length == 0 || length >= sizeof r->out->name || !is_plain(name))
        return BAD(r, "name must have 1 to %zu plain characters", sizeof r->out->name - 1);
    memcpy(r->out->name, name, length + 1);
    r->has_name = 1;
    return FY_STATUS_OK;
}

static fy_status_t member(reader_t *r)
{
    static const char *const notes[] = { "date",  "model",   "driver", "host",
                                         "clock", "version", "how" };
    char *key;
    FY_TRY(take_key(r, "a key of the profile", &key));
    if (is(key, "ferry_profile") && !r->has_version) {
        uint64_t version = 0;
        TAKE(r, fy__json_whole(&r->json, &version), "ferry_profile");
        if (version != 1)
            return BAD(r, "this is version %" PRIu64 " of the form; this Ferry reads 1", version);
        r->has_version = 1;
        return FY_STATUS_OK;
    }
    if (!r->has_version) return BAD(r, "the first member must be \"ferry_profile\": 1");
    if (is(key, "name") && !r->has_name) return read_name(r);
    if (is(key, "base") && !r->has_base) return read_base(r);
    if (is(key, "figures") && !r->has_figures) return all_figures(r);
    for (size_t i = 0; i < sizeof notes / sizeof notes[0]; i++)
        if (is(key, notes[i])) return skip_text(r, notes[i]);
    return BAD(r, "'%.60s' is unknown, or appears twice", key);
}

static fy_status_t document(reader_t *r)
{
    int goes_on = 1;
    TAKE(r, fy__json_take(&r->json, '{'), "this is no profile, or no JSON");
    while (goes_on) {
        FY_TRY(member(r));
        TAKE(r, fy__json_more(&r->json, '}', &goes_on), "after a member");
    }
    if (fy__json_peek(&r->json)) return BAD(r, "there is text after the profile's end");
    if (!r->has_name) return BAD(r, "there is no name");
    if (!r->has_figures) return BAD(r, "there are no figures");
    for (size_t i = 0; i < NFIGURES && !r->has_base; i++)
        if (!(r->seen & 1u << i))
            return BAD(r, "%s is missing, and no base is named to take it from", figures[i].key);
    r->out->device.name = r->out->name;
    return FY_STATUS_OK;
}

fy_status_t fy__sim_profile_read(const char *name, const char *path, fy__sim_figures_t *out_figures)
{
    fy__input_t input;
    char *bytes;
    size_t nbytes;
    const int error =
        fy__input_text(&input, path, NULL, FY__SIM_PROFILE_FILE_NBYTES, &bytes, &nbytes);
    if (error)
        return FY__SIM_FAIL(error == ENOMEM ? FY_STATUS_OUT_OF_MEMORY : FY_STATUS_INVALID_ARGUMENT,
                            "%s: profile: %s%s", name, input.problem,
                            error == EFBIG ? ": that is no profile" : "");
    fy__sim_figures_t read = { .name = "" };
    reader_t reader = { .name = name,
                        .path = path,
                        .json = { .begin = bytes, .at = bytes, .end = bytes + nbytes },
                        .out = &read };
    const fy_status_t status =
        memchr(bytes, '\0', nbytes) ? BAD(&reader, "the file has a zero byte") : document(&reader);
    free(bytes);
    if (status == FY_STATUS_OK) fy__sim_figures_copy(&read, out_figures);
    return status;
}
