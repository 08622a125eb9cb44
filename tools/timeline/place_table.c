/* Open addressing, at most half full. Keys are stored plus 1: 0 is a free slot. */
#include "tools/timeline/place_table.h"

#include <stdlib.h>
#include <string.h>

#include "tools/cli/tool.h"

struct place_entry {
    uint64_t key;
    place_t place;
};

/* The finalizer of MurmurHash3 (Appleby). */
static uint64_t hash_of(uint64_t key)
{
    key = (key ^ key >> 33) * 0xff51afd7ed558ccdull;
    key = (key ^ key >> 33) * 0xc4ceb9fe1a85ec53ull;
    return key ^ key >> 33;
}

static struct place_entry *slot_of(const place_table_t *table, uint64_t key)
{
    size_t at = (size_t)hash_of(key) & (table->room - 1);
    while (table->slots[at].key && table->slots[at].key != key) at = (at + 1) & (table->room - 1);
    return &table->slots[at];
}

static void grow(place_table_t *table)
{
    const place_table_t old = *table;
    table->room = old.room ? 2 * old.room : 64;
    table->slots = tool_alloc(table->room * sizeof *table->slots);
    memset(table->slots, 0, table->room * sizeof *table->slots);
    for (size_t i = 0; i < old.room; i++)
        if (old.slots[i].key) *slot_of(table, old.slots[i].key) = old.slots[i];
    free(old.slots);
}

void place_table_set(place_table_t *table, uint64_t key, place_t place)
{
    if (2 * table->count >= table->room) grow(table);
    struct place_entry *slot = slot_of(table, key + 1);
    table->count += !slot->key;
    *slot = (struct place_entry){ key + 1, place };
}

const place_t *place_table_get(const place_table_t *table, uint64_t key)
{
    const struct place_entry *slot = table->room ? slot_of(table, key + 1) : NULL;
    return slot && slot->key ? &slot->place : NULL;
}

void place_table_free(place_table_t *table)
{
    free(table->slots);
    *table = (place_table_t){ NULL, 0, 0 };
}
