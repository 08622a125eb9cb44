/* Sums of events. Scopes, sites and pools are found by hash: a file may have 100,000 of them. */
#include "tools/cli/event_totals.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/tool.h"

/* ---- values that cannot be added ---- */

/* The first one stays. */
static void refuse(event_totals_t *totals, const char *key, uint64_t line, uint64_t most)
{
    if (totals->bad_key) return;
    totals->bad_key = key;
    totals->bad_line = line;
    totals->bad_most = most;
}

static bool fits(event_totals_t *totals, uint64_t value)
{
    if (value > (uint64_t)INT64_MAX - totals->all) return false;
    totals->all += value;
    return true;
}

/* The value of a key, 0 if it is none. */
static uint64_t value_of(event_totals_t *totals, const event_t *event, const char *key)
{
    uint64_t value;
    if (!event_count(event, key, INT64_MAX, &value)) refuse(totals, key, event->line, INT64_MAX);
    return value;
}

/* The same, for sums. */
static uint64_t figure(event_totals_t *totals, const event_t *event, const char *key)
{
    const uint64_t value = value_of(totals, event, key);
    if (fits(totals, value)) return value;
    refuse(totals, key, event->line, 0);
    return 0;
}

void event_totals_rank(event_totals_t *totals, const event_t *event)
{
    if (!event_is(event, "collective_ran") || !event_has(event, "rank")) return;
    totals->has_rank = event_count(event, "rank", INT32_MAX, &totals->rank);
    if (!totals->has_rank) refuse(totals, "rank", event->line, INT32_MAX);
}

fy_status_t event_totals_check(const event_totals_t *totals, const char *file)
{
    if (!totals->bad_key) return FY_STATUS_OK;
    if (!file)
        return TOOL_FAIL(CORRUPT_DATA, "the figures of these files cannot be added: their sum "
                                       "exceeds 2^63 - 1");
    if (!totals->bad_most)
        return TOOL_FAIL(CORRUPT_DATA,
                         "%s cannot be summed up: with \"%s\" of line %llu its figures exceed "
                         "2^63 - 1",
                         file, totals->bad_key, (unsigned long long)totals->bad_line);
    return TOOL_FAIL(
        CORRUPT_DATA,
        "%s cannot be summed up: \"%s\" of line %llu is no whole number from 0 to %llu", file,
        totals->bad_key, (unsigned long long)totals->bad_line,
        (unsigned long long)totals->bad_most);
}

/* ---- tables ---- */

static fy_ledger_totals_t *scope_of(event_totals_t *totals, const char *path)
{
    size_t at;
    if (!text_index_number(&totals->scope_index, path, totals->nscopes, &at))
        return &totals->scopes[at].own;
    totals->scopes = tool_grow(totals->scopes, totals->nscopes, sizeof *totals->scopes);
    event_scope_t *scope = &totals->scopes[totals->nscopes++];
    scope->path = tool_copy_text(path);
    scope->own = (fy_ledger_totals_t)FY_LEDGER_TOTALS_INIT;
    return &scope->own;
}

static event_site_t *site_of(event_totals_t *totals, const char *site, const char *direction,
                             const char *path)
{
    size_t at;
    const size_t room = strlen(site) + strlen(direction) + strlen(path) + 3;
    char *key = tool_alloc(room);
    snprintf(key, room, "%s\n%s\n%s", site, direction, path);
    const bool is_new = text_index_number(&totals->site_index, key, totals->nsites, &at);
    free(key);
    if (!is_new) return &totals->sites[at];
    totals->sites = tool_grow(totals->sites, totals->nsites, sizeof *totals->sites);
    event_site_t *added = &totals->sites[totals->nsites++];
    *added = (event_site_t){
        tool_copy_text(site), tool_copy_text(direction), tool_copy_text(path), 0, 0, 0, ""
    };
    return added;
}

static event_pool_t *pool_of(event_totals_t *totals, const char *name)
{
    size_t at;
    if (!text_index_number(&totals->pool_index, name, totals->npools, &at))
        return &totals->pools[at];
    totals->pools = tool_grow(totals->pools, totals->npools, sizeof *totals->pools);
    event_pool_t *pool = &totals->pools[totals->npools++];
    pool->name = tool_copy_text(name);
    return pool;
}

static fy_traffic_t *traffic_of(fy_ledger_totals_t *totals, const char *direction)
{
    return strcmp(direction, "upload") == 0     ? &totals->upload
           : strcmp(direction, "download") == 0 ? &totals->download
                                                : &totals->peer;
}

/* Is `name` in the list "x, w1"? */
static bool is_listed(const char *list, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = list; (at = strstr(at, name)); at++)
        if ((at == list || at[-1] == ' ') && (!at[length] || at[length] == ',')) return true;
    return false;
}

/* Adds the first name of the pair "x, -" that is none, unless it is there. A list that is full ends
 * in "...". */
static void add_tensors(event_site_t *at, const char *names)
{
    char name[48];
    const size_t used = strlen(at->tensors);
    if (strncmp(names, "-, ", 3) == 0) names += 3;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(names, ","), names);
    if (!*name || strcmp(name, "-") == 0 || is_listed(at->tensors, name) ||
        is_listed(at->tensors, "..."))
        return;
    const bool fits = used + strlen(name) + sizeof ", , ..." <= sizeof at->tensors;
    snprintf(at->tensors + used, sizeof at->tensors - used, "%s%s", used ? ", " : "",
             fits ? name : "...");
}

static void add_transfer(event_totals_t *totals, fy_ledger_totals_t *own, const event_t *event)
{
    const char *direction = event_text(event, "direction"), *path = event_text(event, "path"),
               *site = event_text(event, "site");
    const uint64_t nbytes = figure(totals, event, "bytes"),
                   blocked_ns = figure(totals, event, "blocked_ns");
    fy_traffic_t *traffic = traffic_of(own, direction);
    event_site_t *at = site_of(totals, *site ? site : "?", direction, path);
    traffic->count++;
    traffic->nbytes += nbytes;
    traffic->host_blocked_ns += blocked_ns;
    for (int i = 0; i < FY_PATH_COUNT; i++)
        traffic->by_path[i] += strcmp(path, fy_path_name((fy_path_t)i)) == 0;
    add_tensors(at, event_text(event, "names"));
    at->count++;
    at->nbytes += nbytes;
    at->blocked_ns += blocked_ns;
}

/* Its call site's path is the name of the call. */
static void add_collective(event_totals_t *totals, fy_ledger_totals_t *own, const event_t *event)
{
    const char *site = event_text(event, "site");
    event_site_t *at = site_of(totals, *site ? site : "?", "collective", event_text(event, "op"));
    const uint64_t nbytes = figure(totals, event, "bytes");
    own->collective.count++;
    own->collective.nbytes += nbytes;
    at->count++;
    at->nbytes += nbytes;
}

/* Blocks are allocated and freed for as long as a program runs: only what is live can be too
 * much. */
static void grow(event_totals_t *totals, const event_t *event, uint64_t *sum, uint64_t nbytes)
{
    if (nbytes > (uint64_t)INT64_MAX - *sum)
        refuse(totals, "bytes", event->line, 0);
    else
        *sum += nbytes;
}

/* The allocation may be lost. */
static void shrink(uint64_t *sum, uint64_t nbytes) { *sum -= nbytes < *sum ? nbytes : *sum; }

static void add_memory(event_totals_t *totals, const char *kind, const event_t *event)
{
    event_pool_t *pool = pool_of(totals, event_text(event, "pool"));
    const uint64_t nbytes = value_of(totals, event, "bytes");
    if (strcmp(kind, "pool") == 0) {
        pool->live = value_of(totals, event, "live_bytes");
        pool->reserved = value_of(totals, event, "reserved_bytes");
    } else if (strcmp(kind, "block_alloc") == 0) {
        grow(totals, event, &pool->live, nbytes);
        pool->blocks++;
    } else if (strcmp(kind, "block_free") == 0)
        shrink(&pool->live, nbytes);
    else if (strcmp(kind, "segment_alloc") == 0) {
        grow(totals, event, &pool->reserved, nbytes);
        pool->segments++;
    } else if (strcmp(kind, "segment_free") == 0)
        shrink(&pool->reserved, nbytes);
    if (pool->live > pool->peak_live) pool->peak_live = pool->live;
    if (pool->reserved > pool->peak_reserved) pool->peak_reserved = pool->reserved;
}

void event_totals_add(void *user, const event_t *event)
{
    event_totals_t *totals = user;
    fy_ledger_totals_t *own = scope_of(totals, event_text(event, "scope"));
    const char *kind = event_text(event, "ev");
    if (strcmp(kind, "op") == 0)
        own->requests++;
    else if (strcmp(kind, "transfer") == 0)
        add_transfer(totals, own, event);
    else if (strcmp(kind, "copy") == 0) {
        fy_traffic_t *traffic = traffic_of(own, event_text(event, "direction"));
        traffic->copies++;
        traffic->wire_nbytes += figure(totals, event, "bytes");
    } else if (strcmp(kind, "collective") == 0) {
        add_collective(totals, own, event);
    } else if (strcmp(kind, "exchange") == 0) {
        own->collective.wire_nbytes += figure(totals, event, "bytes");
        own->collective.copies += figure(totals, event, "messages");
        own->collective.host_blocked_ns += figure(totals, event, "blocked_ns");
    } else if (strcmp(kind, "sync") == 0) {
        own->syncs++;
        own->sync_ns += figure(totals, event, "blocked_ns");
    } else if (strcmp(kind, "throttle") == 0) {
        own->throttles++;
        own->throttle_ns += figure(totals, event, "blocked_ns");
    } else if (strcmp(kind, "arrived") == 0)
        own->download.host_blocked_ns += figure(totals, event, "blocked_ns");
    else if (strcmp(kind, "device_alloc") == 0)
        own->device_allocs++;
    else if (event_has(event, "pool"))
        add_memory(totals, kind, event);
    totals->refusals += strcmp(kind, "refusal") == 0;
    totals->faults += strcmp(kind, "fault") == 0;
    totals->waits += strcmp(kind, "wait") == 0;
    totals->launches += strcmp(kind, "launch") == 0;
}

bool event_is_inside(const char *path, const char *outer)
{
    const size_t n = strlen(outer);
    return !n || (strncmp(path, outer, n) == 0 && (!path[n] || path[n] == '/'));
}

static void add_traffic(fy_traffic_t *sum, const fy_traffic_t *own)
{
    sum->count += own->count;
    sum->nbytes += own->nbytes;
    sum->wire_nbytes += own->wire_nbytes;
    sum->copies += own->copies;
    sum->host_blocked_ns += own->host_blocked_ns;
    for (int i = 0; i < FY_PATH_COUNT; i++) sum->by_path[i] += own->by_path[i];
}

static void add_totals(fy_ledger_totals_t *sum, const fy_ledger_totals_t *own)
{
    add_traffic(&sum->upload, &own->upload);
    add_traffic(&sum->download, &own->download);
    add_traffic(&sum->peer, &own->peer);
    add_traffic(&sum->collective, &own->collective);
    sum->requests += own->requests;
    sum->syncs += own->syncs;
    sum->sync_ns += own->sync_ns;
    sum->device_allocs += own->device_allocs;
    sum->throttles += own->throttles;
    sum->throttle_ns += own->throttle_ns;
}

void event_totals_merge(event_totals_t *totals, const event_totals_t *other, uint64_t rank)
{
    if (!fits(totals, other->all)) refuse(totals, "", 0, 0);
    for (size_t i = 0; i < other->nscopes; i++)
        add_totals(scope_of(totals, other->scopes[i].path), &other->scopes[i].own);
    for (size_t i = 0; i < other->nsites; i++) {
        const event_site_t *from = &other->sites[i];
        event_site_t *at = site_of(totals, from->site, from->direction, from->path);
        at->count += from->count;
        at->nbytes += from->nbytes;
        at->blocked_ns += from->blocked_ns;
        if (!*at->tensors) memcpy(at->tensors, from->tensors, sizeof at->tensors);
    }
    for (size_t i = 0; i < other->npools; i++) {
        char name[200];
        snprintf(name, sizeof name, "%.150s, rank %llu", other->pools[i].name,
                 (unsigned long long)rank);
        const event_pool_t *from = &other->pools[i];
        event_pool_t *pool = pool_of(totals, name);
        if (!fits(totals, from->peak_live + from->peak_reserved)) refuse(totals, "", 0, 0);
        pool->live += from->live;
        pool->reserved += from->reserved;
        pool->peak_live += from->peak_live;
        pool->peak_reserved += from->peak_reserved;
        pool->blocks += from->blocks;
        pool->segments += from->segments;
    }
    totals->refusals += other->refusals;
    totals->faults += other->faults;
    totals->waits += other->waits;
    totals->launches += other->launches;
}

/* The sum of `path`, which is cut off at `length` for the look-up. */
static fy_ledger_totals_t *sum_of(event_totals_t *totals, char *path, size_t length)
{
    size_t at;
    const char cut = path[length];
    path[length] = 0;
    const bool is_new = text_index_number(&totals->sum_index, path, totals->nsums, &at);
    path[length] = cut;
    if (!is_new) return &totals->sums[at];
    totals->sums = tool_grow(totals->sums, totals->nsums, sizeof *totals->sums);
    totals->sums[totals->nsums] = (fy_ledger_totals_t)FY_LEDGER_TOTALS_INIT;
    return &totals->sums[totals->nsums++];
}

/* Each scope's own figures, to its path and to every path above. */
static void sum_up(event_totals_t *totals)
{
    for (size_t i = 0; i < totals->nscopes; i++) {
        char *path = totals->scopes[i].path;
        add_totals(sum_of(totals, path, 0), &totals->scopes[i].own);
        for (size_t length = 0; path[length];) {
            length += strcspn(path + length + (path[length] == '/'), "/") + (path[length] == '/');
            add_totals(sum_of(totals, path, length), &totals->scopes[i].own);
        }
    }
}

fy_ledger_totals_t event_totals_of(event_totals_t *totals, const char *path)
{
    bool is_new;
    if (!totals->nsums) sum_up(totals);
    const size_t *at = text_index_at(&totals->sum_index, path, &is_new);
    if (!is_new && *at < totals->nsums) return totals->sums[*at];
    return (fy_ledger_totals_t)FY_LEDGER_TOTALS_INIT;
}

static int compare_texts(const void *a, const void *b)
{
    return strverscmp(*(char *const *)a, *(char *const *)b);
}

char **event_totals_paths(const event_totals_t *totals, size_t *out_count)
{
    char **paths = NULL;
    size_t count = 0, unique = 0;
    paths = tool_grow(paths, count, sizeof *paths);
    paths[count++] = tool_copy_text("");
    for (size_t i = 0; i < totals->nscopes; i++)
        for (const char *end = totals->scopes[i].path; *end;) { /* the path and all above it */
            end += strcspn(end + (*end == '/'), "/") + (*end == '/');
            paths = tool_grow(paths, count, sizeof *paths);
            const size_t n = (size_t)(end - totals->scopes[i].path);
            paths[count] = tool_alloc(n + 1);
            memcpy(paths[count], totals->scopes[i].path, n);
            paths[count++][n] = 0;
        }
    qsort(paths, count, sizeof *paths, compare_texts);
    for (size_t i = 0; i < count; i++) {
        if (unique && strcmp(paths[i], paths[unique - 1]) == 0)
            free(paths[i]);
        else
            paths[unique++] = paths[i];
    }
    *out_count = unique;
    return paths;
}

static int compare_sites(const void *a, const void *b)
{
    const event_site_t *x = a, *y = b;
    if (x->nbytes != y->nbytes) return x->nbytes < y->nbytes ? 1 : -1;
    return strcmp(x->site, y->site);
}

void event_totals_sort(event_totals_t *totals)
{
    if (totals->nsites) qsort(totals->sites, totals->nsites, sizeof *totals->sites, compare_sites);
}

void event_totals_free(event_totals_t *totals)
{
    for (size_t i = 0; i < totals->nscopes; i++) free(totals->scopes[i].path);
    for (size_t i = 0; i < totals->npools; i++) free(totals->pools[i].name);
    for (size_t i = 0; i < totals->nsites; i++) {
        free(totals->sites[i].site);
        free(totals->sites[i].direction);
        free(totals->sites[i].path);
    }
    text_index_free(&totals->scope_index);
    text_index_free(&totals->site_index);
    text_index_free(&totals->pool_index);
    text_index_free(&totals->sum_index);
    free(totals->sums);
    free(totals->scopes);
    free(totals->sites);
    free(totals->pools);
}
