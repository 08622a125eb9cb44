/* `ferry watch PID|FILE`: the figures of a running process that has FERRY_WATCH=1: rates by
 * direction, waits, live bytes, the last refusals. It reads a page of shared memory and does not
 * disturb the process. Not here: who writes the page (transfer/live.c). */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/live_page.h"
#include "tools/cli/tool.h"

enum { PATH_ROOM = 512, READ_TRIES = 10000 };

typedef struct watched {
    char path[PATH_ROOM];
    const fy__live_page_t *page;
    bool has_ended;
} watched_t;

static void sleep_ns(int64_t ns)
{
    const struct timespec time = { ns / 1000000000, ns % 1000000000 };
    nanosleep(&time, NULL);
}

/* The number in "ferry-watch-NUMBER"; 0: it is another name. */
static uint64_t number_in(const char *name)
{
    char *end;
    const size_t n = strlen(FY__LIVE_PREFIX);
    if (strncmp(name, FY__LIVE_PREFIX, n) != 0 || name[n] < '1' || name[n] > '9') return 0;
    const uint64_t number = strtoull(name + n, &end, 10);
    return *end ? 0 : number;
}

/* Whether the page is of the process that has this number now. */
static bool has_sharer(const char *path, uint64_t pid)
{
    uint64_t head[4] = { 0 }; /* magic, nbytes, pid, started */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    const bool is_read = fd >= 0 && read(fd, head, sizeof head) == (ssize_t)sizeof head;
    if (fd >= 0) close(fd);
    const uint64_t started = fy__live_started(pid);
    /* a page without a head is being made */
    return started && (!is_read || !head[0] || head[3] == started);
}

/* Pages of this user's processes: those of ended ones are removed, the others are listed in `out`
 * (may be NULL). */
static size_t clean(FILE *out)
{
    size_t count = 0;
    char path[PATH_ROOM];
    struct stat found;
    DIR *folder = opendir(FY__LIVE_FOLDER);
    if (!folder) return 0;
    for (const struct dirent *entry; (entry = readdir(folder));) {
        const uint64_t pid = number_in(entry->d_name);
        snprintf(path, sizeof path, FY__LIVE_FOLDER "/%s", entry->d_name);
        if (!pid || lstat(path, &found) != 0 || found.st_uid != geteuid()) continue;
        if (!has_sharer(path, pid)) {
            (void)unlink(path);
            continue;
        }
        count++;
        if (out) fprintf(out, "%llu\n", (unsigned long long)pid);
    }
    closedir(folder);
    return count;
}

/* ---- the page ---- */

static fy_status_t check_page(const watched_t *w, const struct stat *found)
{
    if (found->st_uid != geteuid())
        return TOOL_FAIL(INVALID_ARGUMENT, "%s belongs to user %ld, not to you (%ld)", w->path,
                         (long)found->st_uid, (long)geteuid());
    if (!S_ISREG(found->st_mode) || found->st_mode & 077)
        return TOOL_FAIL(CORRUPT_DATA, "%s is no page of ferry: it has mode %o, not 600", w->path,
                         (unsigned)found->st_mode & 0777);
    if (found->st_size < (off_t)sizeof(fy__live_page_t))
        return TOOL_FAIL(CORRUPT_DATA, "%s is no page of ferry: it has %lld bytes, not %zu",
                         w->path, (long long)found->st_size, sizeof(fy__live_page_t));
    return FY_STATUS_OK;
}

static fy_status_t map_page(watched_t *w, int fd)
{
    struct stat found;
    if (fstat(fd, &found) != 0)
        return TOOL_FAIL(IO, "cannot read %s: %s", w->path, strerror(errno));
    FY_TRY(check_page(w, &found));
    void *mapped = mmap(NULL, sizeof *w->page, PROT_READ, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) return TOOL_FAIL(IO, "cannot read %s: %s", w->path, strerror(errno));
    w->page = mapped;
    if (w->page->magic != FY__LIVE_MAGIC || w->page->nbytes != sizeof *w->page)
        return TOOL_FAIL(CORRUPT_DATA, "%s is no page of this version of ferry", w->path);
    return FY_STATUS_OK;
}

/* `name`: a number of a process, or the page's file. */
static fy_status_t open_page(const char *name, watched_t *w)
{
    char *end;
    const unsigned long long pid = strtoull(name, &end, 10);
    const bool is_number = *name >= '0' && *name <= '9' && !*end;
    if (is_number && !fy__live_started(pid)) {
        clean(NULL);
        return TOOL_FAIL(UNAVAILABLE, "process %llu has ended, or never was", pid);
    }
    snprintf(w->path, sizeof w->path, is_number ? FY__LIVE_FOLDER "/" FY__LIVE_PREFIX "%s" : "%s",
             name);
    /* a pipe is not waited for */
    const int fd = open(w->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT && is_number)
        return TOOL_FAIL(UNAVAILABLE, "process %llu shares no figures: start it with FERRY_WATCH=1",
                         pid);
    if (fd < 0) return TOOL_FAIL(IO, "cannot open %s: %s", w->path, strerror(errno));
    const fy_status_t status = map_page(w, fd);
    close(fd);
    return status;
}

static bool has_ended(const fy__live_page_t *page)
{
    return atomic_load(&page->ended) || fy__live_started(page->pid) != page->started;
}

static fy_status_t read_figures(watched_t *w, fy__live_figures_t *out)
{
    for (int i = 0; i < READ_TRIES; i++) {
        if (fy__live_read(w->page, out) && out->updates) {
            w->has_ended = has_ended(w->page);
            out->ndevices = out->ndevices < FY__LIVE_DEVICES ? out->ndevices : FY__LIVE_DEVICES;
            for (int n = 0; n < FY__LIVE_NOTES; n++) out->notes[n].text[FY__LIVE_TEXT - 1] = '\0';
            for (uint64_t d = 0; d < out->ndevices; d++)
                out->devices[d].name[sizeof out->devices[d].name - 1] = '\0';
            return FY_STATUS_OK;
        }
        sleep_ns(1000000);
    }
    return TOOL_FAIL(UNAVAILABLE, "process %llu does not finish writing its figures",
                     (unsigned long long)w->page->pid);
}

/* ---- showing ---- */

/* Of one direction, from one reading to the next. */
typedef struct rate {
    const char *name;
    const fy__live_traffic_t *now, *before;
} rate_t;

static double per_s(uint64_t now, uint64_t before, double seconds)
{
    return seconds > 0 ? (double)(now - before) / seconds : NAN;
}

static sheet_t *traffic_sheet(const fy__live_figures_t *now, const fy__live_figures_t *before)
{
    static const column_t columns[] = {
        { "direction", "direction", 0 },
        { "count", "count", 0 },
        { "bytes", "bytes", 0 },
        { "count_per_s", "a second", 1 },
        { "bytes_per_s", "bytes/s", 0 },
        { "blocked_ns", "host blocked [ns]", 0 },
        { "blocked_share", "share of time", 3 },
    };
    const rate_t rates[] = { { "upload", &now->upload, &before->upload },
                             { "download", &now->download, &before->download },
                             { "peer", &now->peer, &before->peer } };
    const double seconds = 1e-9 * (double)(now->at_ns - before->at_ns);
    sheet_t *sheet = sheet_create(columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        const rate_t *r = &rates[i];
        sheet_text(sheet, r->name);
        sheet_int(sheet, (int64_t)r->now->count);
        sheet_int(sheet, (int64_t)r->now->nbytes);
        sheet_real(sheet, per_s(r->now->count, r->before->count, seconds));
        sheet_real(sheet, per_s(r->now->nbytes, r->before->nbytes, seconds));
        sheet_int(sheet, (int64_t)r->now->blocked_ns);
        /* to a thousandth: a smaller share is none */
        sheet_real(sheet,
                   round(1e-6 * per_s(r->now->blocked_ns, r->before->blocked_ns, seconds)) / 1e3);
    }
    return sheet;
}

static sheet_t *device_sheet(const fy__live_figures_t *now)
{
    static const column_t columns[] = { { "device", "device", 0 },
                                        { "live_bytes", "live bytes", 0 },
                                        { "reserved_bytes", "reserved", 0 },
                                        { "peak_live_bytes", "peak live", 0 } };
    sheet_t *sheet = sheet_create(columns, sizeof columns / sizeof *columns);
    for (uint64_t i = 0; i < now->ndevices; i++) {
        sheet_text(sheet, now->devices[i].name);
        sheet_int(sheet, (int64_t)now->devices[i].live);
        sheet_int(sheet, (int64_t)now->devices[i].reserved);
        sheet_int(sheet, (int64_t)now->devices[i].peak_live);
    }
    return sheet;
}

/* The last ones, oldest first. Bytes that a terminal could take for commands become '?'. */
static sheet_t *note_sheet(const fy__live_figures_t *now)
{
    static const column_t columns[] = { { "number", "#", 0 },
                                        { "seconds_ago", "s ago", 1 },
                                        { "text", "refusals and faults", 0 } };
    sheet_t *sheet = sheet_create(columns, sizeof columns / sizeof *columns);
    const uint64_t first = now->refusals > FY__LIVE_NOTES ? now->refusals - FY__LIVE_NOTES : 0;
    for (uint64_t n = first; n++ < now->refusals;) { /* the last number may be 2^64 - 1 */
        fy__live_note_t note = now->notes[n % FY__LIVE_NOTES];
        if (note.number != n) continue;
        for (char *at = note.text; *at; at++)
            if ((unsigned char)*at < ' ' || *at == 0x7f) *at = *at == '\n' ? ' ' : '?';
        sheet_int(sheet, (int64_t)n);
        sheet_real(sheet, 1e-9 * (double)(now->at_ns - note.at_ns));
        sheet_text(sheet, note.text);
    }
    return sheet;
}

static void print_text(const watched_t *w, const fy__live_figures_t *now,
                       const fy__live_figures_t *before, sheet_t *const sheets[3])
{
    const double seconds = 1e-9 * (double)(now->at_ns - before->at_ns);
    printf("process %llu%s\n\n", (unsigned long long)w->page->pid,
           w->has_ended ? " has ended; its last figures:" : "");
    sheet_print(sheets[0], stdout);
    if (!(seconds > 0))
        printf("\nlight requests %llu; waits %llu; back-pressure %llu; device allocations %llu\n\n",
               (unsigned long long)now->requests, (unsigned long long)now->syncs,
               (unsigned long long)now->throttles, (unsigned long long)now->device_allocs);
    else
        printf("\nlight requests %llu (%.0f a second); waits %llu, %.1f %% of time; back-pressure "
               "%llu; "
               "device allocations %llu\n\n",
               (unsigned long long)now->requests, per_s(now->requests, before->requests, seconds),
               (unsigned long long)now->syncs, 1e-7 * per_s(now->sync_ns, before->sync_ns, seconds),
               (unsigned long long)now->throttles, (unsigned long long)now->device_allocs);
    sheet_print(sheets[1], stdout);
    if (now->refusals) printf("\n");
    if (now->refusals) sheet_print(sheets[2], stdout);
    fflush(stdout);
}

static void print_json(const watched_t *w, const fy__live_figures_t *now,
                       const fy__live_figures_t *before, sheet_t *const sheets[3])
{
    json_t json = { .file = stdout };
    const double seconds = 1e-9 * (double)(now->at_ns - before->at_ns);
    json_begin_object(&json, NULL);
    json_uint(&json, "watch", w->page->pid);
    json_text(&json, "version", fy_version());
    json_bool(&json, "ended", w->has_ended);
    json_real(&json, "interval_s", seconds > 0 ? seconds : NAN);
    json_uint(&json, "requests", now->requests);
    json_real(&json, "requests_per_s", per_s(now->requests, before->requests, seconds));
    json_uint(&json, "syncs", now->syncs);
    json_uint(&json, "sync_ns", now->sync_ns);
    json_real(&json, "sync_share", 1e-9 * per_s(now->sync_ns, before->sync_ns, seconds));
    json_uint(&json, "throttles", now->throttles);
    json_uint(&json, "throttle_ns", now->throttle_ns);
    json_uint(&json, "device_allocs", now->device_allocs);
    json_uint(&json, "refusals", now->refusals);
    sheet_json(sheets[0], &json, "traffic");
    sheet_json(sheets[1], &json, "devices");
    sheet_json(sheets[2], &json, "last_refusals");
    json_end(&json);
}

static void show(const watched_t *w, const fy__live_figures_t *now,
                 const fy__live_figures_t *before, bool as_json)
{
    sheet_t *sheets[3] = { traffic_sheet(now, before), device_sheet(now), note_sheet(now) };
    if (as_json)
        print_json(w, now, before, sheets);
    else
        print_text(w, now, before, sheets);
    for (int i = 0; i < 3; i++) sheet_destroy(sheets[i]);
}

/* Until the process ends; `once`: one interval. */
static fy_status_t watch(watched_t *w, int64_t interval_ms, bool once, bool as_json)
{
    const bool clears = !once && isatty(STDOUT_FILENO);
    fy__live_figures_t before, now;
    FY_TRY(read_figures(w, &before));
    do {
        for (int64_t ms = 0; ms < interval_ms && !w->has_ended; ms += 100) {
            sleep_ns(1000000 * (interval_ms - ms < 100 ? interval_ms - ms : 100));
            w->has_ended = has_ended(w->page);
        }
        FY_TRY(read_figures(w, &now));
        if (clears) fputs("\033[H\033[J", stdout);
        show(w, &now, &before, as_json);
        if (!clears && !once && !w->has_ended) printf("\n");
        before = now;
    } while (!once && !w->has_ended && !ferror(stdout));
    return FY_STATUS_OK;
}

int cmd_watch(int argc, char **argv)
{
    int64_t interval_ms = 1000;
    bool once = false, json = false;
    const option_t options[] = {
        { "interval-ms", OPTION_INT, "MS", &interval_ms, "time between two readings", 100,
          3600000 },
        { "once", OPTION_FLAG, NULL, &once, "show one interval and end" },
        { "json", OPTION_FLAG, NULL, &json,
          "as --once, as one JSON document on standard output, and nothing else there" },
    };
    const usage_t usage = {
        "ferry watch [PID|FILE]",
        "Shows the figures of a process that was started with FERRY_WATCH=1, until it ends: rates "
        "by direction, waits, live bytes, the last refusals.\n"
        "Without a process: lists those that can be watched.",
        options, sizeof options / sizeof *options,
        "FERRY_WATCH=1 ferry train lenet --device sim:0 --max-steps 60 >train.txt & sleep 1; "
        "ferry watch $!\n"
    };
    const char *name;
    OPTIONS_TRY(options_parse_named(&usage, argc, argv, &name));
    if (!name) {
        if (!clean(stdout)) printf("no process shares its figures; start one with FERRY_WATCH=1\n");
        return STATUS_OK;
    }
    watched_t w = { .page = NULL };
    fy_status_t status = open_page(name, &w);
    if (status == FY_STATUS_OK) status = watch(&w, interval_ms, once || json, json);
    const int exit_status = tool_end(status);
    if (w.page) munmap((void *)(uintptr_t)w.page, sizeof *w.page);
    if (w.has_ended) clean(NULL);
    return exit_status;
}
