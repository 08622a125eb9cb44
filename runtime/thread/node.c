/* Trees of scope names: look-up, growth, walking. Only the owning thread adds to a tree; a child is
 * complete before it is published. */
#include "runtime/thread/node.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/thread/thread.h"

/* `name` as a path element: '/' separates elements, so inside one it becomes '.'. */
static bool same_name(const char *element, const char *name)
{
    for (; *name && *element; name++, element++)
        if (*element != (*name == '/' ? '.' : *name)) return false;
    return *name == *element;
}

/* ---- many children ---- */

/* Open addressing, a power of two, at most half full. If there is no memory for a table, all
 * children are in the list. */
typedef struct fy__node_table {
    uint32_t mask;
    fy__node_t *slots[];
} fy__node_table_t;

/* FNV-1a (Fowler, Noll, Vo) over the name as a path element. */
static uint32_t hash_of(const char *name)
{
    uint32_t hash = 2166136261u;
    for (; *name; name++) hash = (hash ^ (unsigned char)(*name == '/' ? '.' : *name)) * 16777619u;
    return hash ^ hash >> 15;
}

/* The slot of `name`, or the free slot for it. */
static fy__node_t **slot_of(fy__node_table_t *table, const char *name)
{
    uint32_t at = hash_of(name) & table->mask;
    while (table->slots[at] && !same_name(table->slots[at]->name, name))
        at = (at + 1) & table->mask;
    return &table->slots[at];
}

static void rebuild(fy__node_t *parent)
{
    uint32_t size = 4 * FY__NODE_LISTED;
    while (size < 4 * parent->nchildren) size *= 2;
    fy__node_table_t *table = calloc(1, sizeof *table + size * sizeof *table->slots);
    free(parent->table);
    parent->table = table;
    if (!table) return;
    table->mask = size - 1;
    for (fy__node_t *node = atomic_load_explicit(&parent->child, memory_order_relaxed); node;
         node = atomic_load_explicit(&node->sibling, memory_order_relaxed))
        *slot_of(table, node->name) = node;
}

static void enter(fy__node_t *parent, fy__node_t *node)
{
    parent->nchildren++;
    if (parent->table && parent->nchildren <= (parent->table->mask + 1) / 2)
        *slot_of(parent->table, node->name) = node;
    else if (parent->nchildren > FY__NODE_LISTED)
        rebuild(parent);
}

static fy__node_t *add_child(fy__node_t *parent, const char *name)
{
    fy__node_t *node = calloc(1, sizeof *node);
    if (!node) return parent;
    node->name = strdup(name);
    if (!node->name) {
        free(node);
        return parent;
    }
    for (char *c = node->name; *c; c++)
        if (*c == '/') *c = '.';
    node->parent = parent;
    atomic_store_explicit(&node->sibling,
                          atomic_load_explicit(&parent->child, memory_order_relaxed),
                          memory_order_relaxed);
    atomic_store_explicit(&parent->child, node, memory_order_release);
    enter(parent, node);
    return node;
}

fy__node_t *fy__node_child(fy__node_t *parent, const char *name)
{
    fy__node_t *node;
    if (__builtin_expect(parent->table != NULL, 0)) {
        if ((node = *slot_of(parent->table, name))) return node;
    } else
        for (node = atomic_load_explicit(&parent->child, memory_order_relaxed); node;
             node = atomic_load_explicit(&node->sibling, memory_order_relaxed))
            if (same_name(node->name, name)) return node;
    if (parent->nchildren >= FY__NODE_CHILDREN && strcmp(name, FY__NODE_OTHERS) != 0)
        return fy__node_child(parent, FY__NODE_OTHERS);
    return add_child(parent, name);
}

fy__node_t *fy__node_mirror(fy__node_t *root, fy__node_t *node)
{
    fy__node_t *chain[FY__MAX_SCOPES + 1];
    size_t n = 0;
    fy__node_t *above = node;
    for (; above->parent && n < FY__MAX_SCOPES + 1; above = above->parent) chain[n++] = above;
    if (above == root) return node;
    while (n-- > 0) root = fy__node_child(root, chain[n]->name);
    return root;
}

fy__node_memory_t *fy__node_memory(fy__node_t *node, uint32_t device_index)
{
    fy__node_memory_t *memory = atomic_load_explicit(&node->memory, memory_order_acquire);
    if (!memory) {
        fy__node_memory_t *above = node->parent ? fy__node_memory(node->parent, 0) : NULL;
        if (node->parent && !above) return NULL;
        memory = calloc(FY__MAX_DEVICES, sizeof *memory);
        if (!memory) return NULL;
        for (uint32_t i = 0; i < FY__MAX_DEVICES; i++) {
            memory[i].owner = fy__tls;
            memory[i].above = above ? &above[i] : NULL;
        }
        /* only the owning thread reaches this line */
        atomic_store_explicit(&node->memory, memory, memory_order_release);
    }
    return &memory[device_index];
}

static int64_t live_of(const fy__node_t *node, uint32_t device_index)
{
    const fy__node_memory_t *memory = atomic_load_explicit(&node->memory, memory_order_acquire);
    return memory ? fy__node_memory_live(&memory[device_index]) : 0;
}

int64_t fy__node_own_live(const fy__node_t *node, uint32_t device_index)
{
    int64_t live = live_of(node, device_index);
    for (const fy__node_t *child = atomic_load_explicit(&node->child, memory_order_acquire); child;
         child = atomic_load_explicit(&child->sibling, memory_order_acquire))
        live -= live_of(child, device_index);
    return live;
}

const char *fy__node_path(const fy__node_t *node, char *buffer, size_t size)
{
    const fy__node_t *chain[FY__MAX_SCOPES + 1];
    size_t n = 0, used = 0;
    for (; node && node->parent && n < FY__MAX_SCOPES + 1; node = node->parent) chain[n++] = node;
    buffer[0] = 0;
    while (n-- > 0) {
        const size_t length = strlen(chain[n]->name);
        if (used + length + 2 > size) break;
        if (used) buffer[used++] = '/';
        memcpy(buffer + used, chain[n]->name, length + 1);
        used += length;
    }
    return buffer;
}

fy__node_t *fy__node_find(fy__node_t *root, const char *path)
{
    while (path && *path) {
        const size_t length = strcspn(path, "/");
        fy__node_t *node = atomic_load_explicit(&root->child, memory_order_acquire);
        while (node && (strncmp(node->name, path, length) != 0 || node->name[length]))
            node = atomic_load_explicit(&node->sibling, memory_order_acquire);
        if (!node) return NULL;
        root = node;
        path += length + (path[length] == '/');
    }
    return root;
}

void fy__node_walk(fy__node_t *node, void (*fn)(void *user, fy__node_t *node), void *user)
{
    fn(user, node);
    for (fy__node_t *child = atomic_load_explicit(&node->child, memory_order_acquire); child;
         child = atomic_load_explicit(&child->sibling, memory_order_acquire))
        fy__node_walk(child, fn, user);
}
