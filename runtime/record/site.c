/* Where Ferry's code is: the executable segment that has this file's functions. */
#include "runtime/record/site.h"

#include <link.h>
#include <stddef.h>

_Atomic uintptr_t fy__site_low, fy__site_high;

static int find(struct dl_phdr_info *module, size_t size, void *user)
{
    const uintptr_t here = (uintptr_t)fy__site_begin;
    (void)size;
    (void)user;
    for (int i = 0; i < module->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &module->dlpi_phdr[i];
        const uintptr_t low = module->dlpi_addr + segment->p_vaddr;
        if (segment->p_type != PT_LOAD || !(segment->p_flags & PF_X) || here < low ||
            here - low >= segment->p_memsz)
            continue;
        if (*module->dlpi_name) { /* not the program */
            atomic_store_explicit(&fy__site_low, low, memory_order_relaxed);
            atomic_store_explicit(&fy__site_high, low + segment->p_memsz, memory_order_release);
        }
        return 1;
    }
    return 0;
}

void fy__site_begin(void) { (void)dl_iterate_phdr(find, NULL); }
