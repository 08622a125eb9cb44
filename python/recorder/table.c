/* Open addressing with linear probing; a removal moves the entries behind it. */
#include <stdlib.h>

#include "recorder.h"

static size_t place(const struct table *table, const void *key)
{
    return (size_t)(((uint64_t)(uintptr_t)key * 0x9E3779B97F4A7C15u) >> 20) & (table->capacity - 1);
}

void *table_get(const struct table *table, const void *key)
{
    if (!table->capacity) return NULL;
    for (size_t i = place(table, key); table->slots[i].key; i = (i + 1) & (table->capacity - 1))
        if (table->slots[i].key == key) return table->slots[i].value;
    return NULL;
}

static bool grow(struct table *table)
{
    const struct table old = *table;
    const size_t capacity = old.capacity ? 2 * old.capacity : 64;
    struct table_slot *slots = calloc(capacity, sizeof *slots);
    if (!is_allocated(slots)) return false;
    *table = (struct table){ .slots = slots, .capacity = capacity };
    for (size_t i = 0; i < old.capacity; i++)
        if (old.slots[i].key) (void)table_put(table, old.slots[i].key, old.slots[i].value);
    free(old.slots);
    return true;
}

bool table_put(struct table *table, const void *key, void *value)
{
    if (2 * (table->count + 1) > table->capacity && !grow(table)) return false;
    size_t i = place(table, key);
    while (table->slots[i].key && table->slots[i].key != key) i = (i + 1) & (table->capacity - 1);
    if (!table->slots[i].key) table->count++;
    table->slots[i] = (struct table_slot){ key, value };
    return true;
}

void table_remove(struct table *table, const void *key)
{
    if (!table->capacity) return;
    const size_t mask = table->capacity - 1;
    size_t hole = place(table, key);
    while (table->slots[hole].key != key) {
        if (!table->slots[hole].key) return;
        hole = (hole + 1) & mask;
    }
    for (size_t i = (hole + 1) & mask; table->slots[i].key; i = (i + 1) & mask) {
        /* an entry may move back to the hole if its own place is not between both */
        if (((i - place(table, table->slots[i].key)) & mask) >= ((i - hole) & mask)) {
            table->slots[hole] = table->slots[i];
            hole = i;
        }
    }
    table->slots[hole] = (struct table_slot){ NULL, NULL };
    table->count--;
}
