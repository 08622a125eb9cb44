/* Convolutions of dense f16 and bf16: pieces of the batch are converted to f32 in scratch, the f32
 * kernels run on them, and results are rounded once. Plain loops convert each element as often as
 * it is read.
 * A gradient of weights is added up in f32 over the pieces. Not here: any convolution. */
#include "backends/kernels/conv.h"
#include "backends/kernels/last_product.h"
#include "backends/kernels/rows.h"

/* ---- pieces ---- */

/* `images` of the batch as a convolution of f32; its operands are in scratch, one after the
 * other. */
typedef struct piece {
    fy__conv_t conv;
    fy_desc_t x, w, y, bias;
    int64_t images, nx, nw, ny, nbias; /* elements of a piece */
    uint64_t own_nbytes;               /* of the operands; the rest is the kernel's */
} piece_t;

static void take_operand(piece_t *piece, fy_desc_t *desc, const fy_desc_t *half, char *scratch)
{
    *desc = *half;
    desc->dtype = FY_DTYPE_F32;
    desc->data = scratch ? scratch + piece->own_nbytes : NULL;
    piece->own_nbytes += fy__wide_nbytes(fy__desc_nelem(desc));
}

/* scratch NULL: only its size is asked for. */
static void make_piece(const fy__conv_t *conv, int64_t images, char *scratch, piece_t *piece)
{
    fy_desc_t x = *conv->x, y = *conv->y;
    piece->conv = *conv;
    piece->conv.shape.half = 0;
    piece->images = piece->conv.shape.n = x.dims[0] = y.dims[0] = images;
    piece->own_nbytes = 0;
    take_operand(piece, &piece->x, &x, scratch);
    take_operand(piece, &piece->w, conv->w, scratch);
    take_operand(piece, &piece->y, &y, scratch);
    if (conv->bias) take_operand(piece, &piece->bias, conv->bias, scratch);
    piece->conv.x = &piece->x;
    piece->conv.w = &piece->w;
    piece->conv.y = &piece->y;
    piece->conv.bias = conv->bias ? &piece->bias : NULL;
    piece->nx = fy__desc_nelem(&piece->x);
    piece->nw = fy__desc_nelem(&piece->w);
    piece->ny = fy__desc_nelem(&piece->y);
    piece->nbias = conv->bias ? fy__desc_nelem(&piece->bias) : 0;
}

/* The most images that fit, so that a run with the scratch that was planned finds the same. */
static int find_piece(const fy__conv_t *conv, int way, uint64_t limit, char *scratch,
                      piece_t *piece, uint64_t *out_nbytes)
{
    for (int64_t images = conv->shape.n; images > 0; images--) {
        if (conv->shape.n % images != 0) continue;
        make_piece(conv, images, scratch, piece);
        if (piece->own_nbytes > limit) continue;
        int fits;
        const uint64_t rest =
            fy__conv_way_nbytes(&piece->conv, way, limit - piece->own_nbytes, &fits);
        if (!fits || piece->own_nbytes + rest > limit) continue;
        *out_nbytes = piece->own_nbytes + rest;
        return 1;
    }
    return 0;
}

uint64_t fy__conv_half_nbytes(const fy__conv_t *conv, int way, uint64_t limit)
{
    piece_t piece;
    uint64_t nbytes;
    return find_piece(conv, way, limit, NULL, &piece, &nbytes) ? nbytes : 0;
}

static fy_status_t run_piece(const fy_host_api_t *host, const fy__loops_t *loops,
                             const piece_t *piece, int way, char *scratch, uint64_t nbytes,
                             int is_first)
{
    const fy_status_t status = fy__conv_way_run(
        host, loops, &piece->conv, way, scratch + piece->own_nbytes, nbytes - piece->own_nbytes);
    if (status != FY_STATUS_UNSUPPORTED || is_first) return status; /* no result is written yet */
    fy__product_by("plain loops"); /* the number of threads has changed, or oneDNN refused */
    fy__conv_plain(loops, &piece->conv);
    return FY_STATUS_OK;
}

fy_status_t fy__conv_half_run(const fy_host_api_t *host, const fy__loops_t *loops,
                              const fy__conv_t *conv, int way, void *scratch, uint64_t nbytes)
{
    const fy__conv_shape_t *s = &conv->shape;
    const int is_weight = s->op == FY_OP_CONV2D_BACKWARD_WEIGHT,
              is_input = s->op == FY_OP_CONV2D_BACKWARD_INPUT;
    piece_t piece;
    uint64_t needed;
    if (!find_piece(conv, way, nbytes, (char *)scratch, &piece, &needed))
        return FY_STATUS_UNSUPPORTED;
    if (!is_weight || s->accumulate) fy__widen(loops, conv->w, 0, piece.nw, piece.w.data);
    if (conv->bias && (!is_weight || conv->accumulate_bias))
        fy__widen(loops, conv->bias, 0, piece.nbias, piece.bias.data);
    for (int64_t i = 0; i < s->n / piece.images; i++) {
        if (!is_input || s->accumulate)
            fy__widen(loops, conv->x, i * piece.nx, piece.nx, piece.x.data);
        if (s->op != FY_OP_CONV2D) fy__widen(loops, conv->y, i * piece.ny, piece.ny, piece.y.data);
        if (is_weight && i > 0) piece.conv.shape.accumulate = piece.conv.accumulate_bias = 1;
        FY_TRY(run_piece(host, loops, &piece, way, (char *)scratch, nbytes, i == 0));
        if (is_input) fy__narrow(loops, conv->x, i * piece.nx, piece.nx, piece.x.data);
        if (s->op == FY_OP_CONV2D) fy__narrow(loops, conv->y, i * piece.ny, piece.ny, piece.y.data);
    }
    if (is_weight) fy__narrow(loops, conv->w, 0, piece.nw, piece.w.data);
    if (is_weight && conv->bias) fy__narrow(loops, conv->bias, 0, piece.nbias, piece.bias.data);
    return FY_STATUS_OK;
}
