/* Packing for everything that has one thread an element: elementwise, making, moving. Axes are
 * fused first (formulas/index.h), so most launches end up with one axis. Next: pack_reduce.c for
 * what joins elements, matmul.c. */
#include "backends/cuda/pack.h"

#include <string.h>

#include "backends/cuda/flat.h"
#include "opset/formulas/step_results.h"

_Static_assert(sizeof(fy__cuda_args_t) <= 4096, "a kernel takes 4 KiB of arguments on every GPU");
_Static_assert(sizeof(fy__cuda_flat_t) <= 128,
               "the driver copies the arguments of every launch: the common ones stay short");

fy__cuda_class_t fy__cuda_class_of(int32_t dtype)
{
    switch (dtype) {
    case FY_DTYPE_F32:
    case FY_DTYPE_F16:
    case FY_DTYPE_BF16: return FY__CUDA_F32;
    case FY_DTYPE_F64: return FY__CUDA_F64;
    default: return FY__CUDA_INT;
    }
}

uint64_t fy__cuda_dtype_nbytes(int32_t dtype)
{
    static const uint8_t nbytes[] = {
#define X(name, text, size, is_float) size,
        FY_DTYPE_LIST(X)
#undef X
    };
    return nbytes[dtype];
}

void fy__cuda_request_init(fy__cuda_request_t *out, uint32_t op, uint64_t nelem, unsigned nsrc,
                           const void *attrs, size_t attrs_nbytes)
{
    fy__cuda_args_t *args = &out->args;
    out->threads = nelem;
    out->block = FY__CUDA_BLOCK;
    out->square = 0;
    memset(args, 0, sizeof *args);
    args->struct_size = sizeof *args;
    args->op = op;
    args->nelem = nelem;
    args->nsrc = nsrc;
    args->ndst = 1;
    args->lanes = 1;
    if (attrs_nbytes > 0) memcpy(args->attrs.bytes, attrs, attrs_nbytes);
}

uint64_t fy__cuda_nelem(const fy_desc_t *desc)
{
    uint64_t nelem = 1;
    for (int axis = 0; axis < desc->rank; axis++) nelem *= (uint64_t)desc->dims[axis];
    return nelem;
}

void fy__cuda_operand_point(fy__cuda_operand_t *operand, const void *data, int32_t dtype)
{
    operand->data = (uint64_t)(uintptr_t)data;
    operand->dtype = dtype;
}

void fy__cuda_operand_set(fy__cuda_operand_t *operand, const fy_desc_t *desc)
{
    fy__cuda_operand_point(operand, desc->data, desc->dtype);
    operand->rank = desc->rank;
    for (int axis = 0; axis < desc->rank; axis++) {
        operand->dims[axis] = desc->dims[axis];
        operand->strides[axis] = desc->strides[axis];
    }
}

void fy__cuda_operand_add(fy__cuda_operand_t *operand, int64_t dim, int64_t stride)
{
    operand->dims[operand->rank] = dim;
    operand->strides[operand->rank] = stride;
    operand->rank++;
}

void fy__cuda_args_size(fy__cuda_args_t *args, uint64_t largest)
{
    if (largest <= INT32_MAX) args->flags |= FY__CUDA_SMALL;
}

enum { CAST_AT_ONCE = 4 }; /* of f32 and f16: 16 and 8 bytes an access */

static uint32_t per_access(int32_t dtype) { return (uint32_t)(16 / fy__cuda_dtype_nbytes(dtype)); }

/* A thread for each element, or for each group of them. */
static uint64_t threads_of(const fy__cuda_args_t *args)
{
    return args->wide > 1 ? args->nelem / args->wide + 1 : args->nelem;
}

void fy__cuda_operand_fused(fy__cuda_operand_t *operand, const fy_desc_t *desc,
                            const fy__index_t *index, int k)
{
    fy__cuda_operand_point(operand, desc->data, desc->dtype);
    for (int axis = 0; axis < index->rank; axis++)
        fy__cuda_operand_add(operand, index->dims[axis], index->strides[k][axis]);
}

enum {
    none_nbytes = 0,
#define ATTRS(set, type, ...) set##_nbytes = sizeof(type),
#include "opset/attrs.def"
};
#define ROW(number, ENUM, name, flags, dtypes, attrs, ...) [FY_OP_##ENUM] = attrs##_nbytes,
static const uint8_t attrs_nbytes[FY_OP_BUILTIN_COUNT] = {
#include "opset/ops.def"
};

static int flat_or(const fy__cuda_args_t *args, int flat_kernel, int kernel)
{
    return fy__cuda_is_flat(args) ? flat_kernel : kernel;
}

static int elementwise_kernel(fy__cuda_args_t *args)
{
    const int32_t dtype = args->src[0].dtype;
    if (args->op == FY_OP_CAST) {
        (void)fy__cuda_set_wide(args, 1, 0, 1, CAST_AT_ONCE);
        return flat_or(args, FY__CUDA_KERNEL_fy_cast_flat, FY__CUDA_KERNEL_fy_cast);
    }
    if (args->op == FY_OP_WHERE) {
        (void)fy__cuda_set_wide(args, 1, 0, args->nsrc, per_access(args->dst[0].dtype));
        return flat_or(args, FY__CUDA_KERNEL_fy_copy_flat, FY__CUDA_KERNEL_fy_copy);
    }
    (void)fy__cuda_set_wide(args, 1, 0, args->nsrc, per_access(dtype));
    const int flat = fy__cuda_is_flat(args);
    switch (fy__cuda_class_of(dtype)) {
    case FY__CUDA_F32:
        if (flat)
            return dtype != FY_DTYPE_F32 ? FY__CUDA_KERNEL_fy_elementwise_flat_half
                                         : FY__CUDA_KERNEL_fy_elementwise_flat_f32;
        if (!args->wide) return FY__CUDA_KERNEL_fy_elementwise_f32;
        return dtype != FY_DTYPE_F32 ? FY__CUDA_KERNEL_fy_elementwise_wide_half
                                     : FY__CUDA_KERNEL_fy_elementwise_wide_f32;
    case FY__CUDA_F64:
        if (flat) return FY__CUDA_KERNEL_fy_elementwise_flat_f64;
        return args->wide ? FY__CUDA_KERNEL_fy_elementwise_wide_f64
                          : FY__CUDA_KERNEL_fy_elementwise_f64;
    default:
        if (flat) return FY__CUDA_KERNEL_fy_elementwise_flat_int;
        return args->wide ? FY__CUDA_KERNEL_fy_elementwise_wide_int
                          : FY__CUDA_KERNEL_fy_elementwise_int;
    }
}

void fy__cuda_pack_elementwise(const fy_launch_t *launch, fy__cuda_request_t *out)
{
    const fy_desc_t *dst = &launch->dst[0];
    const int64_t *strides[1 + FY__CUDA_MAX_SRC] = { dst->strides };
    fy__index_t index;
    for (int i = 0; i < launch->nsrc; i++) strides[i + 1] = launch->src[i].strides;
    fy__index_make(&index, dst->rank, dst->dims, launch->nsrc + 1, strides);

    fy__cuda_args_t *args = &out->args;
    fy__cuda_request_init(out, launch->op, launch->nelem, launch->nsrc, launch->attrs,
                          attrs_nbytes[launch->op]);
    args->accumulate = launch->accumulate & 1;
    fy__cuda_operand_fused(&args->dst[0], dst, &index, 0);
    for (int i = 0; i < launch->nsrc; i++)
        fy__cuda_operand_fused(&args->src[i], &launch->src[i], &index, i + 1);
    fy__cuda_args_size(args, launch->nelem);
    if (args->op == FY_OP_COPY && !args->accumulate) {
        fy__cuda_choose_copy(out);
        return;
    }
    out->kernel = elementwise_kernel(args);
    out->threads = threads_of(args);
}

/* dst alone, fused. */
static void pack_dst(const fy_launch_t *launch, int kernel, fy__cuda_request_t *out)
{
    const fy_desc_t *dst = &launch->dst[0];
    const int64_t *strides[1] = { dst->strides };
    fy__index_t index;
    fy__index_make(&index, dst->rank, dst->dims, 1, strides);
    fy__cuda_request_init(out, launch->op, launch->nelem, 0, launch->attrs,
                          attrs_nbytes[launch->op]);
    fy__cuda_operand_fused(&out->args.dst[0], dst, &index, 0);
    fy__cuda_args_size(&out->args, launch->nelem);
    out->kernel = kernel;
}

void fy__cuda_pack_generate(const fy_launch_t *launch, fy__cuda_request_t *out)
{
    pack_dst(launch, FY__CUDA_KERNEL_fy_generate, out);
    (void)fy__cuda_set_wide(&out->args, 1, 0, 0, per_access(out->args.dst[0].dtype));
    out->kernel =
        flat_or(&out->args, FY__CUDA_KERNEL_fy_generate_flat, FY__CUDA_KERNEL_fy_generate);
    out->threads = threads_of(&out->args);
}

void fy__cuda_pack_random(const fy_launch_t *launch, fy__cuda_request_t out[2])
{
    pack_dst(launch, FY__CUDA_KERNEL_fy_random, &out[0]);
    out[0].args.ndst = 2;
    fy__cuda_operand_set(&out[0].args.dst[1], &launch->dst[1]);
    if (launch->op != FY_OP_RANDPERM) out[0].threads = launch->nelem / 4 + 1;
    out[1] = out[0];
    out[1].kernel = FY__CUDA_KERNEL_fy_random_advance;
    out[1].threads = 1;
}

/* A block for each run of each part, then a thread for each part; both have the operands of the
 * step. */
static int pack_trust(const fy__cuda_request_t *step, const fy__cuda_operand_t *trust, int is_f64,
                      fy__cuda_request_t out[2])
{
    const uint64_t nparts = (uint64_t)trust->dims[0], nruns = (uint64_t)(trust->dims[1] - 1) / 2;
    out[0] = out[1] = *step;
    out[0].kernel = FY__CUDA_KERNEL_BY(is_f64, fy_step_sums);
    out[0].threads = nparts * nruns * FY__CUDA_BLOCK;
    out[0].args.lanes = FY__CUDA_BLOCK;
    out[1].kernel = FY__CUDA_KERNEL_fy_step_trust;
    out[1].threads = nparts;
    return 2;
}

int fy__cuda_pack_step(const fy_launch_t *launch, fy__cuda_request_t out[FY__CUDA_STEP_REQUESTS])
{
    const fy__step_results_t results = fy__step_results(launch->op, launch->ndst);
    const int nalike = results.nalike;
    const fy_desc_t *param = &launch->dst[0];
    const int64_t *strides[1 + FY__CUDA_MAX_DST] = { launch->src[0].strides };
    fy__index_t index;
    fy__cuda_request_t step;
    fy__cuda_args_t *args = &step.args;
    for (int i = 0; i < nalike; i++) strides[i + 1] = launch->dst[i].strides;
    fy__index_make(&index, param->rank, param->dims, nalike + 1, strides);
    fy__cuda_request_init(&step, launch->op, launch->nelem, launch->nsrc, launch->attrs,
                          launch->attrs_nbytes);
    args->ndst = launch->ndst;
    fy__cuda_operand_fused(&args->src[0], &launch->src[0], &index, 0);
    for (int i = 1; i < launch->nsrc; i++) fy__cuda_operand_set(&args->src[i], &launch->src[i]);
    for (int i = 0; i < nalike; i++)
        fy__cuda_operand_fused(&args->dst[i], &launch->dst[i], &index, i + 1);
    for (int i = nalike; i < launch->ndst; i++)
        fy__cuda_operand_set(&args->dst[i], &launch->dst[i]);
    fy__cuda_args_size(args, launch->nelem);
    /* an access of a half parameter has other elements than one of its f32 states */
    if (param->dtype == FY_DTYPE_F32 || param->dtype == FY_DTYPE_F64)
        (void)fy__cuda_set_wide(args, (unsigned)nalike, 0, 1, per_access(param->dtype));
    /* parts and trust have two axes: such a step is not flat */
    const int wide_type = param->dtype == FY_DTYPE_F64,
              flat = results.low < 0 && fy__cuda_is_flat(args);
    if (flat)
        step.kernel = FY__CUDA_KERNEL_BY(wide_type, fy_step_flat);
    else if (results.trust >= 0 || results.low >= 0 || launch->nsrc > 2)
        step.kernel = FY__CUDA_KERNEL_BY(wide_type, fy_step_parts);
    else
        step.kernel = FY__CUDA_KERNEL_BY(wide_type, fy_step);
    step.threads = threads_of(args);
    int n = results.trust >= 0 ? pack_trust(&step, &args->dst[results.trust], wide_type, out) : 0;
    out[n++] = step;
    if (results.number < 0) return n;
    out[n] = step;
    out[n].kernel = flat ? FY__CUDA_KERNEL_fy_step_flat_advance : FY__CUDA_KERNEL_fy_step_advance;
    out[n].threads = 1;
    return n + 1;
}

void fy__cuda_pack_check_finite(const fy_launch_t *launch, fy__cuda_request_t *out)
{
    const fy_desc_t *x = &launch->src[0];
    const int64_t *strides[1] = { x->strides };
    fy__cuda_args_t *args = &out->args;
    fy__index_t index;
    const uint64_t nelem = fy__cuda_nelem(x);
    fy__index_make(&index, x->rank, x->dims, 1, strides);
    fy__cuda_request_init(out, launch->op, nelem, 1, NULL, 0);
    fy__cuda_operand_fused(&args->src[0], x, &index, 0);
    fy__cuda_operand_set(&args->dst[0], &launch->dst[0]);
    fy__cuda_args_size(args, nelem);
    (void)fy__cuda_set_wide_source(args, per_access(x->dtype));
    out->kernel = FY__CUDA_KERNEL_BY(x->dtype == FY_DTYPE_F64, fy_check_finite);
    out->threads = nelem > 0 ? threads_of(args) : 1;
}

void fy__cuda_pack_update_scaling(const fy_launch_t *launch, fy__cuda_request_t *out)
{
    fy__cuda_request_init(out, launch->op, launch->nelem, 0, launch->attrs, launch->attrs_nbytes);
    fy__cuda_operand_set(&out->args.dst[0], &launch->dst[0]);
    out->kernel = FY__CUDA_KERNEL_fy_update_scaling;
    out->threads = 1;
}

static int drops_channels(uint32_t op)
{
    return op == FY_OP_DROPOUT2D || op == FY_OP_DROPOUT2D_BACKWARD;
}

void fy__cuda_pack_dropout_begin(const fy_launch_t *launch, fy__cuda_request_t *out)
{
    const int64_t *dims = launch->src[0].dims;
    const uint64_t drawn = drops_channels(launch->op) && launch->nelem > 0
                               ? (uint64_t)dims[0] * (uint64_t)dims[3]
                               : launch->nelem;
    fy__cuda_request_init(out, launch->op, drawn, 0, NULL, 0);
    out->args.ndst = 2;
    fy__cuda_operand_set(&out->args.dst[0], &launch->dst[1]);
    fy__cuda_operand_set(&out->args.dst[1], &launch->dst[2]);
    out->kernel = FY__CUDA_KERNEL_fy_dropout_begin;
    out->threads = 1;
}

void fy__cuda_pack_dropout(const fy_launch_t *launch, fy__cuda_request_t *out)
{
    const fy_desc_t *dst = &launch->dst[0], *src = &launch->src[0],
                    *state = launch->ndst == 3 ? &launch->dst[2] : &launch->src[1];
    const int channels = drops_channels(launch->op);
    fy__cuda_args_t *args = &out->args;
    fy__cuda_request_init(out, channels ? FY_OP_DROPOUT2D_BACKWARD : FY_OP_DROPOUT_BACKWARD,
                          launch->nelem, 2, launch->attrs, sizeof(fy_dropout_attrs_t));
    if (channels) { /* N and C must stay apart */
        fy__cuda_operand_set(&args->dst[0], dst);
        fy__cuda_operand_set(&args->src[0], src);
    } else {
        const int64_t *strides[2] = { dst->strides, src->strides };
        fy__index_t index;
        fy__index_make(&index, dst->rank, dst->dims, 2, strides);
        fy__cuda_operand_fused(&args->dst[0], dst, &index, 0);
        fy__cuda_operand_fused(&args->src[0], src, &index, 1);
        if (index.rank == 1) (void)fy__cuda_set_wide(args, 1, 0, 1, per_access(dst->dtype));
    }
    fy__cuda_operand_set(&args->src[1], state);
    fy__cuda_args_size(args, launch->nelem);
    out->kernel = FY__CUDA_KERNEL_fy_dropout;
    out->threads = channels ? launch->nelem : launch->nelem / 4 + 16;
}

void fy__cuda_pack_gather(const fy_launch_t *launch, fy__cuda_request_t *out)
{
    fy__cuda_pack_unfused(launch, 0, out);
    const uint32_t n = per_access(launch->dst[0].dtype);
    /* whole rows of dst and table */
    if (launch->src[0].rank > 1 && launch->dst[0].dims[launch->dst[0].rank - 1] % n == 0)
        (void)fy__cuda_set_wide_apart(&out->args, 1, 0, 1, n);
    out->kernel = FY__CUDA_KERNEL_fy_gather;
    out->threads = threads_of(&out->args);
}

/* A block has every INDEX_ADD_CLASSES-th row of dst: it reads all indices, and adds the rows of the
 * source that are its own, in order. */
enum { INDEX_ADD_CLASSES = 256 };

void fy__cuda_pack_index_add(const fy_launch_t *launch, fy__cuda_request_t *out)
{
    const int64_t rows = launch->dst[0].dims[0];
    const int adds = launch->op == FY_OP_INDEX_ADD;
    fy__cuda_pack_unfused(launch, adds ? sizeof(fy_axpy_attrs_t) : 0, out);
    if (adds)
        out->args.accumulate = 1;
    else
        out->args.attrs.axpy.alpha = 1;
    out->args.lanes = FY__CUDA_BLOCK;
    out->args.count = (uint64_t)(rows < 1                   ? 1
                                 : rows < INDEX_ADD_CLASSES ? rows
                                                            : INDEX_ADD_CLASSES);
    out->kernel =
        FY__CUDA_KERNEL_BY(fy__cuda_class_of(launch->dst[0].dtype) == FY__CUDA_F64, fy_index_add);
    out->threads = out->args.count * FY__CUDA_BLOCK;
}

/* dst = src as a plain copy: for the kernel, and for code that rebuilds a launch from its
 * arguments. */
static void pack_copy(const fy_desc_t *dst, const fy_desc_t *src, uint64_t nelem,
                      fy__cuda_request_t *out)
{
    const int64_t *strides[2] = { dst->strides, src->strides };
    fy__index_t index;
    fy__index_make(&index, src->rank, src->dims, 2, strides);
    fy__cuda_request_init(out, FY_OP_COPY, nelem, 1, NULL, 0);
    fy__cuda_operand_fused(&out->args.dst[0], dst, &index, 0);
    fy__cuda_operand_fused(&out->args.src[0], src, &index, 1);
    fy__cuda_args_size(&out->args, nelem);
    fy__cuda_choose_copy(out);
}

int fy__cuda_pack_concat(const fy_launch_t *launch, unsigned i, int64_t begin,
                         fy__cuda_request_t *out)
{
    const fy_desc_t *src = &launch->src[i], *dst = &launch->dst[0];
    const fy_axis_attrs_t *attrs = launch->attrs;
    const uint64_t nelem = fy__cuda_nelem(src);
    if (nelem == 0) return 0;
    fy_desc_t part = *dst;
    part.data = (char *)dst->data +
                begin * dst->strides[attrs->axis] * (int64_t)fy__cuda_dtype_nbytes(dst->dtype);
    pack_copy(&part, src, nelem, out);
    return 1;
}

void fy__cuda_pack_flip(const fy_launch_t *launch, fy__cuda_request_t *out)
{
    const fy_flip_attrs_t *attrs = launch->attrs;
    const fy_desc_t *src = &launch->src[0];
    fy_desc_t reversed = *src;
    reversed.data = (char *)src->data + fy__reverse_axes(attrs->axes, src->rank, src->dims,
                                                         src->strides, reversed.strides) *
                                            (int64_t)fy__cuda_dtype_nbytes(src->dtype);
    pack_copy(&launch->dst[0], &reversed, launch->nelem, out);
}

void fy__cuda_pack_packed(const fy_launch_t *launch, fy__cuda_request_t *out)
{
    fy__cuda_request_init(out, launch->op, launch->nelem, launch->nsrc, launch->attrs,
                          sizeof(fy_packed_t));
    out->args.ndst = launch->ndst;
    fy__cuda_operand_set(&out->args.src[0], &launch->src[0]);
    if (launch->ndst > 0) fy__cuda_operand_set(&out->args.dst[0], &launch->dst[0]);
    out->kernel = FY__CUDA_KERNEL_fy_packed;
    out->threads = (uint64_t)out->args.attrs.packed.count * FY__CUDA_BLOCK;
}
