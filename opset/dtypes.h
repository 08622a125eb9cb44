/* The dtype sets that ops.def names: FY__SET_NAME, bits of FY_DTYPE_BIT. FY__SET_T, for an operand:
 * the set of the op's row, and one dtype for all such operands of a call. */
#ifndef FERRY_OPSET_DTYPES_H_
#define FERRY_OPSET_DTYPES_H_

#include <ferry/op.h>

enum {
    FY__SET_T = 0,
    FY__SET_REAL = FY_DTYPE_BIT(FY_DTYPE_F32) | FY_DTYPE_BIT(FY_DTYPE_F64),
    FY__SET_HALF = FY_DTYPE_BIT(FY_DTYPE_F16) | FY_DTYPE_BIT(FY_DTYPE_BF16),
    FY__SET_FLOAT = FY__SET_REAL | FY__SET_HALF,
    FY__SET_F64 = FY_DTYPE_BIT(FY_DTYPE_F64),
    FY__SET_I64 = FY_DTYPE_BIT(FY_DTYPE_I64),
    FY__SET_INDEX = FY__SET_I64 | FY_DTYPE_BIT(FY_DTYPE_I32),
    FY__SET_INTEGER = FY__SET_INDEX | FY_DTYPE_BIT(FY_DTYPE_U8),
    FY__SET_NUMBER = FY__SET_FLOAT | FY__SET_INTEGER,
    FY__SET_BOOL = FY_DTYPE_BIT(FY_DTYPE_BOOL),
    FY__SET_ANY = FY__SET_NUMBER | FY__SET_BOOL
};

#endif
