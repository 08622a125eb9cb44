/* The elementwise families: one test for the flat case on the way in, everything else through a map
 * (rows.h).
 * serial_of: how many f32 elements one thread does in 20 us. */
#include "backends/kernels/rows.h"

enum { SERIAL_CHEAP = 98304, TINY = 16, ALONE = 1024 };
static const int32_t serial_of[FY__MATHS_COUNT] = { [FY__MATHS_cheap] = SERIAL_CHEAP,
                                                    [FY__MATHS_exp] = 32768,
                                                    [FY__MATHS_tanh] = 14336,
                                                    [FY__MATHS_pow] = 6144,
                                                    [FY__MATHS_erf] = 12288 };

int64_t fy__elementwise_serial(fy_op_t op) { return serial_of[fy__kernel_rows[op].maths]; }

/* ---- block functions: how a map calls its loop ---- */

static void block1(const fy__map_t *map, int64_t n, void *dst, void *const *src)
{
    map->loop.one(n, dst, src[0]);
}
static void block2(const fy__map_t *map, int64_t n, void *dst, void *const *src)
{
    map->loop.two(n, dst, src[0], src[1]);
}
static void block3(const fy__map_t *map, int64_t n, void *dst, void *const *src)
{
    map->loop.three(n, dst, src[0], src[1], src[2]);
}
static void block_scaled(const fy__map_t *map, int64_t n, void *dst, void *const *src)
{
    map->loop.scaled(n, dst, src[0], map->p, map->q);
}

/* Dense and assigned: the loop takes the operands as they are. */
static inline int is_flat(const fy_launch_t *launch)
{
    return (launch->flags & FY_LAUNCH_DENSE) != 0 && launch->accumulate == 0;
}
/* Flat, and for one thread: no map is needed. The fewest are never worth two threads (ALONE of the
 * slowest take 7 us), so they do not ask. */
static inline int is_plain(const fy_launch_t *launch, int64_t serial)
{
    return is_flat(launch) && (launch->nelem <= ALONE ||
                               fy__threads_for((int64_t)launch->nelem,
                                               fy__serial_of(launch->dst->dtype, serial)) == 1);
}

/* ---- loops by dtype ---- */

/* All but the smallest launches. `dtype` selects the loop: that of dst, or of compared sources. Out
 * of line, so that a tiny add saves few registers. */
static __attribute__((noinline)) fy_status_t run_two(const fy__loops_t *loops,
                                                     const fy_launch_t *launch,
                                                     const fy__loop2_fn *by_dtype, int32_t dtype,
                                                     int64_t serial)
{
    const fy_desc_t *src = launch->src;
    if (by_dtype[dtype] && is_plain(launch, serial)) {
        by_dtype[dtype]((int64_t)launch->nelem, launch->dst->data, src[0].data, src[1].data);
        return FY_STATUS_OK;
    }
    fy__map_t map = { .loops = loops, .block = block2 };
    map.loop.two = by_dtype[fy__compute_dtype(dtype)];
    fy__map_run(&map, launch, serial);
    return FY_STATUS_OK;
}

static __attribute__((noinline)) fy_status_t run_one(const fy__loops_t *loops,
                                                     const fy_launch_t *launch,
                                                     const fy__loop1_fn *by_dtype, int32_t dtype,
                                                     int64_t serial)
{
    if (by_dtype[dtype] && is_plain(launch, serial)) {
        by_dtype[dtype]((int64_t)launch->nelem, launch->dst->data, launch->src->data);
        return FY_STATUS_OK;
    }
    fy__map_t map = { .loops = loops, .block = block1 };
    map.loop.one = by_dtype[fy__compute_dtype(dtype)];
    fy__map_run(&map, launch, serial);
    return FY_STATUS_OK;
}

/* With two numbers; f32 and f64 have loops. `map` says whether dst is read. */
static fy_status_t run_scaled(fy__map_t map, const fy_launch_t *launch,
                              const fy__loop_scaled_fn *by_dtype, int64_t serial)
{
    const int32_t dtype = launch->dst->dtype;
    map.block = block_scaled;
    map.loop.scaled = by_dtype[fy__compute_dtype(dtype)];
    if (dtype <= FY_DTYPE_F64 && is_plain(launch, serial))
        map.loop.scaled((int64_t)launch->nelem, launch->dst->data, launch->src->data, map.p, map.q);
    else
        fy__map_run(&map, launch, serial);
    return FY_STATUS_OK;
}

/* ---- families ---- */

fy_status_t fy__run_binary(const fy_host_api_t *host, const fy__loops_t *loops,
                           const fy_launch_t *launch)
{
    const fy__kernel_row_t *row = &fy__kernel_rows[launch->op];
    const fy_desc_t *dst = launch->dst, *src = launch->src;
    /* A few elements cost less in short vectors, and bits are the same; only those of libm differ
     * between instruction sets. */
    const fy__loops_t *table =
        launch->nelem < TINY && row->maths == FY__MATHS_cheap ? &fy__loops_base : loops;
    const fy__loop2_fn loop = table->binary[row->index][dst->dtype];
    (void)host;
    if (__builtin_expect(!loop || launch->nelem > ALONE || !is_flat(launch), 0))
        return run_two(loops, launch, loops->binary[row->index], dst->dtype, serial_of[row->maths]);
    loop((int64_t)launch->nelem, dst->data, src[0].data, src[1].data);
    return FY_STATUS_OK;
}

fy_status_t fy__run_unary(const fy_host_api_t *host, const fy__loops_t *loops,
                          const fy_launch_t *launch)
{
    const fy__kernel_row_t *row = &fy__kernel_rows[launch->op];
    const fy_desc_t *dst = launch->dst;
    const fy__loop1_fn loop = loops->unary[row->index][dst->dtype];
    (void)host;
    if (__builtin_expect(!loop || launch->nelem > ALONE || !is_flat(launch), 0))
        return run_one(loops, launch, loops->unary[row->index], dst->dtype, serial_of[row->maths]);
    loop((int64_t)launch->nelem, dst->data, launch->src->data);
    return FY_STATUS_OK;
}

fy_status_t fy__run_compare(const fy_host_api_t *host, const fy__loops_t *loops,
                            const fy_launch_t *launch)
{
    (void)host;
    return run_two(loops, launch, loops->compare[fy__kernel_rows[launch->op].index],
                   launch->src->dtype, SERIAL_CHEAP);
}

fy_status_t fy__run_test(const fy_host_api_t *host, const fy__loops_t *loops,
                         const fy_launch_t *launch)
{
    (void)host;
    return run_one(loops, launch, loops->test[fy__kernel_rows[launch->op].index],
                   launch->src->dtype, SERIAL_CHEAP);
}

fy_status_t fy__run_scaled(const fy_host_api_t *host, const fy__loops_t *loops,
                           const fy_launch_t *launch)
{
    const fy__kernel_row_t *row = &fy__kernel_rows[launch->op];
    const double *attrs = (const double *)launch->attrs;
    const double q = launch->attrs_nbytes > sizeof *attrs ? attrs[1] : 0;
    (void)host;
    return run_scaled((fy__map_t){ .loops = loops, .p = attrs[0], .q = q }, launch,
                      loops->scaled[row->index], serial_of[row->maths]);
}

fy_status_t fy__run_affine(const fy_host_api_t *host, const fy__loops_t *loops,
                           const fy_launch_t *launch)
{
    const fy_affine_attrs_t *attrs = (const fy_affine_attrs_t *)launch->attrs;
    (void)host;
    return run_scaled((fy__map_t){ .loops = loops, .p = attrs->scale, .q = attrs->shift }, launch,
                      loops->affine, SERIAL_CHEAP);
}

/* dst += alpha * src; half precision is widened, updated and rounded once. */
fy_status_t fy__run_axpy(const fy_host_api_t *host, const fy__loops_t *loops,
                         const fy_launch_t *launch)
{
    const fy_axpy_attrs_t *attrs = (const fy_axpy_attrs_t *)launch->attrs;
    fy_launch_t assign = *launch; /* axpy adds by itself */
    (void)host;
    assign.accumulate = 0;
    return run_scaled((fy__map_t){ .loops = loops, .p = attrs->alpha, .reads_dst = 1 }, &assign,
                      loops->axpy, SERIAL_CHEAP);
}

fy_status_t fy__run_clamp(const fy_host_api_t *host, const fy__loops_t *loops,
                          const fy_launch_t *launch)
{
    const fy_clamp_attrs_t *attrs = (const fy_clamp_attrs_t *)launch->attrs;
    (void)host;
    return run_scaled((fy__map_t){ .loops = loops, .p = attrs->low, .q = attrs->high }, launch,
                      loops->clamp, SERIAL_CHEAP);
}

/* dst *= min(1, max_norm / (src + 1e-6)), as axpy updates. */
fy_status_t fy__run_clip(const fy_host_api_t *host, const fy__loops_t *loops,
                         const fy_launch_t *launch)
{
    const fy_clip_attrs_t *attrs = (const fy_clip_attrs_t *)launch->attrs;
    (void)host;
    return run_scaled((fy__map_t){ .loops = loops, .p = attrs->max_norm, .reads_dst = 1 }, launch,
                      loops->clip, SERIAL_CHEAP);
}

fy_status_t fy__run_where(const fy_host_api_t *host, const fy__loops_t *loops,
                          const fy_launch_t *launch)
{
    fy__map_t map = { .loops = loops, .block = block3, .keeps_bytes = 1 };
    (void)host;
    map.loop.three = loops->where[fy__log2_size(launch->dst->dtype)];
    fy__map_run(&map, launch, SERIAL_CHEAP);
    return FY_STATUS_OK;
}

fy_status_t fy__run_cast(const fy_host_api_t *host, const fy__loops_t *loops,
                         const fy_launch_t *launch)
{
    const int32_t from = launch->src->dtype, to = launch->dst->dtype;
    if (from == to) return fy__run_copy(host, loops, launch);
    fy__map_t map = {
        .loops = loops, .block = block1, .loop.one = loops->cast[from][to], .keeps_bytes = 1
    };
    fy__map_run(&map, launch, SERIAL_CHEAP);
    return FY_STATUS_OK;
}

/* dst += src, for copies with accumulate; the other copies only move bytes (copy.c). */
void fy__map_accumulate(const fy__loops_t *loops, const fy_launch_t *launch)
{
    const int32_t compute = fy__compute_dtype(launch->dst->dtype);
    fy__map_t map = { .loops = loops, .block = block1, .loop.one = loops->cast[compute][compute] };
    fy__map_run(&map, launch, SERIAL_CHEAP);
}
