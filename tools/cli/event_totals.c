/* Sums of events. Scopes and sites are found by hash, because a recording may have 100,000 of them;
 * pools by a search of a short list. */
#include "tools/cli/event_totals.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/tool.h"

static char *copy(const char *text)
{
    char *copied = tool_alloc(strlen(text) + 1);
    return strcpy(copied, text);
}

static fy_ledger_totals_t *scope_of(event_totals_t *totals, const char *path)
{
    bool is_new;
    size_t *at = text_index_at(&totals->scope_index, path, &is_new);
    if (!is_new) return &totals->scopes[*at].own;
    *at = totals->nscopes;
    totals->scopes = tool_grow(totals->scopes, totals->nscopes, sizeof *totals->scopes);
    event_scope_t *scope = &totals->scopes[totals->nscopes++];
    scope->path = copy(path);
    scope->own = (fy_ledger_totals_t)FY_LEDGER_TOTALS_INIT;
    return &scope->own;
}

static event_site_t *site_of(event_totals_t *totals, const char *site, const char *direction,
                             const char *path)
{
    bool is_new;
    const size_t room = strlen(site) + strlen(direction) + strlen(path) + 3;
    char *key = tool_alloc(room);
    snprintf(key, room, "%s\n%s\n%s", site, direction, path);
    size_t *at = text_index_at(&totals->site_index, key, &is_new);
    free(key);
    if (!is_new) return &totals->sites[*at];
    *at = totals->nsites;
    totals->sites = tool_grow(totals->sites, totals->nsites, sizeof *totals->sites);
    event_site_t *added = &totals->sites[totals->nsites++];
    *added = (event_site_t){ copy(site), copy(direction), copy(path), 0, 0, 0, "" };
    return added;
}

static event_pool_t *pool_of(event_totals_t *totals, const char *name)
{
    for (size_t i = totals->npools; i-- > 0;)
        if (strcmp(totals->pools[i].name, name) == 0) return &totals->pools[i];
    totals->pools = tool_grow(totals->pools, totals->npools, sizeof *totals->pools);
    event_pool_t *pool = &totals->pools[totals->npools++];
    pool->name = copy(name);
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
    const uint64_t nbytes = event_whole(event, "bytes"),
                   blocked_ns = event_whole(event, "blocked_ns");
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
    own->collective.count++;
    own->collective.nbytes += event_whole(event, "bytes");
    at->count++;
    at->nbytes += event_whole(event, "bytes");
}

static void add_memory(event_totals_t *totals, const char *kind, const event_t *event)
{
    event_pool_t *pool = pool_of(totals, event_text(event, "pool"));
    const uint64_t nbytes = event_whole(event, "bytes");
    if (strcmp(kind, "pool") == 0) {
        pool->live = event_whole(event, "live_bytes");
        pool->reserved = event_whole(event, "reserved_bytes");
    } else if (strcmp(kind, "block_alloc") == 0) {
        pool->live += nbytes;
        pool->blocks++;
    } else if (strcmp(kind, "block_free") == 0)
        pool->live -= nbytes;
    else if (strcmp(kind, "segment_alloc") == 0) {
        pool->reserved += nbytes;
        pool->segments++;
    } else if (strcmp(kind, "segment_free") == 0)
        pool->reserved -= nbytes;
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
        traffic->wire_nbytes += event_whole(event, "bytes");
    } else if (strcmp(kind, "collective") == 0) {
        add_collective(totals, own, event);
    } else if (strcmp(kind, "exchange") == 0) {
        own->collective.wire_nbytes += event_whole(event, "bytes");
        own->collective.copies += event_whole(event, "messages");
        own->collective.host_blocked_ns += event_whole(event, "blocked_ns");
    } else if (strcmp(kind, "sync") == 0) {
        own->syncs++;
        own->sync_ns += event_whole(event, "blocked_ns");
    } else if (strcmp(kind, "throttle") == 0) {
        own->throttles++;
        own->throttle_ns += event_whole(event, "blocked_ns");
    } else if (strcmp(kind, "arrived") == 0)
        own->download.host_blocked_ns += event_whole(event, "blocked_ns");
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
        event_pool_t *pool = pool_of(totals, name);
        char *own = pool->name;
        *pool = other->pools[i];
        pool->name = own;
    }
    totals->refusals += other->refusals;
    totals->faults += other->faults;
    totals->waits += other->waits;
    totals->launches += other->launches;
}

/* The sum of `path`, which is cut off at `length` for the look-up. */
static fy_ledger_totals_t *sum_of(event_totals_t *totals, char *path, size_t length)
{
    bool is_new;
    const char cut = path[length];
    path[length] = 0;
    size_t *at = text_index_at(&totals->sum_index, path, &is_new);
    path[length] = cut;
    if (!is_new) return &totals->sums[*at];
    *at = totals->nsums;
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
    paths[count++] = copy("");
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
    text_index_free(&totals->sum_index);
    free(totals->sums);
    free(totals->scopes);
    free(totals->sites);
    free(totals->pools);
}
