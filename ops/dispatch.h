/* The one way an op reaches a device. Typed calls, fy_op_call and the tape all end in fy__dispatch.
 * Not here: what an op means (opset/ops.def, shape.c, cost.c), arithmetic (backends/), bytes
 * (runtime/). */
#ifndef FERRY_OPS_DISPATCH_H_
#define FERRY_OPS_DISPATCH_H_

#include <stdbool.h>

#include <ferry/op.h>

/* The sources of an op that are indices must be below the length of an axis of an operand. */
typedef struct fy__index_limit {
    uint32_t flag; /* 0: no such source; else FY_OP_CAN_FAULT */
    uint8_t side;  /* fy__side_t */
    uint8_t index; /* of the operand */
    int8_t axis;   /* -1: the last */
} fy__index_limit_t;

/* One row of the op table. Built-in rows come from opset/ops.def, others from fy_op_register; both
 * are immutable once visible. */
typedef struct fy__op_row {
    fy_op_info_t info; /* first: a rule finds its row */
    /* never NULL here: `rule`, or fy__attrs_then_rule */
    fy_shape_rule_fn shape, rule;
    fy_cost_rule_fn cost;                 /* never NULL here */
    const struct fy__tape_rule *gradient; /* NULL: none is known, so it cannot be recorded */
    const void *default_attrs;            /* NULL: the op has no attributes */
    uint32_t axis_field; /* 1 + the offset of the attribute of type AXIS32; 0: there is none */
    fy__index_limit_t index_limit;
    uint32_t given; /* bit i: the caller must give result i; the others are made if they are not */
    /* built-in, makes its results, cannot fault: on the host little else needs doing */
    bool plain;
    size_t nkernels; /* registered ops only */
    const fy_op_kernel_t *kernels;
    void *user;
} fy__op_row_t;

/* NULL if there is no such op. Lock-free. */
const fy__op_row_t *fy__op_row(fy_op_t op);

/* As fy_op_call, with the row already found. `accumulate`: bit i adds into dst[i] (given, float, op
 * with FY_OP_CAN_ACCUMULATE). */
fy_status_t fy__dispatch(const fy__op_row_t *row, size_t nsrc, const fy_tensor_t *const *src,
                         const void *attrs, uint32_t accumulate, size_t ndst, fy_tensor_t **dst);

/* The built-in rows, by number. */
extern const fy__op_row_t fy__op_rows[FY_OP_BUILTIN_COUNT];

/* The out parameter of a typed call is NULL. */
fy_status_t fy__op_no_out(fy_op_t op);
/* A call of a built-in op with one new result; sets *out_dst to NULL first. What nearly every typed
 * call is. */
static inline fy_status_t fy__op_new(fy_op_t op, size_t nsrc, const fy_tensor_t *const *src,
                                     const void *attrs, fy_tensor_t **out_dst)
{
    if (__builtin_expect(!out_dst, 0)) return fy__op_no_out(op);
    *out_dst = NULL;
    return fy__dispatch(&fy__op_rows[op], nsrc, src, attrs, 0, 1, out_dst);
}
/* A call of a built-in op that writes into the given `dst`. */
fy_status_t fy__op_into(fy_op_t op, size_t nsrc, const fy_tensor_t *const *src, const void *attrs,
                        fy_tensor_t *dst);

/* Whether the last of the results is the one that may be left out: a copy of result 0. */
static inline bool fy__op_has_low(const fy_op_info_t *info, size_t ndst)
{
    return ndst == info->ndst && info->dst && info->dst[ndst - 1].flags & FY_OPERAND_OPTIONAL;
}

#endif
