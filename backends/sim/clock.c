/* The model clock. One host time for the process, because one host feeds all simulated devices;
 * engines belong to devices.
 * Determinism is promised for one submitting thread: with several, the order in which they get here
 * decides.
 * Locks: `fy__sim_clock_lock` guards every device's engines (a peer copy takes two devices at
 * once). The host time is an atomic that only grows. */
#include "backends/sim/clock.h"

#include <pthread.h>
#include <stdatomic.h>

#include "backends/builtin.h"

static _Atomic uint64_t host_now_ns;
pthread_mutex_t fy__sim_clock_lock = PTHREAD_MUTEX_INITIALIZER;

static uint64_t add(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }

static void raise_to(uint64_t ns)
{
    uint64_t now = atomic_load(&host_now_ns);
    while (now < ns && !atomic_compare_exchange_weak(&host_now_ns, &now, ns)) {}
}

uint64_t fy__sim_clock_now(void) { return atomic_load(&host_now_ns); }

void fy__sim_clock_advance(uint64_t ns)
{
    uint64_t now = atomic_load(&host_now_ns);
    while (!atomic_compare_exchange_weak(&host_now_ns, &now, add(now, ns))) {}
}

bool fy__sim_clock_wait(uint64_t until_ns, uint64_t timeout_ns, uint64_t wake_ns)
{
    uint64_t now = fy__sim_clock_now();
    if (until_ns <= now) return true;
    if (until_ns - now > timeout_ns) {
        fy__sim_clock_advance(timeout_ns);
        return false;
    }
    raise_to(add(until_ns, wake_ns));
    return true;
}

fy__sim_span_t fy__sim_clock_submit(uint64_t submit_ns, uint64_t ready_ns, int nplaces,
                                    const fy__sim_place_t *places, uint64_t duration_ns)
{
    pthread_mutex_lock(&fy__sim_clock_lock);
    fy__sim_clock_advance(submit_ns);
    fy__sim_span_t span = { .start_ns = fy__sim_clock_now() };
    if (span.start_ns < ready_ns) span.start_ns = ready_ns;
    for (int i = 0; i < nplaces; i++) {
        uint64_t free_ns = places[i].engines->free_ns[places[i].engine];
        if (span.start_ns < free_ns) span.start_ns = free_ns;
    }
    span.end_ns = add(span.start_ns, duration_ns);
    for (int i = 0; i < nplaces; i++) {
        fy__sim_engines_t *engines = places[i].engines;
        engines->free_ns[places[i].engine] = span.end_ns;
        engines->busy_ns[places[i].engine] = add(engines->busy_ns[places[i].engine], duration_ns);
    }
    pthread_mutex_unlock(&fy__sim_clock_lock);
    return span;
}

void fy__sim_clock_busy(const fy__sim_engines_t *engines,
                        uint64_t out_busy_ns[FY__SIM_ENGINE_COUNT], uint64_t *out_idle_ns)
{
    *out_idle_ns = 0;
    pthread_mutex_lock(&fy__sim_clock_lock);
    for (int i = 0; i < FY__SIM_ENGINE_COUNT; i++) {
        out_busy_ns[i] = engines->busy_ns[i];
        if (engines->free_ns[i] > *out_idle_ns) *out_idle_ns = engines->free_ns[i];
    }
    pthread_mutex_unlock(&fy__sim_clock_lock);
}
