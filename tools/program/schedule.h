/* The requests of a program with what makes each one wait, and their execution on a model clock.
 * Built once from the recording; executed as often as needed, on any figures.
 * The host's steps are in the order of the recording: it works, waits for a request, submits one.
 * Requests wait for their engine, their stream and the requests whose bytes they need. Times in the
 * recording that the formulas explain are left to the formulas; the rest is constant host time.
 * Not here: figures (figures.h), sums of an execution (predict.h). Next: schedule.c,
 * schedule_run.c. */
#ifndef FERRY_TOOLS_SCHEDULE_H_
#define FERRY_TOOLS_SCHEDULE_H_

#include "tools/program/figures.h"
#include "tools/program/program.h"

typedef enum act_kind {
    ACT_HOST,   /* the host works for host_ns */
    ACT_STAGE,  /* the host copies nbytes into a staging buffer; before: as figures_staging_ns */
    ACT_WAIT,   /* the host waits for the act `awaited` */
    ACT_REQUEST /* the host submits a request */
} act_kind_t;

typedef struct act {
    uint8_t kind;     /* act_kind_t */
    uint8_t engine;   /* REQUEST: fy__sim_engine_t; a peer copy: FY__SIM_ENGINE_COUNT */
    uint8_t dtype;    /* REQUEST of an op: fy_dtype_t that sets the rate */
    bool is_pageable; /* a copy from or to memory that is not page-locked: holds the host */
    bool is_staged;   /* a copy out of a staging buffer */
    bool holds_host;  /* the host waits for its end */
    bool is_joined;   /* submitted together with the request before: costs the host nothing */
    uint32_t event;   /* of the program, to which it belongs */
    uint32_t device;  /* REQUEST; peer copy: the source */
    uint32_t other;   /* peer copy: the target */
    uint32_t nafter;  /* acts that must have ended first: schedule_t.after */
    uint32_t awaited; /* WAIT */
    size_t after;
    uint64_t host_ns; /* HOST */
    uint64_t flops, nbytes, before;
    double factor;     /* of a request's duration: 1, or what the formula does not explain */
    uint64_t delay_ns; /* of its start, which nothing explains */
} act_t;

typedef struct schedule {
    const program_t *program;
    act_t *acts;
    uint32_t *after;
    size_t nacts, nafter;
    uint32_t *acts_until;    /* by event: acts up to and with it */
    uint64_t unexplained_ns; /* sum of delay_ns */
} schedule_t;

/* By act: of a HOST, STAGE and WAIT the host's time, of a REQUEST its time on the device. `host`:
 * when the host was done with it. */
typedef struct act_times {
    uint64_t start_ns, end_ns, host_ns;
} act_times_t;

/* `machines`: figures of each device of the program, as recorded; borrowed for the call. Free
 * *out_schedule. Fails: INVALID_ARGUMENT (the program has no model times). */
fy_status_t schedule_build(const program_t *program, const figures_t *machines,
                           schedule_t *out_schedule);
/* out_times: one for each act; from 0. Returns the host's time at the end. */
uint64_t schedule_run(const schedule_t *schedule, const figures_t *machines,
                      act_times_t *out_times);
void schedule_free(schedule_t *schedule);
/* Of a request: on its engine, and of the host to submit it. */
uint64_t act_duration_ns(const act_t *act, const figures_t *machines);
uint64_t act_submit_ns(const act_t *act, const figures_t *machines);
/* Appends an act that comes after no other. */
act_t *schedule_add(schedule_t *schedule, const act_t *act);
/* One more act that `act`, of this schedule or new, comes after. */
void schedule_append_after(schedule_t *schedule, act_t *act, uint32_t awaited);

#endif
