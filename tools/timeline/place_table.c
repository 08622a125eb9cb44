/* Places are in a list; a number table finds them. */
#include "tools/timeline/place_table.h"

#include <stdlib.h>

#include "tools/cli/tool.h"

void place_table_set(place_table_t *table, uint64_t key, place_t place)
{
    uint32_t *index = number_table_at(&table->numbers, key);
    if (*index == NUMBER_TABLE_NONE) {
        table->places = tool_grow(table->places, table->count, sizeof *table->places);
        *index = (uint32_t)table->count++;
    }
    table->places[*index] = place;
}

const place_t *place_table_get(const place_table_t *table, uint64_t key)
{
    const uint32_t index = number_table_find(&table->numbers, key);
    return index == NUMBER_TABLE_NONE ? NULL : &table->places[index];
}

void place_table_free(place_table_t *table)
{
    number_table_free(&table->numbers);
    free(table->places);
    *table = (place_table_t){ .count = 0 };
}
