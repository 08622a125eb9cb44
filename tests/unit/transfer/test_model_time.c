/* The model time of a transfer never falls as its bytes grow: every built-in profile, uploads and
 * downloads, page-locked and pageable memory. With the ring, pageable memory reaches nearly the
 * speed of page-locked memory. The device has no numerics, so only host bytes are copied. */
#include "tests/support/harness.h"

/* Chunks of the ring are multiples of 64 KiB, an eighth of the bytes: one step more leaves a
 * shorter last chunk, up to a twentieth of the time. */
enum { KIB = 1024, LARGEST = 12 << 20, ROUNDING = 20 };

static fy_device_t *g_device;
static fy_tensor_t *g_remote, *g_pageable, *g_pinned;

typedef struct views {
    fy_tensor_t *remote, *pageable, *pinned;
} views_t;

static void upload_pageable(const views_t *v)
{
    ts_ok(fy_tensor_upload_into(v->remote, v->pageable, NULL, NULL));
}
static void download_pageable(const views_t *v)
{
    ts_ok(fy_tensor_download_into(v->pageable, v->remote, NULL));
}
static void download_pinned(const views_t *v)
{
    ts_ok(fy_tensor_download_into(v->pinned, v->remote, NULL));
}

static void upload_pinned(const views_t *v)
{
    fy_ticket_t ticket;
    ts_ok(fy_tensor_upload_into(v->remote, v->pinned, &ts_borrow, &ticket));
}

static void download_object(const views_t *v) { (void)ts_download(v->remote); }

static const struct {
    const char *name;
    void (*move)(const views_t *views);
} ways[] = { { "upload, pageable", upload_pageable },
             { "upload, page-locked", upload_pinned },
             { "download, pageable", download_pageable },
             { "download, page-locked", download_pinned },
             { "download, object", download_object } };

static uint64_t once(size_t way, int64_t nbytes)
{
    views_t v;
    fy_scope_t scope = fy_scope_begin("one");
    ts_ok(fy_slice(g_remote, 0, 0, nbytes, &v.remote));
    ts_ok(fy_slice(g_pageable, 0, 0, nbytes, &v.pageable));
    ts_ok(fy_slice(g_pinned, 0, 0, nbytes, &v.pinned));
    const uint64_t start_ns = ts_clock(g_device).now_ns;
    ways[way].move(&v);
    const uint64_t ns = ts_clock(g_device).now_ns - start_ns;
    fy_scope_end(scope, 0, NULL);
    return ns;
}

/* The median of three: sometimes a stream polls all its events, and such polls take model time, or
 * save a wake-up. */
static uint64_t time_of(size_t way, int64_t nbytes)
{
    const uint64_t a = once(way, nbytes), b = once(way, nbytes), c = once(way, nbytes);
    const uint64_t low = a < b ? a : b, high = a < b ? b : a;
    return c < low ? low : c > high ? high : c;
}

static void sweep(const char *profile, size_t way)
{
    static const int64_t steps[] = { 1,          4 * KIB,       64 * KIB,   128 * KIB,
                                     255 * KIB,  256 * KIB - 1, 256 * KIB,  257 * KIB,
                                     384 * KIB,  512 * KIB,     1024 * KIB, 1025 * KIB,
                                     1536 * KIB, 2048 * KIB,    2049 * KIB, 4096 * KIB,
                                     4097 * KIB, 8192 * KIB,    8193 * KIB, LARGEST };
    uint64_t before_ns = 0;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        const uint64_t ns = time_of(way, steps[i]);
        if (ns + ns / ROUNDING < before_ns)
            fail_msg("%s: %s: %lld bytes take %llu ns, and %lld bytes take %llu", profile,
                     ways[way].name, (long long)steps[i], (unsigned long long)ns,
                     (long long)steps[i - 1], (unsigned long long)before_ns);
        before_ns = ns;
    }
}

static void open_profile(const char *profile, int64_t nbytes)
{
    char spec[64];
    snprintf(spec, sizeof spec, "sim:0?profile=%s&numerics=off", profile);
    g_device = ts_open(spec);
    g_remote = ts_zeros(g_device, FY_DTYPE_U8, FY_DIMS(nbytes));
    g_pageable = ts_zeros(fy_device_host(), FY_DTYPE_U8, FY_DIMS(nbytes));
    g_pinned = ts_pinned_bytes(g_device, nbytes);
}

TS_TEST(more_bytes_never_take_less)
{
    static const char *const profiles[] = {
        "k80", "v100", "a100", "h100", "h200", "rtx4090", "t4"
    };
    for (size_t p = 0; p < sizeof profiles / sizeof *profiles; p++) {
        open_profile(profiles[p], LARGEST);
        for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
            (void)time_of(way, LARGEST); /* creates the ring */
            sweep(profiles[p], way);
        }
        ts_close();
    }
}

TS_TEST(pageable_is_nearly_as_fast)
{
    enum { NBYTES = 64 << 20, BAR = 85 }; /* per cent */
    open_profile("h200", NBYTES);
    (void)once(0, NBYTES); /* creates the ring */
    for (size_t way = 0; way < 4; way += 2) {
        const uint64_t pinned_ns = once(way + 1, NBYTES), ns = once(way, NBYTES);
        print_message("64 MiB, model: %s: %llu ns, page-locked %llu ns\n", ways[way].name,
                      (unsigned long long)ns, (unsigned long long)pinned_ns);
        assert_true(pinned_ns * 100 >= ns * BAR);
    }
}
