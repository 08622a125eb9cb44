/* Trees of scope names: look-up, growth, walking. Only the owning thread adds to a tree; a child is complete before it is published. */
#include "runtime/node.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/thread.h"

/* `name` as a path element: '/' separates elements, so inside one it becomes '.'. */
static bool same_name(const char *element, const char *name)
{
    for (; *name && *element; name++, element++)
        if (*element != (*name == '/' ? '.' : *name)) return false;
    return *name == *element;
}

fy__node_t *fy__node_child(fy__node_t *parent, const char *name)
{
    fy__node_t *node;
    for (node = atomic_load_explicit(&parent->child, memory_order_relaxed); node;
         node = atomic_load_explicit(&node->sibling, memory_order_relaxed))
        if (same_name(node->name, name)) return node;
    node = calloc(1, sizeof *node);
    if (!node) return parent;
    node->name = strdup(name);
    if (!node->name) {
        free(node);
        return parent;
    }
    for (char *c = node->name; *c; c++)
        if (*c == '/') *c = '.';
    node->parent = parent;
    atomic_store_explicit(&node->sibling, atomic_load_explicit(&parent->child, memory_order_relaxed), memory_order_relaxed);
    atomic_store_explicit(&parent->child, node, memory_order_release);
    return node;
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
        atomic_store_explicit(&node->memory, memory, memory_order_release); /* only the owning thread gets here */
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
