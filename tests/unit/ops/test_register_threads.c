/* Registration while others look up: every reader sees whole rows only, and the table ends, with a
 * clear refusal, when it is full. */
#include "tests/support/harness.h"
#include "tests/support/own_op.h"

#include <pthread.h>
#include <stdatomic.h>

#include "ops/optable.h"

enum { WRITERS = 3, READERS = 3 };
static _Atomic int done;

static fy_status_t kernel(const fy_launch_t *launch, void *stream)
{
    (void)launch, (void)stream;
    return FY_STATUS_OK;
}

static fy_status_t add_op(const char *name)
{
    ts_own_op_t own;
    fy_op_t op;
    ts_own_op(&own, name, 1, kernel);
    return fy_op_register(&own.def, &op);
}

static void *write_ops(void *arg)
{
    char name[32];
    for (int i = 0; i < FY__OPS_REGISTERED; i++) {
        snprintf(name, sizeof name, "thread%d.op%d", *(int *)arg, i);
        if (add_op(name) != FY_STATUS_OK) break;
    }
    return NULL;
}

static void *read_ops(void *arg)
{
    int *wrong = arg;
    while (!atomic_load(&done)) {
        for (fy_op_t op = 0, count = fy_op_count(); op < count; op++) {
            const fy_op_info_t *info = fy_op_get(op);
            if (!info || info->op != op || !info->name) *wrong += 1;
        }
    }
    return NULL;
}

TS_TEST(test_readers_see_whole_rows_until_the_table_is_full)
{
    pthread_t writers[WRITERS], readers[READERS];
    int numbers[WRITERS], wrong[READERS] = { 0 };
    for (int i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&readers[i], NULL, read_ops, &wrong[i]), 0);
    for (int i = 0; i < WRITERS; i++) {
        numbers[i] = i;
        assert_int_equal(pthread_create(&writers[i], NULL, write_ops, &numbers[i]), 0);
    }
    for (int i = 0; i < WRITERS; i++) pthread_join(writers[i], NULL);
    atomic_store(&done, 1);
    for (int i = 0; i < READERS; i++) {
        pthread_join(readers[i], NULL);
        assert_int_equal(wrong[i], 0);
    }
    assert_int_equal(fy_op_count(), FY_OP_BUILTIN_COUNT + FY__OPS_REGISTERED);
    assert_int_equal(add_op("one.too.many"), FY_STATUS_OUT_OF_MEMORY);
    assert_non_null(strstr(fy_error_get()->text, "1024"));
    assert_null(fy_op_find("one.too.many"));
    for (fy_op_t op = 0; op < fy_op_count(); op++)
        assert_ptr_equal(fy_op_find(fy_op_get(op)->name), fy_op_get(op));
}
