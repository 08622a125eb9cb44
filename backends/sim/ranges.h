/* A sorted set of address ranges that do not overlap: device segments of the process, page-locked
 * host memory of a device.
 * A handful to some thousands of entries, so a sorted array and binary search. Not here: locks (the
 * owner's), what a range means. */
#ifndef FERRY_BACKENDS_SIM_RANGES_H_
#define FERRY_BACKENDS_SIM_RANGES_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct fy__sim_range {
    uintptr_t begin;
    uint64_t nbytes; /* > 0 */
    void *owner;     /* whose it is; not looked at here */
    void *bytes;     /* what lies behind it; not looked at here */
    /* of addresses that it may grow over, at least nbytes; not looked at here */
    uint64_t space_nbytes;
    bool is_adopted; /* the program's memory; not looked at here */
} fy__sim_range_t;

typedef struct fy__sim_ranges {
    fy__sim_range_t *items; /* by begin, ascending */
    size_t count, room;
} fy__sim_ranges_t;

/* The first range that shares a byte with [begin, begin + nbytes), NULL if none; valid until the
 * set changes. */
const fy__sim_range_t *fy__sim_ranges_touching(const fy__sim_ranges_t *ranges, uintptr_t begin,
                                               uint64_t nbytes);
/* The last range that begins at or before `address`, NULL if none: if any range holds it, this one
 * does. */
const fy__sim_range_t *fy__sim_ranges_below(const fy__sim_ranges_t *ranges, uintptr_t address);
/* Does `range` hold all of [begin, begin + nbytes)? A range of 0 bytes holds nothing. */
bool fy__sim_range_holds(const fy__sim_range_t *range, uintptr_t begin, uint64_t nbytes);
/* Makes room for one more, so that the next insert cannot fail. False: no memory. */
bool fy__sim_ranges_reserve(fy__sim_ranges_t *ranges);
/* Touches no range of the set; room was reserved. */
void fy__sim_ranges_insert(fy__sim_ranges_t *ranges, const fy__sim_range_t *range);
/* Takes out the range that begins there. False: there is none. out_range may be NULL. */
bool fy__sim_ranges_remove(fy__sim_ranges_t *ranges, uintptr_t begin, fy__sim_range_t *out_range);
/* Gives the range that begins there another size. It stays clear of the next one. */
void fy__sim_ranges_resize(fy__sim_ranges_t *ranges, uintptr_t begin, uint64_t nbytes);
/* Frees the array when it is empty. */
void fy__sim_ranges_trim(fy__sim_ranges_t *ranges);

#endif
