/* Between the two structs of arguments (args.h): may a launch be flat, its flat form, and back.
 * Back is for the kernels, where the compiler dissolves the struct, and for the fake driver of the
 * tests. Pure functions. */
#ifndef FERRY_BACKENDS_CUDA_FLAT_H_
#define FERRY_BACKENDS_CUDA_FLAT_H_

#include <string.h>

#include "backends/cuda/args.h"
#include "opset/formulas/formula.h"

/* One axis of nelem elements, or one element. */
FY_FORMULA int fy__cuda_operand_is_flat(const fy__cuda_operand_t *operand, uint64_t nelem)
{
    if (operand->rank == 0) return 1;
    if (operand->rank != 1) return 0;
    if (operand->dims[0] == 1) return 1;
    return (uint64_t)operand->dims[0] == nelem &&
           (operand->strides[0] == 1 || operand->strides[0] == 0);
}

FY_FORMULA int fy__cuda_is_flat(const fy__cuda_args_t *args)
{
    if (args->nsrc > FY__CUDA_FLAT_SRC || args->ndst > FY__CUDA_FLAT_DST) return 0;
    if (args->op > UINT16_MAX || args->fault != 0 || args->count != FY__CUDA_NO_COUNT ||
        args->lanes != 1)
        return 0;
    if (args->dst[0].rank == 1 && args->dst[0].dims[0] > 1 && args->dst[0].strides[0] != 1)
        return 0;
    for (uint32_t i = 0; i < args->ndst; i++)
        if (!fy__cuda_operand_is_flat(&args->dst[i], args->nelem)) return 0;
    for (uint32_t i = 0; i < args->nsrc; i++)
        if (!fy__cuda_operand_is_flat(&args->src[i], args->nelem)) return 0;
    return 1;
}

FY_FORMULA void fy__cuda_flat_set(fy__cuda_flat_t *flat, int place,
                                  const fy__cuda_operand_t *operand)
{
    flat->data[place] = operand->data;
    flat->dtypes[place] = (uint8_t)operand->dtype;
    if (operand->rank == 0 || operand->dims[0] == 1 || operand->strides[0] == 0)
        flat->repeats |= (uint8_t)(1 << place);
}

/* args are flat. */
FY_FORMULA void fy__cuda_flat_of(const fy__cuda_args_t *args, fy__cuda_flat_t *out)
{
    memset(out, 0, sizeof *out);
    out->struct_size = sizeof *out;
    out->op = (uint16_t)args->op;
    out->nsrc = (uint8_t)args->nsrc;
    out->ndst = (uint8_t)args->ndst;
    out->flags = (uint8_t)args->flags;
    out->accumulate = (uint8_t)args->accumulate;
    out->wide = (uint8_t)args->wide;
    out->nelem = args->nelem;
    out->attrs = args->attrs;
    fy__cuda_flat_set(out, 0, &args->dst[0]);
    for (uint32_t i = 0; i < args->nsrc; i++) fy__cuda_flat_set(out, 1 + (int)i, &args->src[i]);
    for (uint32_t i = 1; i < args->ndst; i++)
        fy__cuda_flat_set(out, FY__CUDA_FLAT_SRC + (int)i, &args->dst[i]);
}

/* Sets the fields that a launch of one axis reads, and does not change the rest of *operand. */
FY_FORMULA void fy__cuda_flat_get(const fy__cuda_flat_t *flat, int place,
                                  fy__cuda_operand_t *operand)
{
    const int one = flat->repeats >> place & 1;
    operand->data = flat->data[place];
    operand->dtype = flat->dtypes[place];
    operand->rank = 1;
    operand->dims[0] = (int64_t)flat->nelem;
    operand->strides[0] = one ? 0 : 1;
}

/* Fields that a flat launch does not have are unchanged; slots without an operand hold zeros. */
FY_FORMULA void fy__cuda_flat_expand(const fy__cuda_flat_t *flat, fy__cuda_args_t *args)
{
    args->struct_size = sizeof *args;
    args->op = flat->op;
    args->nsrc = flat->nsrc;
    args->ndst = flat->ndst;
    args->flags = flat->flags;
    args->accumulate = flat->accumulate;
    args->wide = flat->wide;
    args->nelem = flat->nelem;
    args->fault = 0;
    args->lanes = 1;
    args->count = FY__CUDA_NO_COUNT;
    args->attrs = flat->attrs;
    fy__cuda_flat_get(flat, 0, &args->dst[0]);
    for (int i = 0; i < FY__CUDA_FLAT_SRC; i++) fy__cuda_flat_get(flat, 1 + i, &args->src[i]);
    for (int i = 1; i < FY__CUDA_FLAT_DST; i++)
        fy__cuda_flat_get(flat, FY__CUDA_FLAT_SRC + i, &args->dst[i]);
}

#endif
