/* A sorted array of ranges; see ranges.h. All lookups reduce to "how many ranges begin at or before
 * this address". */
#include "backends/sim/ranges.h"

#include <stdlib.h>
#include <string.h>

static size_t count_up_to(const fy__sim_ranges_t *ranges, uintptr_t address)
{
    size_t low = 0, high = ranges->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (ranges->items[middle].begin <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const fy__sim_range_t *fy__sim_ranges_below(const fy__sim_ranges_t *ranges, uintptr_t address)
{
    size_t n = count_up_to(ranges, address);
    return n > 0 ? &ranges->items[n - 1] : NULL;
}

const fy__sim_range_t *fy__sim_ranges_touching(const fy__sim_ranges_t *ranges, uintptr_t begin,
                                               uint64_t nbytes)
{
    size_t n = count_up_to(ranges, begin);
    if (n > 0 && begin - ranges->items[n - 1].begin < ranges->items[n - 1].nbytes)
        return &ranges->items[n - 1];
    if (n < ranges->count && ranges->items[n].begin - begin < nbytes) return &ranges->items[n];
    return NULL;
}

bool fy__sim_range_holds(const fy__sim_range_t *range, uintptr_t begin, uint64_t nbytes)
{
    if (begin < range->begin) return false;
    uint64_t offset = begin - range->begin;
    return offset < range->nbytes && nbytes <= range->nbytes - offset;
}

bool fy__sim_ranges_reserve(fy__sim_ranges_t *ranges)
{
    if (ranges->count < ranges->room) return true;
    size_t room = ranges->room ? 2 * ranges->room : 16;
    fy__sim_range_t *items = realloc(ranges->items, room * sizeof(*items));
    if (!items) return false;
    ranges->items = items;
    ranges->room = room;
    return true;
}

void fy__sim_ranges_insert(fy__sim_ranges_t *ranges, const fy__sim_range_t *range)
{
    size_t at = count_up_to(ranges, range->begin);
    memmove(&ranges->items[at + 1], &ranges->items[at], (ranges->count - at) * sizeof(*range));
    ranges->items[at] = *range;
    ranges->count++;
}

bool fy__sim_ranges_remove(fy__sim_ranges_t *ranges, uintptr_t begin, fy__sim_range_t *out_range)
{
    size_t n = count_up_to(ranges, begin);
    if (n == 0 || ranges->items[n - 1].begin != begin) return false;
    if (out_range) *out_range = ranges->items[n - 1];
    memmove(&ranges->items[n - 1], &ranges->items[n], (ranges->count - n) * sizeof(*out_range));
    ranges->count--;
    return true;
}

void fy__sim_ranges_resize(fy__sim_ranges_t *ranges, uintptr_t begin, uint64_t nbytes)
{
    const size_t n = count_up_to(ranges, begin);
    if (n > 0 && ranges->items[n - 1].begin == begin) ranges->items[n - 1].nbytes = nbytes;
}

void fy__sim_ranges_trim(fy__sim_ranges_t *ranges)
{
    if (ranges->count > 0) return;
    free(ranges->items);
    *ranges = (fy__sim_ranges_t){ 0 };
}
