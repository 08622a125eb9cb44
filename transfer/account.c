/* Writing a transfer down. */
#include "transfer/account.h"

#include "runtime/guard.h"

const char *fy_path_name(fy_path_t path)
{
    static const char *const names[] = {
#define X(name, text) #text,
        FY_PATH_LIST(X)
#undef X
    };
    return (unsigned)path < FY_PATH_COUNT ? names[path] : "?";
}

void fy__transfer_note(fy__thread_t *thread, const fy__transfer_record_t *record)
{
    fy__traffic_counters_t *traffic = &thread->node->traffic[record->direction];
    fy__count(&traffic->count, 1);
    fy__count(&traffic->nbytes, record->nbytes);
    fy__count(&traffic->by_path[record->path], 1);
    if (record->blocked_ns) fy__count(&traffic->blocked_ns, record->blocked_ns);
    fy__guard_charge_transfer(thread, record->direction, record->nbytes);
}
