/* The columns of the sums: their keys are documented in docs/cli.md. */
#include "tools/cli/event_totals.h"

#include <stdlib.h>

static const column_t scope_columns[] = {
    { "scope", "scope", 0 },
    { "requests", "requests", 0 },
    { "uploads", "uploads", 0 },
    { "upload_bytes", "bytes up", 0 },
    { "upload_wire_bytes", "wire up", 0 },
    { "upload_copies", NULL, 0 },
    { "upload_blocked_ns", NULL, 0 },
    { "downloads", "downloads", 0 },
    { "download_bytes", "bytes down", 0 },
    { "download_wire_bytes", "wire down", 0 },
    { "download_copies", NULL, 0 },
    { "download_blocked_ns", NULL, 0 },
    { "peers", NULL, 0 },
    { "peer_bytes", "bytes peer", 0 },
    { "peer_wire_bytes", NULL, 0 },
    { "syncs", "syncs", 0 },
    { "sync_ns", "sync [ns]", 0 },
    { "device_allocs", "allocs", 0 },
    { "throttles", "throttles", 0 },
    { "throttle_ns", NULL, 0 },
    { "collectives", NULL, 0 },
    { "collective_bytes", "bytes coll.", 0 },
    { "collective_wire_bytes", NULL, 0 },
    { "collective_copies", NULL, 0 },
    { "collective_blocked_ns", NULL, 0 },
};
static const column_t path_columns[] = {
    { "path", "path", 0 },
    { "uploads", "uploads", 0 },
    { "downloads", "downloads", 0 },
    { "peers", "peers", 0 },
};
static const column_t site_columns[] = {
    { "site", "call site", 0 },  { "direction", "direction", 0 },
    { "path", "path", 0 },       { "count", "count", 0 },
    { "bytes", "bytes", 0 },     { "blocked_ns", "blocked [ns]", 0 },
    { "tensors", "tensors", 0 },
};
static const column_t pool_columns[] = {
    { "pool", "pool", 0 },
    { "peak_live_bytes", "peak live", 0 },
    { "peak_reserved_bytes", "peak reserved", 0 },
    { "blocks", "blocks", 0 },
    { "segments", "segments", 0 },
    { "live_bytes", "live at the end", 0 },
};
#define SHEET(columns) sheet_create((columns), sizeof(columns) / sizeof *(columns))

static void add_traffic(sheet_t *sheet, const fy_traffic_t *traffic)
{
    sheet_int(sheet, (int64_t)traffic->count);
    sheet_int(sheet, (int64_t)traffic->nbytes);
    sheet_int(sheet, (int64_t)traffic->wire_nbytes);
    sheet_int(sheet, (int64_t)traffic->copies);
    sheet_int(sheet, (int64_t)traffic->host_blocked_ns);
}

sheet_t *event_scope_sheet(event_totals_t *totals, const char *under)
{
    sheet_t *sheet = SHEET(scope_columns);
    size_t count;
    char **paths = event_totals_paths(totals, &count);
    for (size_t i = 0; i < count; i++) {
        const fy_ledger_totals_t t = event_totals_of(totals, paths[i]);
        if (event_is_inside(paths[i], under)) {
            sheet_text(sheet, *paths[i] ? paths[i] : "everything");
            sheet_int(sheet, (int64_t)t.requests);
            add_traffic(sheet, &t.upload);
            add_traffic(sheet, &t.download);
            sheet_int(sheet, (int64_t)t.peer.count);
            sheet_int(sheet, (int64_t)t.peer.nbytes);
            sheet_int(sheet, (int64_t)t.peer.wire_nbytes);
            sheet_int(sheet, (int64_t)t.syncs);
            sheet_int(sheet, (int64_t)t.sync_ns);
            sheet_int(sheet, (int64_t)t.device_allocs);
            sheet_int(sheet, (int64_t)t.throttles);
            sheet_int(sheet, (int64_t)t.throttle_ns);
            add_traffic(sheet, &t.collective);
        }
        free(paths[i]);
    }
    free(paths);
    return sheet;
}

sheet_t *event_path_sheet(const fy_ledger_totals_t *all)
{
    sheet_t *sheet = SHEET(path_columns);
    for (int i = 0; i < FY_PATH_COUNT; i++) {
        if (!(all->upload.by_path[i] + all->download.by_path[i] + all->peer.by_path[i])) continue;
        sheet_text(sheet, fy_path_name((fy_path_t)i));
        sheet_int(sheet, (int64_t)all->upload.by_path[i]);
        sheet_int(sheet, (int64_t)all->download.by_path[i]);
        sheet_int(sheet, (int64_t)all->peer.by_path[i]);
    }
    return sheet;
}

sheet_t *event_site_sheet(const event_totals_t *totals, size_t most)
{
    sheet_t *sheet = SHEET(site_columns);
    for (size_t i = 0; i < totals->nsites && i < most; i++) {
        const event_site_t *site = &totals->sites[i];
        sheet_text(sheet, site->site);
        sheet_text(sheet, site->direction);
        sheet_text(sheet, site->path);
        sheet_int(sheet, (int64_t)site->count);
        sheet_int(sheet, (int64_t)site->nbytes);
        sheet_int(sheet, (int64_t)site->blocked_ns);
        sheet_text(sheet, site->tensors);
    }
    return sheet;
}

sheet_t *event_pool_sheet(const event_totals_t *totals)
{
    sheet_t *sheet = SHEET(pool_columns);
    for (size_t i = 0; i < totals->npools; i++) {
        const event_pool_t *pool = &totals->pools[i];
        sheet_text(sheet, pool->name);
        sheet_int(sheet, (int64_t)pool->peak_live);
        sheet_int(sheet, (int64_t)pool->peak_reserved);
        sheet_int(sheet, (int64_t)pool->blocks);
        sheet_int(sheet, (int64_t)pool->segments);
        sheet_int(sheet, (int64_t)pool->live);
    }
    return sheet;
}
