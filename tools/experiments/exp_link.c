/* The link experiment: how long a transfer takes, by size, by mode and by direction, each waited
 * for. `pinned` is one DMA with page-locked memory at the host's end; `pageable` is the CUDA
 * driver's own copy, past Ferry; `staged` goes through the ring, from memory of any kind; `loop` is
 * many small transfers one after another, `coalesced` the same in one call.
 * Not here: overlap (exp_link_overlap.c). How to read it: docs/experiments.md. */
#include "tools/bench/peers.h"
#include "tools/experiments/parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SIZES = 32 };
/* The modes loop and coalesced skip sizes with more bytes in all. */
static const int64_t most_together = (int64_t)64 << 20;
static const int64_t largest = (int64_t)1 << 32;

typedef struct request {
    int64_t sizes[MAX_SIZES];
    size_t count;
    int64_t pieces;
    effort_t effort;
    peer_copy_t *peer; /* NULL: there is none */
} request_t;

/* What one row moves, again and again. */
typedef struct load {
    fy_device_t *device;
    int64_t nbytes; /* of a piece */
    size_t pieces;
    fy_tensor_t **on_host, **on_device;
    fy_download_t **replies;
    /* For the driver's own copies of the first piece. */
    peer_copy_t *peer;
    uint64_t address;
    void *bytes;
} load_t;

/* ---- the modes: each moves all pieces once and returns when they are there ---- */

static fy_status_t upload_each(load_t *load, const fy_transfer_options_t *options)
{
    fy_ticket_t ticket = { 0, 0 };
    for (size_t i = 0; i < load->pieces; i++)
        FY_TRY(fy_tensor_upload_into(load->on_device[i], load->on_host[i], options, &ticket));
    return fy_ticket_wait(ticket, FY_FOREVER); /* the engine takes them in order */
}

static fy_status_t up_borrowed(load_t *load)
{
    fy_transfer_options_t options = FY_TRANSFER_OPTIONS_HERE;
    options.contract = FY_HOST_BORROW;
    return upload_each(load, &options);
}

static fy_status_t up_copied(load_t *load) { return upload_each(load, NULL); }

static fy_status_t up_together(load_t *load)
{
    fy_ticket_t ticket;
    FY_TRY(fy_tensor_upload_many_into(load->pieces, load->on_device, load->on_host, NULL, &ticket));
    return fy_ticket_wait(ticket, FY_FOREVER);
}

static fy_status_t receive_each(load_t *load)
{
    for (size_t i = 0; i < load->pieces; i++) {
        fy_tensor_t *host;
        FY_TRY(fy_download_wait(load->replies[i], FY_FOREVER, &host));
        fy_tensor_destroy(host);
    }
    return FY_STATUS_OK;
}

static fy_status_t down_each(load_t *load)
{
    for (size_t i = 0; i < load->pieces; i++)
        FY_TRY(fy_tensor_download(load->on_device[i],
                                  &(fy_transfer_options_t)FY_TRANSFER_OPTIONS_HERE,
                                  &load->replies[i]));
    return receive_each(load);
}

static fy_status_t down_together(load_t *load)
{
    FY_TRY(fy_tensor_download_many(load->pieces, load->on_device,
                                   &(fy_transfer_options_t)FY_TRANSFER_OPTIONS_HERE,
                                   load->replies));
    return receive_each(load);
}

/* Blocks: it is there on return. */
static fy_status_t down_into(load_t *load)
{
    for (size_t i = 0; i < load->pieces; i++)
        FY_TRY(fy_tensor_download_into(load->on_host[i], load->on_device[i],
                                       &(fy_transfer_options_t)FY_TRANSFER_OPTIONS_HERE));
    return FY_STATUS_OK;
}

/* The driver's own way, past Ferry and its ledger; waited for. */
static fy_status_t past_ferry(load_t *load, bool up)
{
    return peer_copy(load->peer, up, load->address, load->bytes, (size_t)load->nbytes)
               ? FY_STATUS_OK
               : TOOL_FAIL(INTERNAL, "the driver failed to copy %lld bytes",
                           (long long)load->nbytes);
}

static fy_status_t up_past_ferry(load_t *load) { return past_ferry(load, true); }
static fy_status_t down_past_ferry(load_t *load) { return past_ferry(load, false); }

typedef enum host_memory { PAGEABLE, PINNED, PAST_FERRY } host_memory_t;
static const struct mode {
    const char *name, *direction;
    host_memory_t memory;
    bool many;
    fy_status_t (*run)(load_t *load);
} modes[] = {
    { "pinned", "up", PINNED, false, up_borrowed },
    { "pinned", "down", PAGEABLE, false, down_each },
    { "pageable", "up", PAST_FERRY, false, up_past_ferry },
    { "pageable", "down", PAST_FERRY, false, down_past_ferry },
    { "staged", "up", PAGEABLE, false, up_copied },
    { "staged", "down", PAGEABLE, false, down_into },
    { "loop", "up", PAGEABLE, true, up_copied },
    { "loop", "down", PAGEABLE, true, down_each },
    { "coalesced", "up", PAGEABLE, true, up_together },
    { "coalesced", "down", PAGEABLE, true, down_together },
};
enum { MODE_COUNT = sizeof modes / sizeof *modes };

/* ---- measuring ---- */

typedef struct figures {
    spread_t ns;
    uint64_t copies;
} figures_t;

/* Host bytes are written once: pages that were never touched are no memory yet. */
static fy_status_t make_load(load_t *load, host_memory_t memory)
{
    fy_device_t *host = fy_device_host();
    for (size_t i = 0; i < load->pieces; i++) {
        void *bytes;
        if (memory == PINNED) {
            FY_TRY(fy_tensor_create_pinned(load->device, FY_DTYPE_U8, FY_DIMS(load->nbytes),
                                           &load->on_host[i]));
            FY_TRY(fy_tensor_map(load->on_host[i], FY_ACCESS_WRITE, &bytes));
            memset(bytes, 1, (size_t)load->nbytes);
        } else
            FY_TRY(fy_full(host, FY_DTYPE_U8, FY_DIMS(load->nbytes), 1, &load->on_host[i]));
        FY_TRY(fy_full(load->device, FY_DTYPE_U8, FY_DIMS(load->nbytes), 1, &load->on_device[i]));
    }
    if (memory != PAST_FERRY) return FY_STATUS_OK;
    void *address;
    FY_TRY(fy_tensor_begin_native_access(load->on_device[0], FY_ACCESS_READ, NULL, &address));
    load->address = (uint64_t)(uintptr_t)address;
    FY_TRY(fy_tensor_map(load->on_host[0], FY_ACCESS_WRITE, &load->bytes));
    return fy_device_wait(load->device, FY_FOREVER);
}

static fy_status_t time_mode(session_t *session, const struct mode *mode, const effort_t *effort,
                             load_t *load, figures_t *out)
{
    char path[64];
    sample_t times = { 0 };
    const bool up = strcmp(mode->direction, "up") == 0;
    snprintf(path, sizeof path, "link/%s/%s", mode->name, mode->direction);
    FY_TRY(make_load(load, mode->memory));
    FY_TRY(mode->run(load)); /* makes the ring, fills the pools */
    const fy_ledger_totals_t before = ledger_read(path);
    while (!effort_is_met(effort, &times)) {
        FY_TRY(session_wait(session));
        const double start = link_now_ns(session);
        FY_TRY(mode->run(load));
        sample_add(&times, link_now_ns(session) - start);
    }
    const fy_ledger_totals_t after = ledger_read(path);
    out->ns = sample_spread(&times);
    out->copies = (up ? after.upload.copies - before.upload.copies
                      : after.download.copies - before.download.copies) /
                  (times.count ? times.count : 1);
    if (mode->memory == PAST_FERRY) out->copies = 1; /* not in the ledger */
    return FY_STATUS_OK;
}

/* In a scope "pinned/up" and so on, which also gives everything back. */
static fy_status_t measure(session_t *session, const struct mode *mode, int64_t nbytes,
                           size_t pieces, const request_t *request, figures_t *out)
{
    load_t load = {
        .device = session->device, .nbytes = nbytes, .pieces = pieces, .peer = request->peer
    };
    load.on_host = tool_alloc(pieces * sizeof *load.on_host);
    load.on_device = tool_alloc(pieces * sizeof *load.on_device);
    load.replies = tool_alloc(pieces * sizeof *load.replies);
    fy_scope_t outer = fy_scope_begin(mode->name);
    (void)fy_scope_begin(mode->direction);
    const fy_status_t status = time_mode(session, mode, &request->effort, &load, out);
    fy_scope_end(outer, 0, NULL);
    free(load.replies);
    free(load.on_device);
    free(load.on_host);
    return status;
}

double link_now_ns(const session_t *session)
{
    return session->info.is_simulated ? session_model_ns(session) : wall_ns();
}

/* ---- the report ---- */

typedef struct curves {
    char names[MODE_COUNT][32];
    /* bytes in all; GB/s */
    double x[MODE_COUNT][MAX_SIZES];
    spread_t rates[MODE_COUNT][MAX_SIZES];
    size_t points[MODE_COUNT];
} curves_t;

static fy_status_t fill(session_t *session, const request_t *request, sheet_t *sheet,
                        curves_t *curves)
{
    const char *clock = session_clock(session);
    for (size_t m = 0; m < MODE_COUNT; m++) {
        const struct mode *mode = &modes[m];
        const size_t pieces = mode->many ? (size_t)request->pieces : 1;
        snprintf(curves->names[m], sizeof curves->names[m], "%s %s", mode->name, mode->direction);
        for (size_t i = 0; i < request->count; i++) {
            figures_t f;
            const int64_t size = request->sizes[i];
            const double nbytes = (double)size * (double)pieces;
            progress("link", (int64_t)(m * request->count + i),
                     (int64_t)(MODE_COUNT * request->count));
            if (mode->many && nbytes > (double)most_together) continue;
            if (mode->memory == PAST_FERRY && !request->peer) continue;
            FY_TRY(measure(session, mode, size, pieces, request, &f));
            const spread_t rate = spread_rate(nbytes, &f.ns);
            const size_t at = curves->points[m]++;
            curves->x[m][at] = nbytes;
            curves->rates[m][at] = rate;
            sheet_text(sheet, mode->name);
            sheet_text(sheet, mode->direction);
            sheet_int(sheet, (int64_t)nbytes);
            sheet_int(sheet, (int64_t)pieces);
            sheet_spread(sheet, &f.ns);
            sheet_real(sheet, f.ns.median > 0 ? 1e9 * rate.median : NAN);
            sheet_real(sheet, f.ns.median > 0 ? rate.median : NAN);
            sheet_int(sheet, (int64_t)f.copies);
            sheet_text(sheet, clock);
            sheet_int(sheet, (int64_t)f.ns.rounds);
        }
    }
    progress("link", 1, 1);
    return FY_STATUS_OK;
}

static fy_status_t report(session_t *session, const request_t *request, const sheet_t *sheet,
                          const curves_t *curves)
{
    session_sheet(session, sheet, "rows", session_clock(session),
                  session->info.is_simulated ? ", each waited for, model clock"
                                             : ", each waited for, wall clock",
                  "link: transfers");
    session_statistics(session, &request->effort, "the transfer once");
    series_t series[MODE_COUNT];
    size_t drawn = 0;
    for (size_t direction = 0; direction < 2; direction++) /* a panel each */
        for (size_t m = direction; m < MODE_COUNT; m += 2)
            series[drawn++] = (series_t){ curves->names[m], curves->points[m], curves->x[m],
                                          .spreads = curves->rates[m] };
    const plot_t plot = { .title = "Transfers by size and mode",
                          .x_label = "bytes",
                          .y_label = session->info.is_simulated ? "GB/s, model clock" : "GB/s",
                          .log_x = true,
                          .log_y = true,
                          .nseries = drawn,
                          .per_panel = MODE_COUNT / 2,
                          .series = series };
    return session_files(session, sheet, &plot);
}

static fy_status_t sweep(session_t *session, request_t *request)
{
    static const column_t columns[] = {
        { "mode", "mode", 0 },         { "direction", "direction", 0 },
        { "nbytes", "bytes", 0 },      { "pieces", "pieces", 0 },
        SPREAD_COLUMNS("ns", "ns", 0), { "bytes_per_s", NULL, 0 },
        { "gbytes_per_s", "GB/s", 4 }, { "copies", "copies", 0 },
        { "clock", NULL, 0 },          ROUNDS_COLUMN,
    };
    curves_t *curves = tool_alloc(sizeof *curves);
    sheet_t *sheet = sheet_create(columns, sizeof columns / sizeof *columns);
    request->peer = peer_copy_open(fy_device_name(session->device));
    fy_status_t status = fill(session, request, sheet, curves);
    if (status == FY_STATUS_OK) status = report(session, request, sheet, curves);
    peer_copy_close(request->peer);
    sheet_destroy(sheet);
    free(curves);
    return status;
}

/* Parses a list such as "4,64KiB,64MiB". false: it is wrong; stderr has the reason. */
static bool read_sizes(const char *list, request_t *request)
{
    for (request->count = 0; *list;) {
        const size_t n = strcspn(list, ",");
        if (request->count == MAX_SIZES)
            return TOOL_REFUSE(false, "--sizes: more than %d sizes\n", MAX_SIZES);
        if (!parse_bytes(list, n, 1, largest, &request->sizes[request->count++]))
            return TOOL_REFUSE(
                false, "--sizes: '%.*s' is not a size from 1 to 4GiB, such as 4096 or 64KiB\n",
                (int)n, list);
        list += n;
        list += *list == ',';
    }
    if (!request->count) fprintf(stderr, "ferry: --sizes: the list is empty\n");
    return request->count > 0;
}

int exp_link(int argc, char **argv)
{
    common_t common = { .device = "auto" };
    const char *const all_sizes = "4,64,1KiB,4KiB,16KiB,64KiB,256KiB,1MiB,4MiB,16MiB,64MiB",
                      *sizes = all_sizes;
    enum { PIECES = 64, STEPS = 64 };
    request_t request = { .pieces = PIECES, .effort = { .rounds = ROUNDS_FOR_INTERVAL } };
    int64_t steps = STEPS, products = 0;
    bool overlap = false;
    const option_t options[] = {
        { "sizes", OPTION_TEXT, "LIST", &sizes, "bytes of a piece, separated by commas" },
        EFFORT_OPTIONS(&request.effort),
        { "pieces", OPTION_INT, "N", &request.pieces,
          "how many go together in the modes loop and coalesced", 1, 65536 },
        { "overlap", OPTION_FLAG, NULL, &overlap,
          "instead: a loop of upload, compute and download, with and without waits" },
        { "steps", OPTION_INT, "N", &steps, "of the loop, once the pipeline is full", 1, 1000000 },
        { "compute", OPTION_INT, "N", &products,
          "matrix products in a step; 0: as many as take as long as the upload", 0, 100000 },
        TRAFFIC_OPTION(&common),
        COMMON_OPTIONS(&common),
    };
    const usage_t usage = { "ferry experiment link",
                            "Times transfers by size, mode and direction; with --overlap, how well "
                            "they hide behind computing.",
                            options, sizeof options / sizeof *options,
                            "ferry experiment link --device sim:0 --sizes 4KiB,1MiB\n"
                            "ferry experiment link --device 'sim:0?numerics=off' --overlap\n" };
    OPTIONS_TRY(options_parse(&usage, argc, argv));
    if (!read_sizes(sizes, &request)) return STATUS_USAGE;
    if (overlap ? sizes != all_sizes || request.pieces != PIECES : steps != STEPS || products != 0)
        return TOOL_REFUSE(STATUS_USAGE, "%s\n",
                           overlap ? "--sizes and --pieces do not apply to --overlap"
                                   : "--steps and --compute need --overlap");

    session_t session;
    fy_status_t status = session_begin(&session, &common, usage.command, "experiment", "link");
    if (status == FY_STATUS_OK)
        status = overlap ? link_overlap(&session, steps, products, &request.effort)
                         : sweep(&session, &request);
    return session_end_experiment(&session, status);
}
