/* For generators of programs: the smallest part of a failing program that still fails. A program is
 * at most 64 steps that do not depend on each other's presence: a step whose operands are missing
 * does nothing. */
#ifndef FERRY_TESTS_PROPERTY_SHRINK_H_
#define FERRY_TESTS_PROPERTY_SHRINK_H_

#include <stdbool.h>
#include <stdint.h>

/* Runs the steps whose bits are set in `kept`; true if it fails. */
typedef bool (*shrink_fails_fn)(void *user, uint64_t kept);

/* Leaves out halves, quarters, ..., pairs and single steps, until none can be left out (Zeller and
 * Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", 2002). */
static inline uint64_t shrink(shrink_fails_fn fails, void *user, int nsteps)
{
    uint64_t kept = nsteps == 64 ? UINT64_MAX : (1ull << nsteps) - 1, before;
    do {
        before = kept;
        for (int length = 32; length > 0; length /= 2)
            for (int first = 0; first < nsteps; first += length) {
                const uint64_t part = ((1ull << length) - 1) << first;
                if ((kept & part) && fails(user, kept & ~part)) kept &= ~part;
            }
        for (int i = 0; i < nsteps; i++) /* such as the begin and the end of a scope */
            for (int j = i + 1; j < nsteps; j++) {
                const uint64_t both = 1ull << i | 1ull << j;
                if ((kept & both) == both && fails(user, kept & ~both)) kept &= ~both;
            }
    } while (kept != before);
    return kept;
}

#endif
