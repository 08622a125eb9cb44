/* runtime/node: trees of scope names. Children are found again, '/' is no separator inside a name, paths are cut and not overrun, walks go
 * parents first, memory entries are per device. */
#include "runtime/node.h"
#include "runtime/thread.h"
#include "tests/support/harness.h"

static fy__node_t *g_roots[8]; /* nodes are never freed, by design: kept in sight */
static int g_nroots;

static fy__node_t *root_node(void)
{
    fy__node_t *root = calloc(1, sizeof *root);
    assert_non_null(root);
    g_roots[g_nroots++] = root;
    root->name = strdup("");
    return root;
}

static void children_are_found_again(void **state)
{
    (void)state;
    fy__node_t *root = root_node(), *a = fy__node_child(root, "a"), *b = fy__node_child(a, "b");
    assert_ptr_not_equal(a, root);
    assert_ptr_equal(fy__node_child(root, "a"), a);
    assert_ptr_equal(fy__node_child(a, "b"), b);
    assert_ptr_not_equal(fy__node_child(root, "b"), b);
    assert_ptr_not_equal(fy__node_child(root, "ab"), a); /* a prefix is another name */
    fy__node_t *slashed = fy__node_child(root, "x/y");
    assert_string_equal(slashed->name, "x.y");
    assert_ptr_equal(fy__node_child(root, "x.y"), slashed);
    assert_ptr_equal(fy__node_find(root, "a/b"), b);
    assert_ptr_equal(fy__node_find(root, ""), root);
    assert_ptr_equal(fy__node_find(root, NULL), root);
    assert_null(fy__node_find(root, "a/c"));
    assert_null(fy__node_find(root, "a/b/c"));
    assert_null(fy__node_find(root, "a/bb"));
}

static void paths_are_cut(void **state)
{
    (void)state;
    fy__node_t *node = root_node();
    for (int i = 0; i < 50; i++) node = fy__node_child(node, "level");
    char path[64];
    memset(path, '#', sizeof path);
    assert_ptr_equal(fy__node_path(node, path, 32), path);
    assert_true(strlen(path) < 32);
    assert_int_equal(path[32], '#');
    char all[400];
    fy__node_path(node, all, sizeof all);
    assert_int_equal(strlen(all), 50 * 6 - 1);
}

static int g_seen;
static fy__node_t *g_order[8];
static void note(void *user, fy__node_t *node)
{
    (void)user;
    if (g_seen < 8) g_order[g_seen] = node;
    g_seen++;
}

static void walks_go_parents_first(void **state)
{
    (void)state;
    fy__node_t *root = root_node(), *a = fy__node_child(root, "a");
    fy__node_child(a, "b");
    fy__node_child(a, "c");
    fy__node_child(root, "d");
    g_seen = 0;
    fy__node_walk(root, note, NULL);
    assert_int_equal(g_seen, 5);
    assert_ptr_equal(g_order[0], root);
    for (int i = 1; i < 5; i++) { /* each one's parent came before it */
        int found = 0;
        for (int j = 0; j < i; j++) found |= g_order[j] == g_order[i]->parent;
        assert_true(found);
    }
}

static void memory_entries(void **state)
{
    (void)state;
    fy__node_t *root = root_node();
    fy__node_memory_t *third = fy__node_memory(root, 3), *last = fy__node_memory(root, FY__MAX_DEVICES - 1);
    assert_ptr_not_equal(third, last);
    assert_ptr_equal(fy__node_memory(root, 3), third);
    atomic_store(&third->live, 5);
    assert_int_equal(atomic_load(&fy__node_memory(root, 3)->live), 5);
    assert_int_equal(atomic_load(&last->live), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(children_are_found_again), cmocka_unit_test(paths_are_cut),
                                        cmocka_unit_test(walks_go_parents_first), cmocka_unit_test(memory_entries) };
    return cmocka_run_group_tests_name("node", tests, NULL, NULL) != 0;
}
