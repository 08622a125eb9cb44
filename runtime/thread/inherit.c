/* Passes scope path and guards to another thread. */
#include "runtime/thread/inherit.h"

void fy__heritage_take(const fy__thread_t *thread, fy__heritage_t *out_heritage)
{
    out_heritage->node = thread->node;
    out_heritage->category = thread->category;
    out_heritage->autocast = thread->autocast;
    out_heritage->guards = fy__guard_retain(thread->guards);
}

void fy__heritage_release(fy__heritage_t *heritage)
{
    fy__guard_release(heritage->guards);
    heritage->guards = NULL;
}

/* The node of the same path in this thread's tree: only the owner adds to a tree. */
static fy__node_t *same_path(fy__thread_t *thread, const fy__node_t *node)
{
    return node->parent ? fy__node_child(same_path(thread, node->parent), node->name)
                        : &thread->root;
}

void fy__heritage_enter(fy__thread_t *thread, const fy__heritage_t *heritage)
{
    fy__guard_release(thread->guards);
    thread->guards = fy__guard_retain(heritage->guards);
    thread->node = same_path(thread, heritage->node);
    thread->category = heritage->category;
    thread->autocast = heritage->autocast;
}

void fy__heritage_leave(fy__thread_t *thread)
{
    fy__scope_end_all(thread);
    fy__guard_settle(thread);
    fy__guard_release(thread->guards);
    thread->guards = NULL;
    thread->node = &thread->root;
    thread->category = FY_CATEGORY_ACTIVATIONS;
    thread->autocast = FY_DTYPE_F32;
}
