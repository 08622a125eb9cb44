/* The elementwise families: one test for the flat case on the way in, everything else through a map
 * (rows.h).
 * serial_of: how many f32 elements one thread does in 20 us. */
#include "backends/kernels/rows.h"

enum { SERIAL_CHEAP = 98304, TINY = 16, ALONE = 1024 };
static const int32_t serial_of[FY__MATHS_COUNT] = { [FY__MATHS_cheap] = SERIAL_CHEAP,
                                                    [FY__MATHS_exp] = 32768,
                                                    [FY__MATHS_tanh] = 14336,
                                                    [FY__MATHS_pow] = 6144,
                                                    [FY__MATHS_erf] = 3072 };

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

/* ---- families ---- */

/* All but the smallest: out of line, so that a tiny add saves few registers. */
static __attribute__((noinline)) fy_status_t run_binary_large(const fy__loops_t *loops,
                                                              const fy_launch_t *launch)
{
    const fy__kernel_row_t *row = &fy__kernel_rows[launch->op];
    const fy_desc_t *dst = launch->dst, *src = launch->src;
    const fy__loop2_fn loop = loops->binary[row->index][dst->dtype];
    if (loop && is_plain(launch, serial_of[row->maths])) {
        loop((int64_t)launch->nelem, dst->data, src[0].data, src[1].data);
        return FY_STATUS_OK;
    }
    fy__map_t map = { .loops = loops, .block = block2 };
    map.loop.two = loops->binary[row->index][fy__compute_dtype(launch->dst->dtype)];
    fy__map_run(&map, launch, serial_of[row->maths]);
    return FY_STATUS_OK;
}

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
        return run_binary_large(loops, launch);
    loop((int64_t)launch->nelem, dst->data, src[0].data, src[1].data);
    return FY_STATUS_OK;
}

static __attribute__((noinline)) fy_status_t run_unary_large(const fy__loops_t *loops,
                                                             const fy_launch_t *launch)
{
    const fy__kernel_row_t *row = &fy__kernel_rows[launch->op];
    const fy_desc_t *dst = launch->dst;
    const fy__loop1_fn loop = loops->unary[row->index][dst->dtype];
    if (loop && is_plain(launch, serial_of[row->maths])) {
        loop((int64_t)launch->nelem, dst->data, launch->src->data);
        return FY_STATUS_OK;
    }
    fy__map_t map = { .loops = loops, .block = block1 };
    map.loop.one = loops->unary[row->index][fy__compute_dtype(launch->dst->dtype)];
    fy__map_run(&map, launch, serial_of[row->maths]);
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
        return run_unary_large(loops, launch);
    loop((int64_t)launch->nelem, dst->data, launch->src->data);
    return FY_STATUS_OK;
}

fy_status_t fy__run_compare(const fy_host_api_t *host, const fy__loops_t *loops,
                            const fy_launch_t *launch)
{
    const fy_desc_t *dst = launch->dst, *src = launch->src;
    const fy__loop2_fn *row = loops->compare[fy__kernel_rows[launch->op].index],
                       loop = row[src->dtype];
    (void)host;
    if (loop && is_plain(launch, SERIAL_CHEAP)) {
        loop((int64_t)launch->nelem, dst->data, src[0].data, src[1].data);
        return FY_STATUS_OK;
    }
    fy__map_t map = { .loops = loops, .block = block2 };
    map.loop.two = row[fy__compute_dtype(src->dtype)];
    fy__map_run(&map, launch, SERIAL_CHEAP);
    return FY_STATUS_OK;
}

fy_status_t fy__run_test(const fy_host_api_t *host, const fy__loops_t *loops,
                         const fy_launch_t *launch)
{
    const fy__loop1_fn *row = loops->test[fy__kernel_rows[launch->op].index];
    const fy__loop1_fn loop = row[launch->src->dtype];
    (void)host;
    if (loop && is_plain(launch, SERIAL_CHEAP)) {
        loop((int64_t)launch->nelem, launch->dst->data, launch->src->data);
        return FY_STATUS_OK;
    }
    fy__map_t map = { .loops = loops, .block = block1 };
    map.loop.one = row[fy__compute_dtype(launch->src->dtype)];
    fy__map_run(&map, launch, SERIAL_CHEAP);
    return FY_STATUS_OK;
}

fy_status_t fy__run_scaled(const fy_host_api_t *host, const fy__loops_t *loops,
                           const fy_launch_t *launch)
{
    const fy__kernel_row_t *row = &fy__kernel_rows[launch->op];
    const double *attrs = (const double *)launch->attrs;
    const double q = launch->attrs_nbytes > sizeof *attrs ? attrs[1] : 0;
    const int32_t dtype = launch->dst->dtype;
    (void)host;
    if (dtype <= FY_DTYPE_F64 && is_plain(launch, serial_of[row->maths])) {
        loops->scaled[row->index][dtype]((int64_t)launch->nelem, launch->dst->data,
                                         launch->src->data, attrs[0], q);
        return FY_STATUS_OK;
    }
    fy__map_t map = { .loops = loops, .block = block_scaled, .p = attrs[0], .q = q };
    map.loop.scaled = loops->scaled[row->index][fy__compute_dtype(dtype)];
    fy__map_run(&map, launch, serial_of[row->maths]);
    return FY_STATUS_OK;
}

fy_status_t fy__run_affine(const fy_host_api_t *host, const fy__loops_t *loops,
                           const fy_launch_t *launch)
{
    const fy_affine_attrs_t *attrs = (const fy_affine_attrs_t *)launch->attrs;
    const fy_desc_t *dst = launch->dst;
    (void)host;
    if (dst->dtype <= FY_DTYPE_F64 && is_plain(launch, SERIAL_CHEAP)) {
        loops->affine[dst->dtype]((int64_t)launch->nelem, dst->data, launch->src->data,
                                  attrs->scale, attrs->shift);
        return FY_STATUS_OK;
    }
    fy__map_t map = { .loops = loops, .block = block_scaled, .p = attrs->scale, .q = attrs->shift };
    map.loop.scaled = loops->affine[fy__compute_dtype(dst->dtype)];
    fy__map_run(&map, launch, SERIAL_CHEAP);
    return FY_STATUS_OK;
}

/* dst += alpha * src; half precision is widened, updated and rounded once. */
fy_status_t fy__run_axpy(const fy_host_api_t *host, const fy__loops_t *loops,
                         const fy_launch_t *launch)
{
    const fy_axpy_attrs_t *attrs = (const fy_axpy_attrs_t *)launch->attrs;
    const fy_desc_t *dst = launch->dst;
    if (dst->dtype <= FY_DTYPE_F64 && is_plain(launch, SERIAL_CHEAP)) {
        loops->axpy[dst->dtype]((int64_t)launch->nelem, dst->data, launch->src->data, attrs->alpha,
                                0);
        return FY_STATUS_OK;
    }
    fy_launch_t assign = *launch; /* axpy adds by itself */
    fy__map_t map = { .loops = loops, .block = block_scaled, .p = attrs->alpha, .reads_dst = 1 };
    (void)host;
    assign.accumulate = 0;
    map.loop.scaled = loops->axpy[fy__compute_dtype(dst->dtype)];
    fy__map_run(&map, &assign, SERIAL_CHEAP);
    return FY_STATUS_OK;
}

fy_status_t fy__run_clamp(const fy_host_api_t *host, const fy__loops_t *loops,
                          const fy_launch_t *launch)
{
    const fy_clamp_attrs_t *attrs = (const fy_clamp_attrs_t *)launch->attrs;
    fy__map_t map = { .loops = loops, .block = block_scaled, .p = attrs->low, .q = attrs->high };
    (void)host;
    map.loop.scaled = loops->clamp[fy__compute_dtype(launch->dst->dtype)];
    fy__map_run(&map, launch, SERIAL_CHEAP);
    return FY_STATUS_OK;
}

/* dst *= min(1, max_norm / (src + 1e-6)), as axpy updates. */
fy_status_t fy__run_clip(const fy_host_api_t *host, const fy__loops_t *loops,
                         const fy_launch_t *launch)
{
    const fy_clip_attrs_t *attrs = (const fy_clip_attrs_t *)launch->attrs;
    fy__map_t map = { .loops = loops, .block = block_scaled, .p = attrs->max_norm, .reads_dst = 1 };
    (void)host;
    map.loop.scaled = loops->clip[fy__compute_dtype(launch->dst->dtype)];
    fy__map_run(&map, launch, SERIAL_CHEAP);
    return FY_STATUS_OK;
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
