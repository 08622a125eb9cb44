/* Conversions between half precision and f32, in pieces for threads. Not here: strides (rows.c). */
#include "backends/kernels/widen.h"

enum { PIECE = 1 << 15 }; /* elements that one thread converts at a time */

typedef struct cast {
    fy__loop1_fn loop;
    char *to;
    const char *from;
    int64_t n, to_nbytes, from_nbytes; /* elements, and bytes of one */
} cast_t;

static void cast_piece(const void *context, int64_t i)
{
    const cast_t *cast = (const cast_t *)context;
    const int64_t begin = i * PIECE, n = begin + PIECE < cast->n ? PIECE : cast->n - begin;
    cast->loop(n, cast->to + begin * cast->to_nbytes, cast->from + begin * cast->from_nbytes);
}

static void run_cast(const cast_t *cast)
{
    const int64_t npieces = (cast->n + PIECE - 1) / PIECE;
    fy__for_each(npieces, fy__threads_for(npieces, 2), cast_piece, cast);
}

void fy__widen(const fy__loops_t *loops, const fy_desc_t *half, int64_t first, int64_t n, void *to)
{
    run_cast(&(cast_t){ loops->cast[half->dtype][FY_DTYPE_F32], (char *)to,
                        (const char *)half->data + first * 2, n, sizeof(float), 2 });
}

void fy__narrow(const fy__loops_t *loops, const fy_desc_t *half, int64_t first, int64_t n,
                const void *from)
{
    run_cast(&(cast_t){ loops->cast[FY_DTYPE_F32][half->dtype], (char *)half->data + first * 2,
                        (const char *)from, n, 2, sizeof(float) });
}
