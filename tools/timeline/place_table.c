/* Places are in a list; a number table finds them. */
#include "tools/timeline/place_table.h"

#include <stdlib.h>
#include <string.h>

#include "tools/cli/tool.h"

/* Room for one more item behind `count`; the list doubles when it is full. */
static place_t *grow(place_t *places, size_t count)
{
    if (count & (count - 1)) return places;
    place_t *grown = tool_alloc((count ? 2 * count : 1) * sizeof *grown);
    if (count) memcpy(grown, places, count * sizeof *grown);
    free(places);
    return grown;
}

void place_table_set(place_table_t *table, uint64_t key, place_t place)
{
    uint32_t *index = number_table_at(&table->numbers, key);
    if (*index == NUMBER_TABLE_NONE) {
        table->places = grow(table->places, table->count);
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
