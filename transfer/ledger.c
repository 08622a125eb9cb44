/* Reads the ledger: sums over all threads' figures. The counters are increased elsewhere: dispatch,
 * upload, download, guard, and for wire bytes the executor itself. */
#include <ferry/ledger.h>

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/fail.h"
#include "runtime/base/abi_structs.h"
#include "runtime/thread/thread.h"

static uint64_t get(_Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

static void add_traffic(fy_traffic_t *sum, fy__traffic_counters_t *counters)
{
    sum->count += get(&counters->count);
    sum->nbytes += get(&counters->nbytes);
    sum->wire_nbytes += get(&counters->wire_nbytes);
    sum->copies += get(&counters->copies);
    for (int i = 0; i < FY_PATH_COUNT; i++) sum->by_path[i] += get(&counters->by_path[i]);
    sum->host_blocked_ns += get(&counters->blocked_ns);
}

static void add_node(void *user, fy__node_t *node)
{
    fy_ledger_totals_t *totals = user;
    add_traffic(&totals->upload, &node->traffic[FY__UPLOAD]);
    add_traffic(&totals->download, &node->traffic[FY__DOWNLOAD]);
    add_traffic(&totals->peer, &node->traffic[FY__PEER]);
    add_traffic(&totals->collective, &node->traffic[FY__COLLECTIVE]);
    totals->requests += get(&node->requests);
    totals->syncs += get(&node->syncs);
    totals->sync_ns += get(&node->sync_ns);
    totals->device_allocs += get(&node->device_allocs);
    totals->throttles += get(&node->throttles);
    totals->throttle_ns += get(&node->throttle_ns);
}

struct query {
    const char *path;
    fy_ledger_totals_t totals;
};

static void add_thread(void *user, fy__thread_t *thread)
{
    struct query *query = user;
    fy__node_t *node = fy__node_find(&thread->root, query->path);
    if (node) fy__node_walk(node, add_node, &query->totals);
}

fy_status_t fy_ledger_query(const char *scope_path, fy_ledger_totals_t *out_totals)
{
    struct query query = { scope_path, FY_LEDGER_TOTALS_INIT };
    FY_TRY(FY__CHECK_OUT(ledger_totals, "ledger_query", out_totals));
    fy__thread_walk(add_thread, &query);
    FY__WRITE(out_totals, &query.totals);
    return FY_STATUS_OK;
}

/* ---- walking ---- */

enum { PATH = 512 };
struct row { /* a node of one thread; nodes live as long as the process */
    char *path;
    fy__node_t *node;
};
struct rows {
    struct row *items;
    size_t count, capacity;
};

/* A path that was cut is that of its parent, whose totals contain the node. */
static bool is_cut(const fy__node_t *node, const char *path)
{
    char above[PATH];
    return node->parent && strcmp(path, fy__node_path(node->parent, above, sizeof above)) == 0;
}

static void add_row(void *user, fy__node_t *node)
{
    struct rows *rows = user;
    char path[PATH];
    if (rows->count == rows->capacity) {
        const size_t capacity = rows->capacity ? rows->capacity * 2 : 32;
        struct row *grown = realloc(rows->items, capacity * sizeof *grown);
        if (!grown) return;
        rows->items = grown;
        rows->capacity = capacity;
    }
    if (is_cut(node, fy__node_path(node, path, sizeof path))) return;
    char *copy = strdup(path);
    if (copy) rows->items[rows->count++] = (struct row){ copy, node };
}

static void add_rows(void *user, fy__thread_t *thread)
{
    fy__node_walk(&thread->root, add_row, user);
}

/* "4096" before "65536". */
static int compare(const void *a, const void *b)
{
    return strverscmp(((const struct row *)a)->path, ((const struct row *)b)->path);
}

void fy_ledger_walk(void (*fn)(void *user, const char *path, const fy_ledger_totals_t *totals),
                    void *user)
{
    struct rows rows = { NULL, 0, 0 };
    if (!fn) return;
    fy__thread_walk(add_rows, &rows);
    /* a parent is a prefix of its children */
    if (rows.count) qsort(rows.items, rows.count, sizeof *rows.items, compare);
    for (size_t i = 0; i < rows.count;) {
        const char *path = rows.items[i].path;
        fy_ledger_totals_t totals = FY_LEDGER_TOTALS_INIT;
        for (; i < rows.count && strcmp(rows.items[i].path, path) == 0; i++)
            fy__node_walk(rows.items[i].node, add_node, &totals);
        fn(user, path, &totals);
    }
    for (size_t i = 0; i < rows.count; i++) free(rows.items[i].path);
    free(rows.items);
}
