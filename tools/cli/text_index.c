/* Texts are in a list; a number table finds them by their hashes. Texts of one hash are a chain. */
#include "tools/cli/text_index.h"

#include <stdlib.h>
#include <string.h>

#include "tools/cli/tool.h"

typedef struct text_entry {
    char *text;
    size_t value;
    uint32_t next; /* of the same hash; NUMBER_TABLE_NONE: none */
} text_entry_t;

/* FNV-1a (Fowler, Noll, Vo). */
static uint64_t hash_of(const char *text)
{
    uint64_t hash = 14695981039346656037ull;
    for (; *text; text++) hash = (hash ^ (unsigned char)*text) * 1099511628211ull;
    return hash;
}

static text_entry_t *entry_of(text_index_t *index, const char *text, bool *out_is_new)
{
    uint32_t *first = number_table_at(&index->hashes, hash_of(text));
    *out_is_new = false;
    for (uint32_t at = *first; at != NUMBER_TABLE_NONE; at = index->entries[at].next)
        if (strcmp(index->entries[at].text, text) == 0) return &index->entries[at];
    index->entries = tool_grow(index->entries, index->count, sizeof *index->entries);
    text_entry_t *entry = &index->entries[index->count];
    *entry = (text_entry_t){ tool_copy_text(text), SIZE_MAX, *first };
    *first = (uint32_t)index->count++;
    *out_is_new = true;
    return entry;
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
    for (size_t i = 0; i < index->count; i++) free(index->entries[i].text);
    free(index->entries);
    number_table_free(&index->hashes);
    *index = (text_index_t){ 0 };
}
