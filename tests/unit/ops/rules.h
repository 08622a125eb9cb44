/* Shared by the tests of shape and cost rules: a launch record made by hand, without a device, a
 * tensor or the dispatcher.
 * Not here: calls (test_typed.c, test_call.c). */
#ifndef FERRY_TESTS_UNIT_OPS_RULES_H_
#define FERRY_TESTS_UNIT_OPS_RULES_H_

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ops/cost.h"
#include "ops/format.h"
#include "ops/optable.h"
#include "ops/shape.h"

/* Row-major strides; they may wrap around for sizes that no tensor could have. */
static inline void set_dense(fy_desc_t *desc)
{
    uint64_t stride = 1;
    for (int i = desc->rank - 1; i >= 0; i--) {
        desc->strides[i] = (int64_t)stride;
        stride *= desc->dims[i] ? (uint64_t)desc->dims[i] : 1;
    }
}

/* "4x3 f32", "scalar i64", "0x2 u8": a dense descriptor. */
static inline fy_desc_t desc_of(const char *text)
{
    fy_desc_t desc;
    memset(&desc, 0x5A, sizeof desc); /* fields that a rule must not read */
    const char *space = strchr(text, ' ');
    assert_non_null(space);
    desc.data = NULL;
    desc.rank = 0;
    desc.dtype = -1;
    for (int i = 0; i < FY_DTYPE_COUNT; i++) {
        if (!strcmp(space + 1, fy_dtype_name((fy_dtype_t)i))) desc.dtype = i;
    }
    assert_true(desc.dtype >= 0);
    if (text[0] != 's') {
        char *end = NULL;
        for (const char *at = text; at < space; at = end + 1)
            desc.dims[desc.rank++] = strtoll(at, &end, 10);
    }
    set_dense(&desc);
    return desc;
}

typedef struct launch_box {
    fy_launch_t launch;
    fy_desc_t src[4], dst[3];
    const fy__op_row_t *row;
} launch_box_t;

/* srcs: descriptions separated by '|', "" for none; dsts: those of given results, "" for none.
 * attrs NULL: fallbacks. */
static inline void box_make(launch_box_t *box, fy_op_t op, const char *srcs, const char *dsts,
                            const void *attrs)
{
    memset(box, 0, sizeof *box);
    box->row = fy__op_row(op);
    assert_non_null(box->row);
    char text[256], *rest = NULL;
    snprintf(text, sizeof text, "%s", srcs);
    for (char *word = strtok_r(text, "|", &rest); word; word = strtok_r(NULL, "|", &rest))
        box->src[box->launch.nsrc++] = desc_of(word);
    snprintf(text, sizeof text, "%s", dsts);
    memset(box->dst, 0x5A, sizeof box->dst);
    int ndst = 0;
    for (char *word = strtok_r(text, "|", &rest); word; word = strtok_r(NULL, "|", &rest))
        box->dst[ndst++] = desc_of(word);
    box->launch.struct_size = sizeof box->launch;
    box->launch.op = op;
    box->launch.ndst = box->row->info.ndst;
    box->launch.src = box->src;
    box->launch.dst = box->dst;
    box->launch.attrs = attrs ? attrs : box->row->default_attrs;
}

/* Runs the shape rule, then sets the same fields as the dispatcher: dense results, nelem. */
static inline fy_status_t box_shape(launch_box_t *box)
{
    FY_TRY(box->row->shape(&box->row->info, &box->launch));
    if (!(box->row->info.flags & FY_OP_IN_PLACE)) {
        for (int d = 0; d < box->launch.ndst; d++) { set_dense(&box->dst[d]); }
    }
    box->launch.nelem = 1;
    for (int i = 0; i < box->dst[0].rank; i++) box->launch.nelem *= (uint64_t)box->dst[0].dims[i];
    return FY_STATUS_OK;
}

#endif
