/* The heap of peer_heap.h. The trees are treaps: ordered by size and then offset, heaps by a random
 * priority. */
#include "tools/replay/peer_heap.h"

#include <stdlib.h>

#include "tools/cli/tool.h"

/* ---- trees ---- */

static bool is_before(const heap_block_t *a, const heap_block_t *b)
{
    return a->nbytes != b->nbytes ? a->nbytes < b->nbytes : a->offset < b->offset;
}

/* Splits a tree into the nodes before `at` and the rest. */
static void split(heap_block_t *tree, const heap_block_t *at, heap_block_t **out_before,
                  heap_block_t **out_rest)
{
    while (tree) {
        if (is_before(tree, at)) {
            *out_before = tree;
            out_before = &tree->right;
            tree = tree->right;
        } else {
            *out_rest = tree;
            out_rest = &tree->left;
            tree = tree->left;
        }
    }
    *out_before = *out_rest = NULL;
}

static heap_block_t *merge(heap_block_t *before, heap_block_t *rest)
{
    heap_block_t *tree = NULL, **at = &tree;
    while (before && rest) {
        if (before->priority > rest->priority) {
            *at = before;
            at = &before->right;
            before = before->right;
        } else {
            *at = rest;
            at = &rest->left;
            rest = rest->left;
        }
    }
    *at = before ? before : rest;
    return tree;
}

static void insert(heap_t *heap, heap_block_t *block)
{
    heap_block_t **at = &heap->trees[block->kind];
    heap->random = heap->random * 6364136223846793005u + 1442695040888963407u;
    block->priority = (uint32_t)(heap->random >> 32);
    while (*at && (*at)->priority >= block->priority)
        at = is_before(*at, block) ? &(*at)->right : &(*at)->left;
    split(*at, block, &block->left, &block->right);
    *at = block;
    block->is_free = true;
    heap->free_nbytes += block->nbytes;
}

static void take_out(heap_t *heap, heap_block_t *block)
{
    heap_block_t **at = &heap->trees[block->kind];
    while (*at != block) at = is_before(*at, block) ? &(*at)->right : &(*at)->left;
    *at = merge(block->left, block->right);
    block->is_free = false;
    heap->free_nbytes -= block->nbytes;
}

/* ---- blocks ---- */

static heap_block_t *new_block(heap_t *heap)
{
    heap_block_t *block = heap->spare;
    if (block)
        heap->spare = block->next;
    else
        block = tool_alloc(sizeof *block);
    return block;
}

static void drop(heap_t *heap, heap_block_t *block)
{
    block->next = heap->spare;
    heap->spare = block;
}

heap_block_t *heap_best(const heap_t *heap, int kind, uint64_t nbytes)
{
    const heap_block_t key = { .nbytes = nbytes };
    heap_block_t *best = NULL;
    for (heap_block_t *tree = heap->trees[kind]; tree;) {
        const bool fits = !is_before(tree, &key);
        if (fits) best = tree;
        tree = fits ? tree->left : tree->right;
    }
    return best;
}

heap_block_t *heap_take(heap_t *heap, heap_block_t *block, uint64_t nbytes)
{
    take_out(heap, block);
    if (block->nbytes == nbytes) return block;
    heap_block_t *rest = new_block(heap);
    *rest = (heap_block_t){ .offset = block->offset + nbytes,
                            .nbytes = block->nbytes - nbytes,
                            .kind = block->kind,
                            .prev = block };
    rest->next = block->next;
    if (rest->next) rest->next->prev = rest;
    block->next = rest;
    block->nbytes = nbytes;
    insert(heap, rest);
    return block;
}

/* The left one takes in the right one. */
static void join(heap_t *heap, heap_block_t *left, heap_block_t *right)
{
    left->nbytes += right->nbytes;
    left->next = right->next;
    if (left->next) left->next->prev = left;
    drop(heap, right);
}

void heap_give(heap_t *heap, heap_block_t *block)
{
    heap_block_t *left = block->prev, *right = block->next;
    if (right && right->is_free) {
        take_out(heap, right);
        join(heap, block, right);
    }
    if (left && left->is_free) {
        take_out(heap, left);
        join(heap, left, block);
        block = left;
    }
    insert(heap, block);
}

/* A whole free segment of a tree; NULL: none. */
static heap_block_t *whole(heap_block_t *tree)
{
    if (!tree || (!tree->prev && !tree->next)) return tree;
    heap_block_t *found = whole(tree->left);
    return found ? found : whole(tree->right);
}

/* Forgets every segment that is one free block. */
static void release(heap_t *heap)
{
    for (int kind = 0; kind < HEAP_KINDS; kind++)
        for (heap_block_t *block; (block = whole(heap->trees[kind]));) {
            take_out(heap, block);
            heap->reserved -= block->nbytes;
            drop(heap, block);
        }
}

heap_block_t *heap_grow(heap_t *heap, int kind, uint64_t nbytes, uint64_t limit)
{
    if (nbytes > limit || heap->reserved > limit - nbytes) release(heap);
    if (nbytes > limit || heap->reserved > limit - nbytes) return NULL;
    heap_block_t *block = new_block(heap);
    *block = (heap_block_t){ .offset = heap->next_offset, .nbytes = nbytes, .kind = kind };
    heap->next_offset += nbytes;
    heap->reserved += nbytes;
    if (heap->reserved > heap->peak_reserved) heap->peak_reserved = heap->reserved;
    heap->segments++;
    insert(heap, block);
    return block;
}

uint64_t heap_largest(const heap_t *heap)
{
    uint64_t largest = 0;
    for (int kind = 0; kind < HEAP_KINDS; kind++)
        for (const heap_block_t *tree = heap->trees[kind]; tree; tree = tree->right)
            if (tree->nbytes > largest) largest = tree->nbytes;
    return largest;
}

void heap_clear(heap_t *heap)
{
    release(heap);
    while (heap->spare) {
        heap_block_t *block = heap->spare;
        heap->spare = block->next;
        free(block);
    }
    *heap = (heap_t){ .spare = NULL };
}
