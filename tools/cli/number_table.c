/* Open addressing, at most half full. */
#include "tools/cli/number_table.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/tool.h"

struct number_entry {
    uint64_t key;
    uint32_t index;
    bool is_used;
};

/* The finalizer of MurmurHash3 (Appleby). */
static uint64_t hash_of(uint64_t key)
{
    key = (key ^ key >> 33) * 0xff51afd7ed558ccdull;
    key = (key ^ key >> 33) * 0xc4ceb9fe1a85ec53ull;
    return key ^ key >> 33;
}

static struct number_entry *slot_of(const number_table_t *table, uint64_t key)
{
    size_t at = (size_t)hash_of(key) & (table->room - 1);
    while (table->slots[at].is_used && table->slots[at].key != key)
        at = (at + 1) & (table->room - 1);
    return &table->slots[at];
}

static void grow(number_table_t *table)
{
    const number_table_t old = *table;
    table->room = old.room ? 2 * old.room : 64;
    table->slots = tool_alloc(table->room * sizeof *table->slots);
    memset(table->slots, 0, table->room * sizeof *table->slots);
    for (size_t i = 0; i < old.room; i++)
        if (old.slots[i].is_used) *slot_of(table, old.slots[i].key) = old.slots[i];
    free(old.slots);
}

uint32_t *number_table_at(number_table_t *table, uint64_t key)
{
    if (2 * table->count >= table->room) grow(table);
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
