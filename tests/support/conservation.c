/* Both sides' totals and their comparison; see conservation.h. */
#include "tests/support/conservation.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/executed.h"
#include "tests/support/fake_cuda/fake_cuda.h"
#include "tests/support/harness.h"

typedef uint64_t (*counter_fn)(int kind);

/* The fake driver's counter, if the driver in use is the fake one and was loaded. */
static counter_fn fake_counter(const char *name)
{
    const char *path = getenv("FERRY_CUDA_DRIVER");
    void *driver = path && *path ? dlopen(path, RTLD_LAZY | RTLD_NOLOAD) : NULL;
    counter_fn counter = NULL;
    if (!driver) return NULL;
    *(void **)&counter = dlsym(driver, name);
    dlclose(driver);
    return counter;
}

bool ts_conservation_knows(const char *spec)
{
    return strncmp(spec, "host", 4) == 0 || strncmp(spec, "sim", 3) == 0 ||
           fake_counter("fake_cuda_copies") != NULL;
}

static void read_now(ts_conservation_t *out)
{
    static const fy_copy_kind_t kinds[TS_CONSERVED] = { FY_COPY_UPLOAD, FY_COPY_DOWNLOAD,
                                                        FY_COPY_PEER };
    static const int fake_kinds[TS_CONSERVED] = { FAKE_H2D, FAKE_D2H, FAKE_PEER };
    const fy_ledger_totals_t totals = ts_ledger(NULL);
    const fy_traffic_t *const traffic[TS_CONSERVED] = { &totals.upload, &totals.download,
                                                        &totals.peer };
    counter_fn fake_copies = fake_counter("fake_cuda_copies"),
               fake_bytes = fake_counter("fake_cuda_bytes");
    fy__executed_t executed;
    fy__executed_read(&executed);
    for (int i = 0; i < TS_CONSERVED; i++) {
        out->ledger_copies[i] = traffic[i]->copies;
        out->ledger_nbytes[i] = traffic[i]->wire_nbytes;
        out->executed_copies[i] = executed.copies[kinds[i]] + executed.failed_copies[kinds[i]];
        out->executed_nbytes[i] = executed.nbytes[kinds[i]] + executed.failed_nbytes[kinds[i]];
        if (fake_copies) out->executed_copies[i] += fake_copies(fake_kinds[i]);
        if (fake_bytes) out->executed_nbytes[i] += fake_bytes(fake_kinds[i]);
    }
}

void ts_conservation_begin(ts_conservation_t *out_before) { read_now(out_before); }

bool ts_conservation_end(const ts_conservation_t *before, const char *what)
{
    static const char *const names[TS_CONSERVED] = { "upload", "download", "peer" };
    ts_conservation_t after;
    bool holds = true;
    read_now(&after);
    for (int i = 0; i < TS_CONSERVED; i++) {
        const uint64_t ledger_copies = after.ledger_copies[i] - before->ledger_copies[i],
                       ledger_nbytes = after.ledger_nbytes[i] - before->ledger_nbytes[i],
                       executed_copies = after.executed_copies[i] - before->executed_copies[i],
                       executed_nbytes = after.executed_nbytes[i] - before->executed_nbytes[i];
        if (ledger_copies == executed_copies && ledger_nbytes == executed_nbytes) continue;
        print_error(
            "%s: %s: the ledger has %llu wire bytes in %llu copies, executors moved %llu in %llu\n",
            what, names[i], (unsigned long long)ledger_nbytes, (unsigned long long)ledger_copies,
            (unsigned long long)executed_nbytes, (unsigned long long)executed_copies);
        holds = false;
    }
    return holds;
}
