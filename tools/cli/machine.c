/* Reads /proc and /sys; figures that they do not have are unknown. */
#include "tools/cli/tool.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool read_line(const char *path, char *text, size_t room)
{
    FILE *file = fopen(path, "re");
    const bool found = file && fgets(text, (int)room, file);
    if (file) fclose(file);
    if (found) text[strcspn(text, "\n")] = '\0';
    return found;
}

void machine_read(machine_t *out)
{
    char line[128], *end;
    *out = (machine_t){ .cores = (int)sysconf(_SC_NPROCESSORS_ONLN), .load = NAN };
    if (read_line("/proc/loadavg", line, sizeof line)) {
        const double load = strtod(line, &end);
        if (end != line) out->load = load;
    }
    if (!read_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", out->governor,
                   sizeof out->governor))
        out->governor[0] = '\0';
}

void machine_print(const machine_t *machine, FILE *file)
{
    fprintf(file, "%d cores", machine->cores);
    if (isfinite(machine->load)) fprintf(file, ", load %.2f", machine->load);
    fprintf(file, ", governor %s", *machine->governor ? machine->governor : "unknown");
}

void machine_json(const machine_t *machine, json_t *json)
{
    json_begin_object(json, "machine");
    json_int(json, "cores", machine->cores);
    json_real(json, "load_1min", machine->load);
    json_text(json, "governor", *machine->governor ? machine->governor : NULL);
    json_end(json);
}
