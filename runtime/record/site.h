/* Call sites: the address in the program, or in a library on top of Ferry, from which a public
 * function was called. Found by frame pointers: Ferry's code has them (FERRY_CORE_FLAGS), its
 * callers need not. Not here: names (event_names.c). */
#ifndef FERRY_RUNTIME_SITE_H_
#define FERRY_RUNTIME_SITE_H_

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* Finds the range of Ferry's code in this process; before the first fy__site. In a program that
 * has Ferry's objects in itself the range stays empty: nothing tells its code from Ferry's. */
void fy__site_begin(void);

/* The code of libferry.so: [low, high). `high` is set last; it is 0 before. */
extern _Atomic uintptr_t fy__site_low, fy__site_high;

/* The return address of the outermost frame of Ferry above the caller's; NULL: unknown. Each frame
 * that it reads belongs to a function of the range, so it has a frame record (x86-64 and AArch64
 * have the same two words). */
static inline __attribute__((always_inline)) const void *fy__site(void)
{
#if defined __x86_64__ || defined __aarch64__
    enum { FRAMES_MOST = 64 };
    const uintptr_t *frame = __builtin_frame_address(0);
    const uintptr_t high = atomic_load_explicit(&fy__site_high, memory_order_acquire);
    const uintptr_t low = atomic_load_explicit(&fy__site_low, memory_order_relaxed);
    for (int i = 0; i < FRAMES_MOST && high; i++) {
        const uintptr_t address = frame[1];
        if (address < low || address >= high) return (const void *)address;
        frame = (const uintptr_t *)frame[0];
    }
#endif
    return NULL;
}

#endif
