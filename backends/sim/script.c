/* Reading fault scripts, and counting; see script.h. */
#include "backends/sim/script.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backends/sim/sim.h"

static const char *const words[FY__SIM_FAULT_KINDS] = { "alloc", "pin",    "stream", "event",
                                                        "copy",  "launch", "lost",   "slow" };

static bool read_number(const char **text, uint64_t *out_number)
{
    char *end;
    errno = 0;
    if (!isdigit((unsigned char)**text)) return false;
    *out_number = strtoull(*text, &end, 10);
    *text = end;
    return errno == 0;
}

/* "2ms" */
static bool read_duration(const char **text, uint64_t *out_ns)
{
    static const struct {
        const char *unit;
        uint64_t ns;
    } units[] = { { "ns", 1 }, { "us", 1000 }, { "ms", 1000000 }, { "s", 1000000000 } };
    uint64_t number;
    if (!read_number(text, &number)) return false;
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        size_t n = strlen(units[i].unit);
        if (strncmp(*text, units[i].unit, n) != 0 || number > UINT64_MAX / units[i].ns) continue;
        *text += n;
        *out_ns = number * units[i].ns;
        return true;
    }
    return false;
}

static bool read_item(const char **text, fy__sim_fault_t *out_item)
{
    for (int kind = 0; kind < FY__SIM_FAULT_KINDS; kind++) {
        size_t n = strlen(words[kind]);
        if (strncmp(*text, words[kind], n) != 0 || (*text)[n] != '@') continue;
        *text += n + 1;
        *out_item = (fy__sim_fault_t){ .kind = (fy__sim_fault_kind_t)kind };
        if (!read_number(text, &out_item->nth) || out_item->nth == 0) return false;
        out_item->for_ever = **text == '*';
        *text += out_item->for_ever;
        if (kind != FY__SIM_FAULT_SLOW) return true;
        if (**text != ':') return false;
        (*text)++;
        return read_duration(text, &out_item->slow_ns);
    }
    return false;
}

fy_status_t fy__sim_script_parse(const char *name, const char *text, fy__sim_script_t *out_script)
{
    *out_script = (fy__sim_script_t){ 0 };
    while (*text) {
        const char *item = text;
        if (out_script->nitems == FY__SIM_SCRIPT_ITEMS)
            return FY__SIM_FAIL(FY_STATUS_INVALID_ARGUMENT, "%s: faults: more than %d items", name,
                                FY__SIM_SCRIPT_ITEMS);
        if (!read_item(&text, &out_script->items[out_script->nitems]) ||
            (*text && (*text != '+' || !text[1])))
            return FY__SIM_FAIL(FY_STATUS_INVALID_ARGUMENT,
                                "%s: faults: '%.*s' is no item\n  ITEM[+ITEM...], each alloc@N, "
                                "pin@N, stream@N, event@N, copy@N, "
                                "launch@N, lost@N or slow@N:DURATION "
                                "(ns, us, ms, s), N from 1; N* is from the N-th on",
                                name, (int)strcspn(item, "+"), item);
        out_script->nitems++;
        text += *text == '+';
    }
    return FY_STATUS_OK;
}

bool fy__sim_script_has(const fy__sim_script_t *script, fy__sim_fault_kind_t kind)
{
    for (size_t i = 0; i < script->nitems; i++)
        if (script->items[i].kind == kind) return true;
    return false;
}

uint64_t fy__sim_script_next(fy__sim_script_t *script, fy__sim_fault_kind_t kind,
                             uint64_t *out_slow_ns)
{
    uint64_t n = ++script->counts[kind], slow_ns = 0;
    bool strikes = false;
    for (size_t i = 0; i < script->nitems; i++) {
        const fy__sim_fault_t *item = &script->items[i];
        if (item->kind != kind || !(item->nth == n || (item->for_ever && item->nth < n))) continue;
        strikes = true;
        slow_ns = slow_ns > UINT64_MAX - item->slow_ns ? UINT64_MAX : slow_ns + item->slow_ns;
    }
    if (out_slow_ns) *out_slow_ns = slow_ns;
    return strikes ? n : 0;
}

fy_status_t fy__sim_set_faults(fy__sim_device_t *dev, const char *text)
{
    fy__sim_script_t script;
    FY_TRY(fy__sim_script_parse(dev->name, text, &script));
    pthread_mutex_lock(&dev->script_lock);
    dev->script = script;
    pthread_mutex_unlock(&dev->script_lock);
    atomic_store(&dev->has_script, script.nitems > 0);
    return FY_STATUS_OK;
}
