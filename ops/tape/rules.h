/* Gradient rules: from the gradients of a call's results to those of its sources. A rule calls ops,
 * nothing else; the gradient that it passes to fy__tape_give* is assigned, added or reduced to the
 * source's shape.
 * Next: rules_elementwise.c for the shortest ones. */
#ifndef FERRY_OPS_TAPE_RULES_H_
#define FERRY_OPS_TAPE_RULES_H_

#include <stdbool.h>

#include <ferry/op.h>

#define FY__TAPE_FLOATS                                                                     \
    (FY_DTYPE_BIT(FY_DTYPE_F32) | FY_DTYPE_BIT(FY_DTYPE_F64) | FY_DTYPE_BIT(FY_DTYPE_F16) | \
     FY_DTYPE_BIT(FY_DTYPE_BF16))

/* Operands from this one on cannot be saved. */
enum { FY__TAPE_SAVED = 8 };

typedef struct fy__tape_step fy__tape_step_t;

typedef struct fy__tape_rule {
    /* NULL: results are constant, whatever the sources are. */
    fy_status_t (*run)(fy__tape_step_t *step);
    /* Source i, and result i, is saved if one of these sources (bits) has a gradient. */
    uint8_t src_for[FY__TAPE_SAVED], dst_for[FY__TAPE_SAVED];
    /* Saves sources, and result 0, only if this function of the attributes is true; NULL: always */
    bool (*src_if)(const void *attrs), (*dst_if)(const void *attrs);
    bool is_refused; /* what it computes has a gradient, but there is no rule */
    /* needs every source's length along the op's axis, and saves none */
    bool keeps_extents;
    /* dst 0 is read, too: its old value is one more source, the last */
    bool takes_old;
    /* runs if any result has a gradient, not only result 0 */
    bool any_result;
    /* Bit i: source i, or result i, is saved by every recorded call; bit 31: and all after it. */
    uint32_t saved_srcs, saved_dsts;
    uint32_t constant_dsts; /* bit i: result i has no gradient */
} fy__tape_rule_t;

/* The rule of a registered op. `rule` is first: a recorded call has its address. */
typedef struct fy__tape_user_rule {
    fy__tape_rule_t rule;
    const fy_op_info_t *info;
    fy_backward_fn backward;
    void *user;
} fy__tape_user_rule_t;

/* One call on the way back. */
struct fy__tape_step {
    struct fy__thread *thread;
    struct fy_tape *tape;
    const struct fy__tape_call *call;
    const struct fy__tape_operand *src, *dst;
    const void *attrs;
    fy_tensor_t *g; /* of result 0, with its shape; not to be written; NULL only with any_result */
    fy_tensor_t *temps[24];
    uint32_t ntemps;
    bool is_wide; /* fy__tape_widen: what the rule gives is cast */
};

/* Whether source i has a gradient. */
bool fy__tape_wants(const fy__tape_step_t *step, uint32_t i);
/* The gradient of result i; NULL: it has none. */
fy_tensor_t *fy__tape_result_grad(const fy__tape_step_t *step, uint32_t i);
/* The saved source i. */
const fy_tensor_t *fy__tape_src(const fy__tape_step_t *step, uint32_t i);
const fy_tensor_t *fy__tape_dst(const fy__tape_step_t *step, uint32_t i);
/* Shape of source i (which has a gradient). */
void fy__tape_shape(const fy__tape_step_t *step, uint32_t i, int *out_rank,
                    const int64_t **out_dims);

/* An op's result that lasts until the rule ends. At most 24. */
fy_status_t fy__tape_op(fy__tape_step_t *step, fy_op_t op, size_t nsrc,
                        const fy_tensor_t *const *src, const void *attrs, fy_tensor_t **out_temp);
/* The same for an op of several results. */
fy_status_t fy__tape_op_all(fy__tape_step_t *step, fy_op_t op, size_t nsrc,
                            const fy_tensor_t *const *src, const void *attrs, size_t ndst,
                            fy_tensor_t **out_temps);
/* Makes `tensor`, which the rule got from a view call, one of those. */
fy_tensor_t *fy__tape_temp(fy__tape_step_t *step, fy_tensor_t *tensor);
/* A scalar of g's dtype and device. */
fy_status_t fy__tape_scalar(fy__tape_step_t *step, double value, fy_tensor_t **out_temp);
/* For a rule with products whose factors leave the range of a half dtype although the gradient
 * does not: if g is half, the rule computes in f32 from here on. g is a cast then, and the
 * gradients of the sources are cast back; the rule reads saved tensors through fy__tape_wide. */
fy_status_t fy__tape_widen(fy__tape_step_t *step);
/* A half tensor's cast to f32; another one itself. */
fy_status_t fy__tape_wide(fy__tape_step_t *step, const fy_tensor_t *tensor,
                          const fy_tensor_t **out_temp);
/* `tensor` as [dims], copied if it cannot be seen so. */
fy_status_t fy__tape_reshape(fy__tape_step_t *step, const fy_tensor_t *tensor, int rank,
                             const int64_t *dims, fy_tensor_t **out_temp);

/* Adds the op's result, which has source i's shape, to its gradient. Does nothing if it has
 * none. */
fy_status_t fy__tape_give(fy__tape_step_t *step, uint32_t i, fy_op_t op, size_t nsrc,
                          const fy_tensor_t *const *src, const void *attrs);
/* The same for a result of shape `rank`, `dims`, which is summed to source i's if that was
 * broadcast. */
fy_status_t fy__tape_give_reduced(fy__tape_step_t *step, uint32_t i, int rank, const int64_t *dims,
                                  fy_op_t op, size_t nsrc, const fy_tensor_t *const *src,
                                  const void *attrs);
/* For an op of `count` results, at most four: result k is added to the gradient of source
 * sources[k], if the call has that source and it has one. Two of them may be one tensor. */
fy_status_t fy__tape_give_many(fy__tape_step_t *step, uint32_t count, const uint32_t *sources,
                               fy_op_t op, size_t nsrc, const fy_tensor_t *const *src,
                               const void *attrs);
/* The same for an op of two results, and sources i and j. */
fy_status_t fy__tape_give2(fy__tape_step_t *step, uint32_t i, uint32_t j, fy_op_t op, size_t nsrc,
                           const fy_tensor_t *const *src, const void *attrs);
/* Adds `tensor`, whose bytes may be shared, to source i's gradient. Does nothing if it has none. */
fy_status_t fy__tape_give_tensor(fy__tape_step_t *step, uint32_t i, const fy_tensor_t *tensor);
/* Adds `tensor` to elements begin, begin + stride, ... of `axis` of source i's gradient; the
 * others' is 0. */
fy_status_t fy__tape_give_slice(fy__tape_step_t *step, uint32_t i, int axis, int64_t begin,
                                int64_t stride, const fy_tensor_t *tensor);

/* ---- the rules, by the names that opset/ops.def uses ---- */

#define CONSTANT
#define REFUSED
#define BACK(rule, saves) fy_status_t fy__back_##rule(fy__tape_step_t *step);

#define ROW(number, ENUM, name, flags, dtypes, attrs, shape, cost, back, ...) OPEN back
#include "opset/ops.def"

/* Registered ops: calls the user's function (rules_registered.c). */
fy_status_t fy__back_registered(fy__tape_step_t *step);

/* Conditions on the attributes of a call, for SRC_IF and DST_IF. */
bool fy__conv2d_keeps_result(const void *attrs);
bool fy__linear_keeps_result(const void *attrs);
bool fy__avg_pool2d_keeps_source(const void *attrs);
bool fy__batch_norm_keeps_result(const void *attrs);
bool fy__batch_norm_inference_keeps_result(const void *attrs);

/* By fy__view_kind_t. */
extern const fy__tape_rule_t fy__tape_view_rules[];

#endif
