/* A transfer of f32[5,3,4] from one layout to another, with guard words around both ends. */
#ifndef FERRY_TESTS_CONFORMANCE_LAYOUTS_H_
#define FERRY_TESTS_CONFORMANCE_LAYOUTS_H_

#include "tests/support/harness.h"
#include "tests/support/operand.h"
#include "tests/support/oracle.h"

typedef struct move {
    ts_array_t old, new;
    ts_operand_t dst, src;
    uint64_t version; /* of dst */
} move_t;

static inline void move_make(move_t *move, fy_device_t *to, ts_layout_t to_layout,
                             fy_device_t *from, ts_layout_t from_layout)
{
    const int64_t dims[3] = { 5, 3, 4 };
    ts_random_t random = { 4 };
    ts_array_make(&move->old, FY_DTYPE_F32, 3, dims);
    ts_array_make(&move->new, FY_DTYPE_F32, 3, dims);
    ts_array_fill(&move->new, TS_ANY, 0, from_layout == TS_BROADCAST ? 0 : -1, &random);
    ts_operand_make(&move->dst, to, &move->old, to_layout);
    ts_operand_make(&move->src, from, &move->new, from_layout);
    move->version = ts_version(move->dst.view);
}

/* dst has the values and one version more, and the words around it are unchanged. Frees all. */
static inline void move_check(move_t *move, const char *what)
{
    ts_array_t got;
    assert_int_equal(ts_version(move->dst.view), move->version + 1);
    ts_operand_check(&move->dst, false, &got, what);
    assert_true(ts_same(&move->new, &got, what));
    ts_operand_free(&move->dst);
    ts_operand_free(&move->src);
    ts_array_free(&move->old);
    ts_array_free(&move->new);
    ts_array_free(&got);
}

#endif
