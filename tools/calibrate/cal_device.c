/* Measures the times of a device. Requests are measured as slopes, n requests against twice as
 * many, so that the constant cost of a wait drops out. Requests that are cheap on the device are
 * queued after large work, so that the host is ahead and the device's time shows.
 * The figures have the meaning of the simulator's profiles (docs/simulator.md). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/bench/peers.h"
#include "tools/calibrate/cal.h"

enum {
    MANY = 128, /* requests of a slope; twice as many stay below what a driver queues (1024) */
    FEW_COPIES = 32
};

typedef struct setup {
    fy_tensor_t *tiny, *tiny_too;    /* four f32 */
    fy_tensor_t *big, *big_too;      /* u8, the device's memory */
    fy_tensor_t *up, *small_up;      /* page-locked */
    fy_tensor_t *at, *small_at;      /* where they go */
    fy_tensor_t *peer_at;            /* on the peer */
    int64_t nbytes;                  /* of big */
    int64_t link_nbytes;             /* of up */
    int64_t blockers, copy_blockers; /* how many large requests hide MANY small submissions */
    peer_copy_t *raw; /* the driver's pageable copies; NULL: there is no such driver */
    void *raw_host;
} setup_t;

/* ---- pieces of work ---- */

typedef fy_status_t (*work_fn)(cal_t *cal, setup_t *s, int64_t count);

static fy_status_t launches(cal_t *cal, setup_t *s, int64_t count)
{
    (void)cal;
    for (int64_t i = 0; i < count; i++) FY_TRY(fy_axpy(s->tiny, 0, s->tiny_too));
    return FY_STATUS_OK;
}

static fy_status_t local_copies(cal_t *cal, setup_t *s, int64_t count)
{
    (void)cal;
    for (int64_t i = 0; i < count; i++) FY_TRY(fy_copy(s->big, s->big_too));
    return FY_STATUS_OK;
}

static fy_status_t fills(cal_t *cal, setup_t *s, int64_t count)
{
    (void)cal;
    for (int64_t i = 0; i < count; i++) FY_TRY(fy_fill(s->big, 0));
    return FY_STATUS_OK;
}

static fy_status_t upload(fy_tensor_t *to, const fy_tensor_t *from, int64_t count)
{
    fy_transfer_options_t options = FY_TRANSFER_OPTIONS_INIT;
    fy_ticket_t ticket;
    options.contract = FY_HOST_BORROW;
    for (int64_t i = 0; i < count; i++) FY_TRY(fy_tensor_upload_into(to, from, &options, &ticket));
    return FY_STATUS_OK;
}

static fy_status_t uploads(cal_t *cal, setup_t *s, int64_t count)
{
    (void)cal;
    return upload(s->at, s->up, count);
}

static fy_status_t small_uploads(cal_t *cal, setup_t *s, int64_t count)
{
    (void)cal;
    return upload(s->small_at, s->small_up, count);
}

/* Each into the same page-locked memory: the call waits, so what a wait costs once is in each;
 * large ones hide it. */
static fy_status_t downloads(cal_t *cal, setup_t *s, int64_t count)
{
    (void)cal;
    for (int64_t i = 0; i < count; i++) FY_TRY(fy_tensor_download_into(s->up, s->at, NULL));
    return FY_STATUS_OK;
}

static fy_status_t sends(cal_t *cal, setup_t *s, int64_t count)
{
    fy_ticket_t ticket;
    (void)cal;
    for (int64_t i = 0; i < count; i++)
        FY_TRY(fy_tensor_send_into(s->peer_at, s->at, NULL, &ticket));
    return FY_STATUS_OK;
}

/* ---- timing ---- */

/* *out_submit_ns: until the host was free; *out_total_ns: until all was done. */
static fy_status_t time_work(cal_t *cal, setup_t *s, work_fn before, int64_t nbefore, work_fn work,
                             int64_t count, double *out_submit_ns, double *out_total_ns)
{
    FY_TRY(fy_device_wait(cal->device, FY_FOREVER));
    const double begin = cal_now_ns(cal);
    if (before) FY_TRY(before(cal, s, nbefore));
    const double behind = cal_now_ns(cal);
    FY_TRY(work(cal, s, count));
    *out_submit_ns = cal_now_ns(cal) - behind;
    FY_TRY(fy_device_wait(cal->device, FY_FOREVER));
    if (cal->peer && work == sends) FY_TRY(fy_device_wait(cal->peer, FY_FOREVER));
    *out_total_ns = cal_now_ns(cal) - begin;
    return FY_STATUS_OK;
}

/* Of a request that is pending all the while. */
static fy_status_t polls(cal_t *cal, setup_t *s, int64_t count)
{
    (void)cal;
    const fy_ticket_t ticket = fy_tensor_ticket(s->big);
    for (int64_t i = 0; i < count; i++) (void)fy_ticket_poll(ticket);
    return FY_STATUS_OK;
}

/* Runs large work, and polls until the earlier work is retired. */
static fy_status_t work_and_polls(cal_t *cal, setup_t *s, int64_t count)
{
    FY_TRY(local_copies(cal, s, count));
    return polls(cal, s, 32);
}

/* Probes. Those before WAIT, and SEND, are slopes. */
enum { LAUNCH, KERNEL, COPY, FILL, UP, DOWN, SUBMIT, SETUP, POLL, WAIT, SEND, RAW, PROBES };

/* The time of one more request. */
static const struct {
    work_fn work;
    int64_t count;
    bool is_submit; /* of the host, until it is free; else until all is done */
    work_fn before; /* large work that hides the requests */
} slopes[PROBES] = {
    [LAUNCH] = { launches, MANY, true },
    [KERNEL] = { launches, MANY, .before = local_copies },
    [COPY] = { local_copies, 4 },
    [FILL] = { fills, 4 },
    [UP] = { uploads, 2 },
    [DOWN] = { downloads, 2 },
    [SUBMIT] = { small_uploads, FEW_COPIES, true },
    [SETUP] = { small_uploads, FEW_COPIES, .before = uploads },
    [POLL] = { polls, MANY, true, .before = work_and_polls },
    [SEND] = { sends, 2 },
};

static fy_status_t time_slope(cal_t *cal, setup_t *s, int which, double *out)
{
    const work_fn before = slopes[which].before;
    const int64_t count = slopes[which].count,
                  nbefore = before == uploads ? s->copy_blockers : s->blockers;
    double submit[2], total[2];
    for (int k = 0; k < 2; k++)
        FY_TRY(time_work(cal, s, before, nbefore, slopes[which].work, (k + 1) * count, &submit[k],
                         &total[k]));
    *out = (slopes[which].is_submit ? submit[1] - submit[0] : total[1] - total[0]) / (double)count;
    return FY_STATUS_OK;
}

typedef struct probe {
    setup_t *s;
    int which;
} probe_t;

static fy_status_t probe_slope(cal_t *cal, void *context, double *out)
{
    const probe_t *probe = context;
    return time_slope(cal, probe->s, probe->which, out);
}

/* One tiny request, and the wait for it: all of it. */
static fy_status_t probe_wait(cal_t *cal, void *context, double *out)
{
    setup_t *s = context;
    FY_TRY(fy_device_wait(cal->device, FY_FOREVER));
    const double begin = cal_now_ns(cal);
    FY_TRY(launches(cal, s, 1));
    FY_TRY(fy_ticket_wait(fy_tensor_ticket(s->tiny), FY_FOREVER));
    *out = cal_now_ns(cal) - begin;
    return FY_STATUS_OK;
}

static fy_status_t probe_pageable(cal_t *cal, void *context, double *out)
{
    setup_t *s = context;
    void *address;
    FY_TRY(fy_device_wait(cal->device, FY_FOREVER));
    FY_TRY(fy_tensor_begin_native_access(s->at, FY_ACCESS_WRITE, NULL, &address));
    const double begin = wall_ns();
    for (int up = 0; up < 2; up++)
        if (!peer_copy(s->raw, up == 0, (uint64_t)(uintptr_t)address, s->raw_host,
                       (size_t)s->link_nbytes))
            return TOOL_FAIL(UNAVAILABLE,
                             "calibrate: the driver refused a pageable copy of %lld bytes",
                             (long long)s->link_nbytes);
    *out = (wall_ns() - begin) / 2;
    return FY_STATUS_OK;
}

/* ---- all of it ---- */

static fy_status_t make(cal_t *cal, setup_t *s)
{
    fy_device_info_t info = FY_DEVICE_INFO_INIT;
    FY_TRY(fy_device_query(cal->device, &info));
    s->nbytes = cal->most_nbytes;
    if ((uint64_t)s->nbytes > info.memory_nbytes / 8) s->nbytes = (int64_t)(info.memory_nbytes / 8);
    s->link_nbytes = s->nbytes < (int64_t)64 << 20 ? s->nbytes : (int64_t)64 << 20;
    FY_TRY(fy_zeros(cal->device, FY_DTYPE_F32, FY_DIMS(4), &s->tiny));
    FY_TRY(fy_zeros(cal->device, FY_DTYPE_F32, FY_DIMS(4), &s->tiny_too));
    FY_TRY(fy_zeros(cal->device, FY_DTYPE_F32, FY_DIMS(s->nbytes / 4), &s->big));
    FY_TRY(fy_zeros(cal->device, FY_DTYPE_F32, FY_DIMS(s->nbytes / 4), &s->big_too));
    FY_TRY(fy_zeros(cal->device, FY_DTYPE_U8, FY_DIMS(s->link_nbytes), &s->at));
    FY_TRY(fy_zeros(cal->device, FY_DTYPE_F32, FY_DIMS(1), &s->small_at));
    FY_TRY(fy_tensor_create_pinned(cal->device, FY_DTYPE_U8, FY_DIMS(s->link_nbytes), &s->up));
    FY_TRY(fy_tensor_create_pinned(cal->device, FY_DTYPE_F32, FY_DIMS(1), &s->small_up));
    if (cal->peer) FY_TRY(fy_zeros(cal->peer, FY_DTYPE_U8, FY_DIMS(s->link_nbytes), &s->peer_at));
    FY_TRY(fy_fill(s->up, 1));
    FY_TRY(fy_fill(s->small_up, 1));
    s->raw = cal->is_model ? NULL : peer_copy_open(fy_device_name(cal->device));
    if (s->raw) {
        s->raw_host = tool_alloc((size_t)s->link_nbytes);
        memset(s->raw_host, 1, (size_t)s->link_nbytes);
    }
    return FY_STATUS_OK;
}

/* How much large work takes longer than submitting the small work behind it, by a first look. */
static fy_status_t choose_blockers(cal_t *cal, setup_t *s)
{
    double ns[PROBES];
    static const int first[] = { COPY, UP, LAUNCH, SUBMIT };
    for (int i = 0; i < 8; i++) /* each twice: the first time memory is touched */
        FY_TRY(time_slope(cal, s, first[i / 2], &ns[first[i / 2]]));
    const double blockers = 2 * 2 * MANY * ns[LAUNCH] / fmax(ns[COPY], 1),
                 copies = 2 * 2 * FEW_COPIES * ns[SUBMIT] / fmax(ns[UP], 1);
    s->blockers = 2 + (int64_t)fmin(fmax(blockers, 0), 128);
    /* the engine's window: cmd_calibrate.c */
    s->copy_blockers = 2 + (int64_t)fmin(fmax(copies, 0), 13);
    return FY_STATUS_OK;
}

static void note_link(cal_t *cal, const setup_t *s, const cal_probe_t *up, const cal_probe_t *down,
                      const cal_probe_t *raw, double submit_ns, double setup_ns, double wait_ns)
{
    /* A download waits each time; an upload's slope has no wait. */
    const double nbytes = (double)s->link_nbytes, up_ns = cal_less(up->value, setup_ns),
                 down_ns = cal_less(down->value, setup_ns + submit_ns + wait_ns);
    const double up_per_s = nbytes / up_ns * 1e9, down_per_s = nbytes / down_ns * 1e9;
    cal_note(cal, "pinned_bytes_per_s", "bytes/s", fmin(up_per_s, down_per_s), 1,
             fmax(up->spread, down->spread),
             "%lld bytes, one more of several; up %.4g, down %.4g bytes/s: the slower",
             (long long)s->link_nbytes, up_per_s, down_per_s);
    if (raw)
        cal_note(cal, "pageable_bytes_per_s", "bytes/s", nbytes / raw->value * 1e9, 1, raw->spread,
                 "the driver's own copies of %lld pageable bytes, mean of up and down",
                 (long long)s->link_nbytes);
    else
        cal_note(
            cal, "pageable_bytes_per_s", "bytes/s", fmin(up_per_s, down_per_s), 1, 0,
            "not measured: Ferry's transfers never take that path here; as pinned_bytes_per_s");
}

static fy_status_t measure(cal_t *cal, setup_t *s)
{
    cal_probe_t probes[PROBES] = { [WAIT] = { .run = probe_wait, .context = s } };
    probe_t context[PROBES];
    size_t count = WAIT + 1;
    cal_probe_t *send = NULL, *raw = NULL;
    for (int i = 0; i < PROBES; i++) context[i] = (probe_t){ s, i };
    for (int i = 0; i < WAIT; i++)
        probes[i] = (cal_probe_t){ .run = probe_slope, .context = &context[i] };
    if (cal->peer)
        *(send = &probes[count++]) = (cal_probe_t){ .run = probe_slope, .context = &context[SEND] };
    if (s->raw) *(raw = &probes[count++]) = (cal_probe_t){ .run = probe_pageable, .context = s };
    cal->what = "calibrate: requests and memory";
    FY_TRY(cal_measure(cal, probes, count));

    const double kernel_ns = fmax(probes[KERNEL].value, 0), setup_ns = fmax(probes[SETUP].value, 0);
    /* A wait's first poll and an upload's look at the queue are polls; the former passes while the
     * kernel runs. */
    const double wake_ns = probes[WAIT].value - probes[LAUNCH].value -
                           fmax(kernel_ns, probes[POLL].value);
    const double submit_ns = probes[SUBMIT].value - probes[POLL].value;
    const double nbytes = (double)s->nbytes, copy_ns = cal_less(probes[COPY].value, kernel_ns),
                 fill_ns = cal_less(probes[FILL].value, kernel_ns);
    FY_TRY(cal_products(cal, kernel_ns));
    cal_note(cal, "memory_bytes_per_s", "bytes/s", 2 * nbytes / copy_ns * 1e9, 1,
             probes[COPY].spread,
             "fy_copy of %lld bytes, read and written; fy_fill alone gives %.4g bytes/s",
             (long long)s->nbytes, nbytes / fill_ns * 1e9);
    note_link(cal, s, &probes[UP], &probes[DOWN], raw, probes[SUBMIT].value, setup_ns,
              fmax(wake_ns, 0));
    if (send)
        cal_note(cal, "peer_bytes_per_s", "bytes/s",
                 (double)s->link_nbytes / cal_less(send->value, setup_ns) * 1e9, 1, send->spread,
                 "fy_tensor_send_into of %lld bytes to %s", (long long)s->link_nbytes,
                 fy_device_name(cal->peer));
    else
        cal_note(cal, "peer_bytes_per_s", "bytes/s", cal_figure(cal, "pinned_bytes_per_s")->value,
                 1, 0, "not measured: no second device; as pinned_bytes_per_s");
    cal_note(cal, "launch_submit_ns", "ns", probes[LAUNCH].value, 0, probes[LAUNCH].spread,
             "host time of one more of %d ops of 4 elements", MANY);
    cal_note(cal, "copy_submit_ns", "ns", submit_ns, 0, probes[SUBMIT].spread,
             "host time of one more of %d page-locked uploads of 4 bytes, less a poll", FEW_COPIES);
    cal_note(cal, "poll_ns", "ns", probes[POLL].value, 1, probes[POLL].spread,
             "fy_ticket_poll of a pending request, mean of %d", MANY);
    cal_note(cal, "wake_ns", "ns", wake_ns, 0, probes[WAIT].spread,
             "an op of 4 elements and the wait for it, less submit and kernel");
    cal_note(cal, "kernel_ns", "ns", kernel_ns, 0, probes[KERNEL].spread,
             "device time of one more of %d ops of 4 elements behind large work", MANY);
    cal_note(cal, "copy_setup_ns", "ns", setup_ns, 0, probes[SETUP].spread,
             "device time of one more of %d uploads of 4 bytes behind large ones", FEW_COPIES);
    return FY_STATUS_OK;
}

fy_status_t cal_device(cal_t *cal)
{
    fy_device_info_t info = FY_DEVICE_INFO_INIT;
    setup_t s = { .nbytes = 0 };
    const fy_scope_t scope = fy_scope_begin("calibrate");
    fy_status_t status = fy_device_query(cal->device, &info);
    if (status == FY_STATUS_OK)
        cal_note(cal, "memory_bytes", "bytes", (double)info.memory_nbytes, 1, 0, "fy_device_query");
    if (status == FY_STATUS_OK) status = make(cal, &s);
    if (status == FY_STATUS_OK) status = choose_blockers(cal, &s);
    if (status == FY_STATUS_OK) status = measure(cal, &s);
    peer_copy_close(s.raw);
    free(s.raw_host);
    fy_scope_end(scope, 0, NULL);
    return status;
}
