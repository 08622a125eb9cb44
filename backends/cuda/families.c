/* The rows: every op, with the CUDA column of opset/ops.def. tests/unit/cuda/test_coverage.c walks
 * the op table against these rows. */
#include "backends/cuda/families.h"

#include "backends/cuda/matmul.h"
#include "opset/dtypes.h"

enum { USES_LT = 1, WHEN_EMPTY = 2 };
#define PACK(f)               .pack = fy__cuda_pack_##f
#define SEVERAL(f)            .pack_several = fy__cuda_pack_##f
#define SEVERAL_WHEN_EMPTY(f) SEVERAL(f), .when_empty = 1
#define RUN(f, flags)         .run = fy__cuda_run_##f, .when_empty = ((flags)&WHEN_EMPTY) != 0
#define SCRATCH(f, flags) \
    RUN(f, flags), .workspace = fy__cuda_##f##_workspace, .uses_lt = ((flags)&USES_LT) != 0
#include "opset/first_source.def" /* not 0: the main operand is the second source */
#define ROW(number, ENUM, name, flags, set, attrs, shape, cost, back, host, cuda, faults, \
            operands, ...)                                                                \
    [FY_OP_##ENUM] = { .dtypes = FY__SET_##set, .main = (0 OPEN operands) != 0, OPEN cuda },
static const fy__cuda_family_t families[FY_OP_BUILTIN_COUNT] = {
#include "opset/ops.def"
};

/* A kernel's arguments have room for the operands of every row. */
#define IN(i, name, set)          +0x100
#define MAYBE(i, name, set)       +0x100
#define MANY(i, name, set)        /* launched one by one */
#define OUT(i, name, set)         +1
#define INOUT(i, name, set)       +1
#define MAYBE_INOUT(i, name, set) +1
#define ROW(number, ENUM, name, flags, set, attrs, shape, cost, back, host, cuda, faults, \
            operands, ...)                                                                \
    _Static_assert((0 OPEN operands) >> 8 <= FY__CUDA_MAX_SRC &&                          \
                       ((0 OPEN operands) & 255) <= FY__CUDA_MAX_DST,                     \
                   #name ": more operands than fy__cuda_args_t has room for");
#include "opset/ops.def"

const fy__cuda_family_t *fy__cuda_family_of(uint32_t op)
{
    static const fy__cuda_family_t packed = { .dtypes = FY__SET_ANY, .pack = fy__cuda_pack_packed },
                                   none = { .why = "it is newer than this plugin" };
    static const fy__cuda_family_t chain = { .dtypes = FY__SET_ANY, .run = fy__cuda_run_chain };
    if (op == FY_LAUNCH_SCATTER || op == FY_LAUNCH_GATHER) return &packed;
    if (op == FY_LAUNCH_CHAIN) return &chain;
    if (op >= FY_OP_BUILTIN_COUNT) return &none;
    return families[op].dtypes != 0 || families[op].why != NULL ? &families[op] : &none;
}

int32_t fy__cuda_main_dtype(const fy__cuda_family_t *family, const fy_launch_t *launch)
{
    if (launch->nsrc == 0) return launch->dst[0].dtype;
    return launch->src[family->main < launch->nsrc ? family->main : 0].dtype;
}

const char *fy__cuda_op_name(uint32_t op)
{
    static const char *const names[] = {
#define X(name, text) #text,
        FY_OP_LIST(X)
#undef X
    };
    if (op == FY_LAUNCH_CHAIN) return "a chain";
    return op < FY_OP_BUILTIN_COUNT ? names[op] : "a packed transfer";
}
