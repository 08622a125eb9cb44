/* Open addressing, at most three quarters full. Texts are in a list; a number table finds them by
 * their hashes. Texts of one hash are a chain. */
#include "tools/cli/tables.h"

#include <stdlib.h>
#include <string.h>

#include "tools/cli/tool.h"

struct number_entry {
    uint64_t key;
    uint32_t index;
    bool is_used;
};

/* The finalizer of MurmurHash3 (Appleby). */
static uint64_t hash_of_number(uint64_t key)
{
    key = (key ^ key >> 33) * 0xff51afd7ed558ccdull;
    key = (key ^ key >> 33) * 0xc4ceb9fe1a85ec53ull;
    return key ^ key >> 33;
}

static struct number_entry *slot_of(const number_table_t *table, uint64_t key)
{
    size_t at = (size_t)hash_of_number(key) & (table->room - 1);
    while (table->slots[at].is_used && table->slots[at].key != key)
        at = (at + 1) & (table->room - 1);
    return &table->slots[at];
}

static void grow(number_table_t *table)
{
    const number_table_t old = *table;
    table->room = old.room ? 2 * old.room : 64;
    table->slots = tool_alloc(table->room * sizeof *table->slots);
    for (size_t i = 0; i < old.room; i++)
        if (old.slots[i].is_used) *slot_of(table, old.slots[i].key) = old.slots[i];
    free(old.slots);
}

uint32_t *number_table_at(number_table_t *table, uint64_t key)
{
    if (4 * table->count >= 3 * table->room) grow(table);
    struct number_entry *slot = slot_of(table, key);
    if (!slot->is_used) {
        *slot = (struct number_entry){ key, NUMBER_TABLE_NONE, true };
        table->count++;
    }
    return &slot->index;
}

uint32_t number_table_find(const number_table_t *table, uint64_t key)
{
    const struct number_entry *slot = table->room ? slot_of(table, key) : NULL;
    return slot && slot->is_used ? slot->index : NUMBER_TABLE_NONE;
}

void number_table_free(number_table_t *table)
{
    free(table->slots);
    *table = (number_table_t){ NULL, 0, 0 };
}

uint32_t *pair_table_at(pair_table_t *table, uint32_t first, uint64_t second)
{
    while (table->count <= first) {
        table->tables = tool_grow(table->tables, table->count, sizeof *table->tables);
        table->tables[table->count++] = (number_table_t){ NULL, 0, 0 };
    }
    return number_table_at(&table->tables[first], second);
}

void pair_table_free(pair_table_t *table)
{
    for (size_t i = 0; i < table->count; i++) number_table_free(&table->tables[i]);
    free(table->tables);
    *table = (pair_table_t){ NULL, 0 };
}

/* ---- texts ---- */

typedef struct text_entry {
    char *text;
    size_t value;
    uint32_t next; /* of the same hash; NUMBER_TABLE_NONE: none */
} text_entry_t;

/* FNV-1a (Fowler, Noll, Vo). */
static uint64_t hash_of_text(const char *text)
{
    uint64_t hash = 14695981039346656037ull;
    for (; *text; text++) hash = (hash ^ (unsigned char)*text) * 1099511628211ull;
    return hash;
}

static text_entry_t *entry_of(text_index_t *index, const char *text, bool *out_is_new)
{
    uint32_t *first = number_table_at(&index->hashes, hash_of_text(text));
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

bool text_index_number(text_index_t *index, const char *text, size_t next, size_t *out_number)
{
    bool is_new;
    size_t *number = text_index_at(index, text, &is_new);
    if (is_new) *number = next;
    *out_number = *number;
    return is_new;
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
