/* State of the machine that times depend on. Next: machine.c. */
#ifndef FERRY_TOOLS_MACHINE_H_
#define FERRY_TOOLS_MACHINE_H_

#include "tools/cli/json.h"

typedef struct machine {
    int cores;         /* online */
    double load;       /* runnable processes, mean of the last minute; NaN: not known */
    char governor[32]; /* of the first core's frequency; empty: not known */
} machine_t;

void machine_read(machine_t *out);
/* "2 cores, load 0.52, governor performance" */
void machine_print(const machine_t *machine, FILE *file);
/* The object "machine". */
void machine_json(const machine_t *machine, json_t *json);

#endif
