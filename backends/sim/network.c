/* The table of networks and their names; see network.h. */
#include "backends/sim/network.h"

#include <stdio.h>
#include <string.h>

#define GIGA 1000000000ull

/* Bandwidths are line rates. Latencies are chosen within what collective libraries need for a step
 * (a message and the kernel that adds): no vendor publishes them. */
static const fy__sim_network_t networks[] = {
    /* 25 Gbit/s Ethernet, one adapter a node, TCP */
    { .name = "eth25", .latency_ns = 20000, .bytes_per_s = 3125000000, .is_shared = true },
    /* NVIDIA ConnectX-7 NDR InfiniBand: 400 Gbit/s; one adapter a device, as in a DGX H100 */
    { .name = "ib400", .latency_ns = 5000, .bytes_per_s = 50000000000 },
    /* NVLink of an H100 and H200, datasheet: 900 GB/s, both directions together */
    { .name = "nvlink", .latency_ns = 2000, .bytes_per_s = 450000000000 },
};

/* ---- names ---- */

typedef struct unit {
    const char *text;
    uint64_t factor;
} unit_t;

/* Digits and one of the units; returns what is behind, or NULL. */
static const char *read_quantity(const char *text, const unit_t *units, size_t count, uint64_t most,
                                 uint64_t *out_value)
{
    uint64_t number = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9'; at++) {
        number = number * 10 + (uint64_t)(*at - '0');
        if (number > most) return NULL;
    }
    for (size_t i = 0; i < count && at > text; i++) {
        const size_t length = strlen(units[i].text);
        if (strncmp(at, units[i].text, length) != 0) continue;
        if (!number || number > most / units[i].factor) return NULL;
        *out_value = number * units[i].factor;
        return at + length;
    }
    return NULL;
}

bool fy__sim_network_parse(const char *text, fy__sim_network_t *out_network)
{
    static const unit_t times[] = { { "ns", 1 }, { "us", 1000 }, { "ms", 1000000 } },
                        rates[] = { { "MB/s", 1000000 }, { "GB/s", GIGA } };
    for (size_t i = 0; i < sizeof networks / sizeof *networks; i++)
        if (strcmp(text, networks[i].name) == 0) {
            *out_network = networks[i];
            return true;
        }
    fy__sim_network_t own = { .is_shared = false };
    const char *at =
        read_quantity(text, times, sizeof times / sizeof *times, GIGA, &own.latency_ns);
    if (!at || *at != ':') return false;
    at = read_quantity(at + 1, rates, sizeof rates / sizeof *rates, 1000000 * GIGA,
                       &own.bytes_per_s);
    if (!at || *at || strlen(text) >= sizeof own.name) return false;
    snprintf(own.name, sizeof own.name, "%s", text);
    *out_network = own;
    return true;
}
