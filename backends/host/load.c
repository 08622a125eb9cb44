/* See load.h. The fields of /proc/loadavg: proc(5). */
#include "backends/host/load.h"

#include <stdlib.h>

#include "runtime/base/c_locale.h"

int fy__load_parse(const char *line, fy__load_t *out_load)
{
    char *end;
    const double average = fy__strtod(line, &end);
    if (end == line || average < 0) return 0;
    for (int skipped = 0; skipped < 2; skipped++) { /* the averages over five and fifteen minutes */
        const char *at = end;
        (void)fy__strtod(at, &end);
        if (end == at) return 0;
    }
    const char *at = end;
    const long running = strtol(at, &end, 10);
    if (end == at || *end != '/' || running < 0 || running > 1 << 20) return 0;
    *out_load = (fy__load_t){ running > 0 ? (int)running - 1 : 0, average };
    return 1;
}

int fy__load_is_high(const fy__load_t *load, int threads, int processors)
{
    if (threads < 2) return 0;
    const int lately = load->average < 1e6 ? (int)load->average : 1000000,
              others = load->others > lately ? load->others : lately;
    return others + threads > processors;
}
