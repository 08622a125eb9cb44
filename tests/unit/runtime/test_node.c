/* runtime/node: trees of scope names. Children are found again. '/' inside a name is no separator.
 * Long paths are truncated, not overrun. Walks visit parents first. Memory entries are per
 * device. */
#include "runtime/thread/node.h"
#include "runtime/thread/thread.h"
#include "tests/support/harness.h"

static fy__node_t
    *g_roots[8]; /* nodes are never freed, by design: kept reachable for the leak checker */
static int g_nroots;

static fy__node_t *root_node(void)
{
    fy__node_t *root = calloc(1, sizeof *root);
    assert_non_null(root);
    g_roots[g_nroots++] = root;
    root->name = strdup("");
    return root;
}

TS_TEST(children_are_found_again)
{
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

TS_TEST(paths_are_cut)
{
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

TS_TEST(walks_go_parents_first)
{
    fy__node_t *root = root_node(), *a = fy__node_child(root, "a");
    fy__node_child(a, "b");
    fy__node_child(a, "c");
    fy__node_child(root, "d");
    g_seen = 0;
    fy__node_walk(root, note, NULL);
    assert_int_equal(g_seen, 5);
    assert_ptr_equal(g_order[0], root);
    for (int i = 1; i < 5; i++) { /* each parent came before its child */
        int found = 0;
        for (int j = 0; j < i; j++) found |= g_order[j] == g_order[i]->parent;
        assert_true(found);
    }
}

TS_TEST(memory_entries)
{
    fy__node_t *root = root_node();
    fy__node_memory_t *third = fy__node_memory(root, 3),
                      *last = fy__node_memory(root, FY__MAX_DEVICES - 1);
    assert_ptr_not_equal(third, last);
    assert_ptr_equal(fy__node_memory(root, 3), third);
    atomic_store(&third->live, 5);
    assert_int_equal(atomic_load(&fy__node_memory(root, 3)->live), 5);
    assert_int_equal(atomic_load(&last->live), 0);
}

/* More children than a list searches, and more than can have a separate node. */
TS_TEST(many_children)
{
    enum { MANY = FY__NODE_CHILDREN + 500 };
    static fy__node_t *nodes[MANY];
    fy__node_t *root = root_node();
    char name[32];
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "request/%d", i);
        nodes[i] = fy__node_child(root, name);
    }
    assert_string_equal(nodes[7]->name, "request.7");
    assert_ptr_not_equal(nodes[0], nodes[FY__NODE_CHILDREN - 1]);
    assert_string_equal(nodes[FY__NODE_CHILDREN]->name, "(others)");
    assert_ptr_equal(nodes[MANY - 1], nodes[FY__NODE_CHILDREN]);
    assert_int_equal(root->nchildren, FY__NODE_CHILDREN + 1);
    for (int i = 0; i < MANY; i++) { /* each is found again, by either spelling */
        snprintf(name, sizeof name, i % 2 ? "request/%d" : "request.%d", i);
        assert_ptr_equal(fy__node_child(root, name), nodes[i]);
    }
    assert_ptr_equal(fy__node_find(root, "request.4000"), nodes[4000]);
    fy__node_t *inside = fy__node_child(nodes[MANY - 1], "inside");
    assert_ptr_equal(inside, fy__node_find(root, "(others)/inside"));
    assert_ptr_equal(fy__node_child(root, "(others)"), nodes[MANY - 1]);
    g_seen = 0;
    fy__node_walk(root, note, NULL);
    assert_int_equal(g_seen, 1 + FY__NODE_CHILDREN + 2);
}

/* A child of that name that the program made counts all further names. */
TS_TEST(further_names_count_under_an_existing_child)
{
    fy__node_t *root = root_node(), *own = fy__node_child(root, "(others)");
    char name[32];
    for (int i = 0; i < FY__NODE_CHILDREN + 3; i++) {
        snprintf(name, sizeof name, "%d", i);
        fy__node_t *node = fy__node_child(root, name);
        assert_true((node == own) == (i >= FY__NODE_CHILDREN - 1));
    }
    assert_int_equal(root->nchildren, FY__NODE_CHILDREN);
}

static uint64_t g_requests;
static void add_child_requests(void *user, const char *path, const fy_ledger_totals_t *totals)
{
    (void)user;
    if (strncmp(path, "test/service/", 13) == 0) g_requests += totals->requests;
}

TS_TEST(figures_of_many_names_add_up)
{
    enum { MANY = FY__NODE_CHILDREN + 100 };
    fy_tensor_t *tensor;
    char name[32];
    fy_device_t *device = ts_open("sim:0"); /* begins the scope "test" */
    fy_scope_t service = fy_scope_begin("service");
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "request %d", i);
        fy_scope_t scope = fy_scope_begin(name);
        ts_ok(fy_zeros(fy_device_host(), FY_DTYPE_F32, FY_DIMS(1), &tensor));
        fy_scope_end(scope, 0, NULL);
    }
    assert_int_equal(ts_ledger("test/service").requests, MANY);
    assert_int_equal(ts_ledger("test/service/(others)").requests, 100);
    g_requests = 0;
    fy_ledger_walk(add_child_requests, NULL);
    assert_int_equal(g_requests, MANY);
    fy_ledger_walk(NULL, NULL);            /* no function to call */
    ts_ok(fy_budget_set("upload=0/step")); /* a budget uses the name that the program gave */
    fy_scope_t step = fy_scope_begin("step");
    ts_ok(fy_zeros(fy_device_host(), FY_DTYPE_F32, FY_DIMS(4), &tensor));
    ts_fails(fy_tensor_upload(tensor, device, NULL, &(fy_tensor_t *){ NULL }), REFUSED_BY_GUARD);
    fy_scope_end(step, 0, NULL);
    ts_ok(fy_budget_set(NULL));
    fy_scope_end(service, 0, NULL);
}
