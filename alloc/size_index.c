/* Size index: bins, tries and rings. See offset.h for the scheme.
 * Invariants:
 * 1. A node's size agrees with its path in every bit above its depth.
 * 2. A subtree's smallest size is on its leftmost path (follow child 0, else child 1) and its
 *    largest on its rightmost.
 * 3. One node of each size is in the trie, the others in its ring. */
#include "alloc/offset.h"

#include <stddef.h>
#include <string.h>

typedef struct bin {
    uint32_t row, column;
    uint32_t low_bits; /* bits of the size (in granules) that the bin leaves open */
} bin_t;

static inline bin_t bin_of(uint64_t granules)
{
    if (granules < FY__SIZE_COLUMNS) return (bin_t){ 0, (uint32_t)granules, 0 };
    uint32_t top = 63u - (uint32_t)__builtin_clzll(granules);
    return (bin_t){ top - 2, (uint32_t)(granules >> (top - 3)) & 7u, top - 3 };
}

/* The open bits of a size, first one to branch on at the top. */
static inline uint64_t branch_bits(uint64_t granules, uint32_t low_bits)
{
    return low_bits ? granules << (64 - low_bits) : 0;
}

void fy__size_index_init(fy__size_index_t *index, uint64_t granule)
{
    memset(index, 0, sizeof *index);
    index->granule_shift = (uint32_t)__builtin_ctzll(granule);
}

void fy__size_index_insert(fy__size_index_t *index, fy__size_node_t *node)
{
    uint64_t granules = node->nbytes >> index->granule_shift;
    bin_t bin = bin_of(granules);
    node->child[0] = node->child[1] = node->parent = NULL;
    node->newer = node->older = node;
    fy__size_node_t *at = index->roots[bin.row][bin.column];
    if (!at) {
        index->roots[bin.row][bin.column] = node;
        index->columns_used[bin.row] |= (uint8_t)(1u << bin.column);
        index->rows_used |= 1ull << bin.row;
        return;
    }
    uint64_t bits = branch_bits(granules, bin.low_bits);
    while (at->nbytes != node->nbytes) {
        fy__size_node_t **slot = &at->child[bits >> 63];
        bits <<= 1;
        if (!*slot) {
            *slot = node;
            node->parent = at;
            return;
        }
        at = *slot;
    }
    node->older = at->older; /* `older` of the trie's node is the newest of the ring */
    node->newer = at;
    at->older->newer = node;
    at->older = node;
}

/* Replaces `node` by `other` (or nothing), under its parent or in its bin. */
static void replace_in_parent(fy__size_index_t *index, fy__size_node_t *node,
                              fy__size_node_t *other, bin_t bin)
{
    fy__size_node_t *parent = node->parent;
    if (parent) {
        parent->child[parent->child[1] == node] = other;
    } else {
        index->roots[bin.row][bin.column] = other;
        if (!other) {
            index->columns_used[bin.row] &= (uint8_t) ~(1u << bin.column);
            if (!index->columns_used[bin.row]) index->rows_used &= ~(1ull << bin.row);
        }
    }
    if (other) other->parent = parent;
}

static void take_over_children(fy__size_node_t *heir, const fy__size_node_t *node)
{
    for (int i = 0; i < 2; i++) {
        heir->child[i] = node->child[i];
        if (heir->child[i]) heir->child[i]->parent = heir;
    }
}

void fy__size_index_remove(fy__size_index_t *index, fy__size_node_t *node)
{
    fy__size_node_t *heir = node->newer;
    bin_t bin = bin_of(node->nbytes >> index->granule_shift);
    if (heir != node) {
        node->newer->older = node->older;
        node->older->newer = node->newer;
        if (!node->parent && index->roots[bin.row][bin.column] != node) return;
    } else {
        /* Any leaf below agrees with the path in the bits above, so it can replace the node. */
        heir = node;
        while (heir->child[0] || heir->child[1])
            heir = heir->child[1] ? heir->child[1] : heir->child[0];
        if (heir == node) {
            replace_in_parent(index, node, NULL, bin);
            return;
        }
        heir->parent->child[heir->parent->child[1] == heir] = NULL;
    }
    take_over_children(heir, node);
    replace_in_parent(index, node, heir, bin);
}

static fy__size_node_t *smallest_in(fy__size_node_t *at)
{
    fy__size_node_t *best = at;
    while ((at = at->child[0] ? at->child[0] : at->child[1]))
        if (at->nbytes < best->nbytes) best = at;
    return best;
}

/* The smallest node of at least nbytes in one trie, or NULL. */
static fy__size_node_t *best_in(fy__size_node_t *at, uint64_t nbytes, uint64_t bits)
{
    /* above: deepest subtree on the larger side of the path */
    fy__size_node_t *best = NULL, *above = NULL;
    while (at) {
        if (at->nbytes >= nbytes && (!best || at->nbytes < best->nbytes)) {
            best = at;
            if (at->nbytes == nbytes) return best;
        }
        unsigned bit = (unsigned)(bits >> 63);
        if (!bit && at->child[1]) above = at->child[1];
        at = at->child[bit];
        bits <<= 1;
    }
    if (above) {
        above = smallest_in(above);
        if (!best || above->nbytes < best->nbytes) best = above;
    }
    return best;
}

fy__size_node_t *fy__size_index_best(const fy__size_index_t *index, uint64_t nbytes)
{
    uint64_t granules = nbytes >> index->granule_shift;
    bin_t bin = bin_of(granules);
    fy__size_node_t *root = index->roots[bin.row][bin.column];
    if (root) {
        fy__size_node_t *best = best_in(root, nbytes, branch_bits(granules, bin.low_bits));
        if (best) return best->older;
    }
    uint32_t columns = index->columns_used[bin.row] & ~((2u << bin.column) - 1);
    if (!columns) {
        uint64_t rows = index->rows_used & ~((2ull << bin.row) - 1);
        if (!rows) return NULL;
        bin.row = (uint32_t)__builtin_ctzll(rows);
        columns = index->columns_used[bin.row];
    }
    return smallest_in(index->roots[bin.row][__builtin_ctz(columns)])->older;
}

fy__size_node_t *fy__size_index_largest(const fy__size_index_t *index)
{
    if (!index->rows_used) return NULL;
    uint32_t row = 63u - (uint32_t)__builtin_clzll(index->rows_used);
    uint32_t column = 31u - (uint32_t)__builtin_clz(index->columns_used[row]);
    fy__size_node_t *at = index->roots[row][column], *best = at;
    while ((at = at->child[1] ? at->child[1] : at->child[0]))
        if (at->nbytes > best->nbytes) best = at;
    return best;
}

/* Depth is bounded by the bits of a size, so recursion is safe. */
static bool trie_is_valid(const fy__size_index_t *index, const fy__size_node_t *node, bin_t bin,
                          uint64_t path, uint32_t depth, uint64_t *count)
{
    uint64_t granules = node->nbytes >> index->granule_shift;
    bin_t own = bin_of(granules);
    if (granules << index->granule_shift != node->nbytes || own.row != bin.row ||
        own.column != bin.column)
        return false;
    uint64_t bits = branch_bits(granules, own.low_bits);
    if (depth > own.low_bits || (depth && (bits >> (64 - depth)) != path)) return false;
    const fy__size_node_t *ring = node;
    do {
        if (ring->nbytes != node->nbytes || ring->newer->older != ring ||
            (ring != node && ring->parent))
            return false;
        ++*count;
        ring = ring->newer;
    } while (ring != node);
    for (uint32_t i = 0; i < 2; i++) {
        const fy__size_node_t *child = node->child[i];
        if (child && (child->parent != node ||
                      !trie_is_valid(index, child, bin, path * 2 + i, depth + 1, count)))
            return false;
    }
    return true;
}

bool fy__size_index_is_valid(const fy__size_index_t *index, uint64_t *out_count)
{
    *out_count = 0;
    for (uint32_t row = 0; row < FY__SIZE_ROWS; row++) {
        if (!index->columns_used[row] != !(index->rows_used >> row & 1)) return false;
        for (uint32_t column = 0; column < FY__SIZE_COLUMNS; column++) {
            const fy__size_node_t *root = index->roots[row][column];
            if (!root != !(index->columns_used[row] >> column & 1)) return false;
            if (root && (root->parent ||
                         !trie_is_valid(index, root, (bin_t){ row, column, 0 }, 0, 0, out_count)))
                return false;
        }
    }
    return true;
}
