/* Leaves slices out of a timeline that has too many for a page: the first and the last part stay in
 * full, and between them neighbours on a lane are merged. Not here: sums, which are those of all
 * slices (shares.h). Next: thin.c. */
#ifndef FERRY_TOOLS_THIN_H_
#define FERRY_TOOLS_THIN_H_

#include "tools/report/scope_times.h"

typedef struct thin {
    uint64_t before;            /* slices that there were */
    uint64_t from_ns, until_ns; /* slices that begin there are merged; equal: none is */
} thin_t;

/* Changes the slices and the arrows' numbers; arrows to merged slices are removed. About `most`
 * slices stay. The parts in full end and begin with a whole step where one fits. */
thin_t thin_slices(slices_t *slices, const scope_times_t *times, size_t most);

#endif
