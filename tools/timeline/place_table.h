/* A table from numbers to places in a timeline: where a request ran, or where the last writer of a
 * storage did. Not here: the meaning of the numbers (tracks.c). */
#ifndef FERRY_TOOLS_PLACE_TABLE_H_
#define FERRY_TOOLS_PLACE_TABLE_H_

#include "tools/cli/number_table.h"
#include "tools/timeline/trace_file.h"

typedef struct place {
    track_t track;
    uint64_t start_ns, end_ns;
    uint64_t version; /* of the storage, as written there */
} place_t;

typedef struct place_table {
    number_table_t numbers; /* of the list */
    place_t *places;
    size_t count;
} place_table_t;

void place_table_set(place_table_t *table, uint64_t key, place_t place);
/* NULL: there is none. Valid until the next set. */
const place_t *place_table_get(const place_table_t *table, uint64_t key);
void place_table_free(place_table_t *table);

#endif
