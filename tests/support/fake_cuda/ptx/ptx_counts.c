/* Counts the 32-byte sectors of global memory that an access of a warp touches, and the passes that
 * an access to shared memory takes: a bank has four bytes, and gives one of its words in a pass.
 * Source: "CUDA C++ Best Practices Guide", 10.2. */
#include "tests/support/fake_cuda/ptx/machine.h"

enum { SECTOR = 32, BANKS = 32, WORD = 4 };

/* An access is aligned and has at most 16 bytes: it is in one sector. */
static uint32_t count_sectors(const uint64_t *addresses, int64_t offset, uint32_t mask)
{
    uint64_t seen[PTX_LANES];
    uint32_t n = 0;
    for (int l = 0; l < PTX_LANES; l++) {
        if ((mask >> l & 1) == 0) continue;
        const uint64_t sector = (addresses[l] + (uint64_t)offset) / SECTOR;
        uint32_t k = n;
        while (k > 0 && seen[k - 1] != sector) k--;
        if (k == 0) seen[n++] = sector;
    }
    return n;
}

/* Lanes are served together as long as they read 128 bytes at most. */
static uint32_t count_conflicts(const uint64_t *addresses, int64_t offset, uint32_t mask,
                                uint32_t nbytes)
{
    const int together = nbytes <= WORD ? PTX_LANES : PTX_LANES * WORD / (int)nbytes;
    uint32_t conflicts = 0;
    for (int first = 0; first < PTX_LANES; first += together) {
        uint32_t words[PTX_LANES];
        uint32_t n = 0, most = 0, load[BANKS] = { 0 };
        for (int l = first; l < first + together; l++) {
            if ((mask >> l & 1) == 0) continue;
            for (uint32_t at = 0; at < nbytes; at += WORD) {
                const uint32_t word = (uint32_t)(addresses[l] + (uint64_t)offset + at) / WORD;
                uint32_t k = n;
                while (k > 0 && words[k - 1] != word) k--;
                if (k > 0) continue;
                words[n++] = word;
                if (++load[word % BANKS] > most) most = load[word % BANKS];
            }
        }
        conflicts += most > 1 ? most - 1 : 0;
    }
    return conflicts;
}

void ptx_count_access(ptx_counts_t *counts, unsigned space, const uint64_t *addresses,
                      int64_t offset, uint32_t mask, uint32_t nbytes, int is_write)
{
    if (space == PTX_SHARED)
        counts->bank_conflicts += count_conflicts(addresses, offset, mask, nbytes);
    else if (space == PTX_GLOBAL && is_write)
        counts->sectors_written += count_sectors(addresses, offset, mask);
    else if (space == PTX_GLOBAL)
        counts->sectors_read += count_sectors(addresses, offset, mask);
}
