/* Open addressing, at most half full. */
#include "tools/cli/text_index.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/tool.h"

/* FNV-1a (Fowler, Noll, Vo). */
static size_t hash_of(const char *text)
{
    uint64_t hash = 14695981039346656037ull;
    for (; *text; text++) hash = (hash ^ (unsigned char)*text) * 1099511628211ull;
    return (size_t)(hash ^ hash >> 32);
}

static text_entry_t *slot_of(const text_index_t *index, const char *text)
{
    size_t at = hash_of(text) & (index->room - 1);
    while (index->slots[at].text && strcmp(index->slots[at].text, text) != 0)
        at = (at + 1) & (index->room - 1);
    return &index->slots[at];
}

static void grow(text_index_t *index)
{
    const text_index_t old = *index;
    index->room = old.room ? 2 * old.room : 64;
    index->slots = tool_alloc(index->room * sizeof *index->slots);
    memset(index->slots, 0, index->room * sizeof *index->slots);
    for (size_t i = 0; i < old.room; i++)
        if (old.slots[i].text) *slot_of(index, old.slots[i].text) = old.slots[i];
    free(old.slots);
}

static text_entry_t *entry_of(text_index_t *index, const char *text, bool *out_is_new)
{
    if (2 * index->count >= index->room) grow(index);
    text_entry_t *slot = slot_of(index, text);
    *out_is_new = !slot->text;
    if (!slot->text) {
        const size_t nbytes = strlen(text) + 1;
        slot->text = memcpy(tool_alloc(nbytes), text, nbytes);
        slot->value = SIZE_MAX;
        index->count++;
    }
    return slot;
}

size_t *text_index_at(text_index_t *index, const char *text, bool *out_is_new)
{
    return &entry_of(index, text, out_is_new)->value;
}

const char *text_index_keep(text_index_t *index, const char *text)
{
    bool is_new;
    return entry_of(index, text, &is_new)->text;
}

void text_index_free(text_index_t *index)
{
    for (size_t i = 0; i < index->room; i++) free(index->slots[i].text);
    free(index->slots);
    *index = (text_index_t){ 0 };
}
