/* Fault flags of requests, and poison records. Only ops that can fault, and copies on devices whose
 * copies can fail, call this. */
#include "runtime/order/fault.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/c_locale.h"
#include "runtime/base/fail.h"
#include "runtime/device/device.h"
#include "runtime/order/stream.h"
#include "runtime/record/event.h"
#include "runtime/record/notes.h"
#include "runtime/thread/guard.h"

/* ---- poison records ---- */

enum { RECORDS = 256 };
pthread_mutex_t fy__poison_lock = PTHREAD_MUTEX_INITIALIZER; /* guards the two below */
static uint32_t nrecords;
static struct {
    fy_status_t status;
    char text[320];
} records[RECORDS];

/* A record's number contains its status, so that the status of an overwritten record is still
 * known. */
uint32_t fy__poison_record(fy_status_t status, const char *format, ...)
{
    va_list args;
    pthread_mutex_lock(&fy__poison_lock);
    /* number 0 is of FY__POISON_UNPLAYED and _FORGOTTEN */
    if (!(++nrecords & 0xFFFFFFu)) nrecords++;
    const uint32_t number = nrecords & 0xFFFFFFu;
    records[number % RECORDS].status = status;
    va_start(args, format);
    fy__vsnprintf(records[number % RECORDS].text, sizeof records[0].text, format, args);
    va_end(args);
    FY__EVENT(fy__event_fault(status, records[number % RECORDS].text));
    fy__note(status, records[number % RECORDS].text);
    pthread_mutex_unlock(&fy__poison_lock);
    return (uint32_t)status << 24 | number;
}

uint32_t fy__poison_kernel(const char *op, fy_status_t status, const char *words)
{
    return fy__poison_record(FY_STATUS_KERNEL_FAILED, "%s: its kernel failed with %s: %s", op,
                             fy_status_name(status), words);
}

uint32_t fy__poison_flag(uint32_t flag, fy__fault_cause_t cause)
{
    if (flag >> 24 == FY_STATUS_KERNEL_FAILED) return flag;
    if (cause.limit == FY__FAULT_OF_COPY)
        return fy__poison_record(FY_STATUS_IO, "%s: the copy failed and moved nothing", cause.op);
    if (cause.limit < 0)
        return fy__poison_record(FY_STATUS_BAD_VALUE,
                                 "%s: the data has a value that the op cannot process", cause.op);
    return fy__poison_record(FY_STATUS_BAD_VALUE,
                             "%s: an index was not in 0 .. %lld; check the indices", cause.op,
                             (long long)cause.limit - 1);
}

fy_status_t fy__poison_fail(uint32_t record, const char *what)
{
    char text[sizeof records[0].text] = "an earlier request that these bytes depend on failed";
    const fy_status_t status = (fy_status_t)(record >> 24);
    if (record == FY__POISON_UNPLAYED)
        return fy_error_set(status, __FILE__, __LINE__,
                            "%s: these bytes come from a graph that was recorded and not replayed, "
                            "so nothing has computed them\n"
                            "  Replay the graph first: fy_graph_replay",
                            what);
    if (record == FY__POISON_EXTERNAL)
        return fy_error_set(status, __FILE__, __LINE__,
                            "%s: external work that is not finished writes these bytes\n  Wait for "
                            "its ticket first: fy_ticket_wait",
                            what);
    if (record == FY__POISON_FORGOTTEN)
        return fy_error_set(
            status, __FILE__, __LINE__,
            "%s: a request that this depends on may have failed: %d later requests of this device "
            "have failed, and\n"
            "  Ferry remembers no earlier failure. Wait for results or poll tickets more often",
            what, FY__FAULT_MEMORY);
    pthread_mutex_lock(&fy__poison_lock);
    if ((nrecords & 0xFFFFFFu) - (record & 0xFFFFFFu) < RECORDS)
        memcpy(text, records[(record & 0xFFFFFFu) % RECORDS].text, sizeof text);
    pthread_mutex_unlock(&fy__poison_lock);
    return fy_error_set(status, __FILE__, __LINE__, "%s: %s", what, text);
}

/* ---- requests; the device's fault lock is held by the static ones ---- */

/* A failure at `point` is no longer stored: earlier points of its stream may have failed, too. */
static void forget_to(fy__point_t point)
{
    fy_stream_t *stream = fy__stream_at(FY__POINT_STREAM(point));
    if (stream && atomic_load(&stream->forgotten) < FY__POINT_SEQ(point))
        atomic_store(&stream->forgotten, FY__POINT_SEQ(point));
}

/* Stores a failure. The entry that it overwrites is no longer known. */
static uint32_t note(fy__faults_t *faults, uint64_t request, fy__point_t point, uint32_t record)
{
    const uint32_t i = faults->nfaulted++ % FY__FAULT_MEMORY;
    if (faults->faulted[i].request > faults->forgotten)
        faults->forgotten = faults->faulted[i].request;
    forget_to(faults->faulted[i].point);
    for (int k = 0; k < FY__FAULT_ALSO; k++) forget_to(faults->faulted[i].also[k]);
    faults->faulted[i].request = request;
    faults->faulted[i].point = point;
    faults->faulted[i].record = record;
    memset(faults->faulted[i].also, 0, sizeof faults->faulted[i].also);
    return i;
}

/* Reads the flag of a request that is done. */
static void settle(fy__faults_t *faults, uint64_t request)
{
    const uint32_t slot = (uint32_t)(request % FY__FAULT_WINDOW);
    if (faults->resolved[slot]) return;
    faults->resolved[slot] = true;
    faults->records[slot] = 0;
    const uint32_t flag = __atomic_load_n(&faults->words[slot], __ATOMIC_ACQUIRE);
    if (!flag) return;
    faults->records[slot] = fy__poison_flag(flag, faults->causes[slot]);
    const uint32_t i = note(faults, request, faults->points[slot], faults->records[slot]);
    memcpy(faults->faulted[i].also, faults->also[slot], sizeof faults->also[slot]);
}

/* The record of a resolved request: 0 if it did not fail, FY__POISON_FORGOTTEN if that is no longer
 * known. */
static uint32_t record_of(const fy__faults_t *faults, uint64_t request)
{
    if (faults->next - request < FY__FAULT_WINDOW)
        return faults->records[request % FY__FAULT_WINDOW];
    for (uint32_t i = 0; i < FY__FAULT_MEMORY && i < faults->nfaulted; i++)
        if (faults->faulted[i].request == request) return faults->faulted[i].record;
    return request <= faults->forgotten ? FY__POISON_FORGOTTEN : 0;
}

/* Waits until the request that last used `slot` is done. Releases the lock for the wait, which may
 * submit a request that needs the lock, and takes it again. */
static fy_status_t empty_slot(fy__faults_t *faults, uint32_t slot)
{
    const fy__point_t point = faults->points[slot];
    fy__thread_t *thread = fy__thread();
    const uint64_t start_ns = fy__now_ns();
    const bool reached = fy__point_reached(point);
    fy__unlock(&faults->lock);
    const fy_status_t status = fy__point_wait(point, FY_FOREVER, FY__WAIT_FAULT_WINDOW);
    if (!reached && thread) fy__throttled(thread, "fault_window", start_ns);
    fy__lock(&faults->lock);
    return status;
}

/* Another thread is submitting the request that has the slot: yields to it. false: that has taken
 * more than a second. */
static bool let_submit(fy__faults_t *faults, uint64_t *start_ns)
{
    enum { LONGEST_NS = 1000000000 };
    if (!*start_ns) *start_ns = fy__now_ns();
    if (fy__now_ns() - *start_ns > LONGEST_NS) return false;
    fy__unlock(&faults->lock);
    sched_yield();
    fy__lock(&faults->lock);
    return true;
}

/* Takes a slot. *out_busy: took none, because other threads are submitting in all slots and `waits`
 * is false. */
static fy_status_t take(fy_device_t *device, fy__fault_cause_t cause, bool waits,
                        uint64_t *out_request, uint32_t **out_word, bool *out_busy)
{
    fy__faults_t *faults = &device->faults;
    fy_status_t status = FY_STATUS_OK;
    uint64_t start_ns = 0;
    *out_busy = false;
    fy__lock(&faults->lock);
    uint64_t request = faults->next + 1;
    while (request > FY__FAULT_WINDOW && !faults->resolved[request % FY__FAULT_WINDOW]) {
        if (faults->points[request % FY__FAULT_WINDOW] == UINT64_MAX) {
            *out_busy = !waits;
            if (*out_busy) break;
            if (!let_submit(faults, &start_ns))
                status = FY_FAIL(BUSY,
                                 "%s: %d such requests have been on their way to %s for a second",
                                 cause.op, FY__FAULT_WINDOW, device->spec);
        } else {
            status = empty_slot(faults, (uint32_t)(request % FY__FAULT_WINDOW));
            if (status == FY_STATUS_OK && request == faults->next + 1)
                settle(faults, request - FY__FAULT_WINDOW);
        }
        if (status != FY_STATUS_OK) break;
        request = faults->next + 1; /* another thread may have taken it first */
    }
    const uint32_t slot = (uint32_t)(request % FY__FAULT_WINDOW);
    if (status == FY_STATUS_OK && !*out_busy) {
        faults->next = request;
        __atomic_store_n(&faults->words[slot], 0, __ATOMIC_RELEASE);
        faults->points[slot] = UINT64_MAX;
        memset(faults->also[slot], 0, sizeof faults->also[slot]);
        faults->resolved[slot] = false;
        faults->records[slot] = 0;
        faults->causes[slot] = cause;
        *out_request = request;
        *out_word = &faults->words[slot];
    }
    fy__unlock(&faults->lock);
    return status;
}

fy_status_t fy__fault_begin(fy_device_t *device, fy__fault_cause_t cause, uint64_t *out_request,
                            uint32_t **out_word)
{
    bool busy;
    return take(device, cause, true, out_request, out_word, &busy);
}

/* A thread that holds some slots does not wait for threads that hold the others: it returns all,
 * and starts again when one is free. */
fy_status_t fy__fault_begin_many(fy_device_t *device, uint32_t count,
                                 const fy__fault_cause_t *causes, uint64_t *out_requests,
                                 uint32_t **out_words)
{
    uint32_t taken = 0;
    fy_status_t status = FY_STATUS_OK;
    while (taken < count && status == FY_STATUS_OK) {
        bool busy;
        status =
            take(device, causes[taken], taken == 0, &out_requests[taken], &out_words[taken], &busy);
        if (status == FY_STATUS_OK && !busy)
            taken++;
        else
            while (taken) fy__fault_end(device, out_requests[--taken], 0);
    }
    return status;
}

void fy__fault_end(fy_device_t *device, uint64_t request, fy__point_t point)
{
    fy__faults_t *faults = &device->faults;
    const uint32_t slot = (uint32_t)(request % FY__FAULT_WINDOW);
    fy__lock(&faults->lock);
    faults->points[slot] = point;
    if (!point) faults->resolved[slot] = true; /* never submitted: no fault */
    fy__unlock(&faults->lock);
}

/* Resolved requests are found among the last failures, by number, or by record if the number is no
 * longer stored. */
void fy__fault_belongs(fy_device_t *device, const fy__taint_t *requests, fy__point_t point,
                       int which)
{
    fy__faults_t *faults = &device->faults;
    if (!fy__taint_any(requests)) return;
    fy__lock(&faults->lock);
    for (uint64_t i = 0; i < FY__FAULT_WINDOW; i++) {
        const uint64_t request = requests->first + i;
        if (requests->mask >> i & 1 && faults->next - request < FY__FAULT_WINDOW)
            faults->also[request % FY__FAULT_WINDOW][which] = point;
    }
    for (uint32_t i = 0; i < FY__FAULT_MEMORY && i < faults->nfaulted; i++) {
        const uint64_t back = faults->faulted[i].request - requests->first;
        if ((faults->faulted[i].request && back < FY__FAULT_WINDOW && requests->mask >> back & 1) ||
            (requests->poison && faults->faulted[i].record == requests->poison))
            faults->faulted[i].also[which] = point;
    }
    fy__unlock(&faults->lock);
}

static bool is_at(fy__point_t point, fy__point_t own, const fy__point_t *also)
{
    bool found = own == point;
    for (int i = 0; i < FY__FAULT_ALSO; i++) found |= also[i] == point;
    return found;
}

uint32_t fy__fault_at(fy_device_t *device, fy__point_t point)
{
    fy__faults_t *faults = &device->faults;
    uint32_t record = 0;
    fy__lock(&faults->lock);
    /* Resolved earlier: another request may have reused its slot. */
    for (uint32_t i = 0; i < FY__FAULT_MEMORY && i < faults->nfaulted && !record; i++)
        if (is_at(point, faults->faulted[i].point, faults->faulted[i].also))
            record = faults->faulted[i].record;
    for (uint32_t back = 0; back < FY__FAULT_WINDOW && back < faults->next && !record; back++) {
        const uint64_t request = faults->next - back;
        const uint32_t slot = (uint32_t)(request % FY__FAULT_WINDOW);
        if (!is_at(point, faults->points[slot], faults->also[slot])) continue;
        settle(faults, request);
        record = faults->records[slot];
    }
    fy__unlock(&faults->lock);
    const fy_stream_t *stream = record ? NULL : fy__stream_at(FY__POINT_STREAM(point));
    return stream && FY__POINT_SEQ(point) <= atomic_load(&stream->forgotten) ? FY__POISON_FORGOTTEN
                                                                             : record;
}

void fy__fault_keep(fy_device_t *device, fy__point_t point, uint32_t record)
{
    fy__lock(&device->faults.lock);
    note(&device->faults, 0, point, record);
    fy__unlock(&device->faults.lock);
}

fy_status_t fy__faults_take(fy_device_t *device, const char *what)
{
    fy__faults_t *faults = &device->faults;
    uint32_t record = 0;
    fy__lock(&faults->lock);
    for (uint64_t request = faults->next > FY__FAULT_WINDOW ? faults->next - FY__FAULT_WINDOW + 1
                                                            : 1;
         request <= faults->next; request++) {
        const fy__point_t point = faults->points[request % FY__FAULT_WINDOW];
        /* other threads keep submitting */
        if (point != UINT64_MAX && fy__point_reached(point)) settle(faults, request);
    }
    if (faults->ntaken + FY__FAULT_MEMORY < faults->nfaulted)
        faults->ntaken = faults->nfaulted - FY__FAULT_MEMORY;
    if (faults->ntaken < faults->nfaulted)
        record = faults->faulted[faults->ntaken % FY__FAULT_MEMORY].record;
    faults->ntaken = faults->nfaulted;
    fy__unlock(&faults->lock);
    return record ? fy__poison_fail(record, what) : FY_STATUS_OK;
}

/* Moves `taint`'s window up to `first`. Requests that fall out are a window old: they are
 * resolved. */
static void rebase(fy__faults_t *faults, fy__taint_t *taint, uint64_t first)
{
    for (; taint->mask && taint->first < first; taint->first++, taint->mask >>= 1) {
        if ((taint->mask & 1) && !taint->poison) taint->poison = record_of(faults, taint->first);
    }
    if (taint->first < first) taint->first = first;
}

static void join(fy__faults_t *faults, fy__taint_t *dst, fy__taint_t src)
{
    if (!dst->poison) dst->poison = src.poison;
    if (!src.mask) return;
    if (!dst->mask) {
        dst->first = src.first;
        dst->mask = src.mask;
        return;
    }
    /* One window for both. It starts at the earlier request, unless the later one's last bit would
     * not fit. Requests that drop out then are a window older than an existing request, so they are
     * resolved. */
    fy__taint_t early = dst->first < src.first ? *dst : src,
                late = dst->first < src.first ? src : *dst;
    const uint64_t last = late.first + 63 - (uint64_t)__builtin_clzll(late.mask);
    if (last - early.first >= FY__FAULT_WINDOW) rebase(faults, &early, last - FY__FAULT_WINDOW + 1);
    if (late.first < early.first) rebase(faults, &late, early.first);
    if (!dst->poison) dst->poison = early.poison ? early.poison : late.poison;
    dst->first = early.first;
    dst->mask = early.mask | late.mask << (late.first - early.first);
}

void fy__taint_join(fy_device_t *device, fy__taint_t *dst, const fy__taint_t *src)
{
    fy__lock(&device->faults.lock);
    join(&device->faults, dst, *src);
    fy__unlock(&device->faults.lock);
}

void fy__taint_add(fy_device_t *device, fy__taint_t *dst, uint64_t request)
{
    const fy__taint_t one = { .first = request, .mask = 1 };
    fy__taint_join(device, dst, &one);
}

fy_status_t fy__taint_resolve(fy_device_t *device, fy__taint_t *taint, const char *what)
{
    fy__faults_t *faults = &device->faults;
    if (!fy__taint_any(taint)) return FY_STATUS_OK;
    fy__lock(&faults->lock);
    for (; taint->mask && !taint->poison; taint->first++, taint->mask >>= 1) {
        if (!(taint->mask & 1)) continue;
        if (faults->next - taint->first < FY__FAULT_WINDOW) settle(faults, taint->first);
        taint->poison = record_of(faults, taint->first);
    }
    fy__unlock(&faults->lock);
    return taint->poison ? fy__poison_fail(taint->poison, what) : FY_STATUS_OK;
}
