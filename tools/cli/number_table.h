/* A hash table from numbers of 64 bits to indices. Not here: the meaning of either
 * (program.c), texts as keys (text_index.h). */
#ifndef FERRY_TOOLS_NUMBER_TABLE_H_
#define FERRY_TOOLS_NUMBER_TABLE_H_

#include <stddef.h>
#include <stdint.h>

#define NUMBER_TABLE_NONE UINT32_MAX

typedef struct number_table {
    struct number_entry *slots;
    size_t room, count; /* room: a power of two, or 0 */
} number_table_t;

/* The index of `key`, to be read or written until the next call; that of a new key is
 * NUMBER_TABLE_NONE. */
uint32_t *number_table_at(number_table_t *table, uint64_t key);
/* The same of a key that may not be there: no key is added. */
uint32_t number_table_find(const number_table_t *table, uint64_t key);
void number_table_free(number_table_t *table);

#endif
