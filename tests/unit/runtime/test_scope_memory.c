/* The memory attributes of a scope reach the threads that Ferry starts, and do not stay on them. */
#include "runtime/thread/guard.h"
#include "tests/support/harness.h"

typedef struct heir {
    fy__heritage_t heritage;
    fy_category_t before, inside, after_scope, after;
    fy_dtype_t autocast[3];
} heir_t;

static void *inherit(void *user)
{
    heir_t *heir = user;
    fy__thread_t *thread = fy__thread();
    heir->before = thread->category;
    heir->autocast[0] = thread->autocast;
    fy__heritage_enter(thread, &heir->heritage);
    heir->inside = thread->category;
    heir->autocast[1] = thread->autocast;
    fy_scope_t scope = fy_scope_begin("of the heir");
    ts_ok(fy_scope_memory(FY_CATEGORY_STAGING));
    fy_scope_end(scope, 0, NULL);
    heir->after_scope = thread->category;
    fy__heritage_leave(thread);
    heir->after = thread->category;
    heir->autocast[2] = thread->autocast;
    return NULL;
}

TS_DEVICE_TEST(a_thread_inherits_it_and_forgets_it)
{
    heir_t heir = { .after = FY_CATEGORY_COUNT };
    fy_scope_t scope = fy_scope_begin("gradients");
    ts_ok(fy_scope_memory(FY_CATEGORY_GRADIENTS));
    ts_ok(fy_autocast_set(FY_DTYPE_BF16));
    fy__heritage_take(fy__thread(), &heir.heritage);
    fy_scope_end(scope, 0, NULL);
    ts_on_thread(inherit, &heir);
    fy__heritage_release(&heir.heritage);
    assert_int_equal(heir.before, FY_CATEGORY_ACTIVATIONS);
    assert_int_equal(heir.autocast[0], FY_DTYPE_F32);
    assert_int_equal(heir.autocast[1], FY_DTYPE_BF16);
    assert_int_equal(heir.autocast[2], FY_DTYPE_F32);
    assert_int_equal(heir.inside, FY_CATEGORY_GRADIENTS);
    assert_int_equal(heir.after_scope, FY_CATEGORY_GRADIENTS);
    assert_int_equal(heir.after, FY_CATEGORY_ACTIVATIONS);
}

/* A thread that ends with scopes open; the next thread reuses its state. */
static void *leaves_it_open(void *user)
{
    *(uint32_t *)user = fy__thread()->number;
    (void)fy_scope_begin("left open");
    ts_ok(fy_scope_memory(FY_CATEGORY_WEIGHTS));
    return NULL;
}

static void *look(void *user)
{
    heir_t *heir = user;
    heir->before = fy__thread()->category;
    return NULL;
}

TS_DEVICE_TEST(a_thread_that_ends_leaves_nothing)
{
    heir_t heir = { .before = FY_CATEGORY_COUNT };
    uint32_t number;
    ts_on_thread(leaves_it_open, &number);
    ts_on_thread(look, &heir);
    assert_int_equal(heir.before, FY_CATEGORY_ACTIVATIONS);
}
