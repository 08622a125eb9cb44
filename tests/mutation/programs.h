/* The programs, for their table (programs.c). */
#ifndef FERRY_TESTS_MUTATION_PROGRAMS_H_
#define FERRY_TESTS_MUTATION_PROGRAMS_H_

#include "tests/mutation/mutation.h"

/* programs_streams.c */
void mu_ping_pong(mu_run_t *run);
void mu_readers(mu_run_t *run);
void mu_reuse(mu_run_t *run);
void mu_neighbours(mu_run_t *run);
void mu_workspace(mu_run_t *run);
void mu_native(mu_run_t *run);
void mu_stream_waits(mu_run_t *run);
void mu_closing_streams(mu_run_t *run);
/* programs_memory.c */
void mu_handover(mu_run_t *run);
void mu_joined(mu_run_t *run);
void mu_split(mu_run_t *run);
void mu_stretch(mu_run_t *run);
void mu_many(mu_run_t *run);
/* programs_transfers.c */
void mu_borrow(mu_run_t *run);
void mu_ring(mu_run_t *run);
void mu_views(mu_run_t *run);
void mu_pinned_blocks(mu_run_t *run);
void mu_into(mu_run_t *run);
void mu_files(mu_run_t *run);
void mu_polls(mu_run_t *run);
void mu_tries(mu_run_t *run);
void mu_prefetch(mu_run_t *run);
void mu_two_devices(mu_run_t *run);
void mu_collect(mu_run_t *run);
void mu_peers(mu_run_t *run);
/* programs_queue.c */
void mu_queue(mu_run_t *run);
/* programs_graphs.c */
void mu_replays(mu_run_t *run);
void mu_graph_memory(mu_run_t *run);
void mu_graph_inherits(mu_run_t *run);
void mu_graph_gone(mu_run_t *run);
/* programs_lifetimes.c */
void mu_faults(mu_run_t *run);
void mu_failing_copies(mu_run_t *run);
void mu_deleters(mu_run_t *run);
void mu_pins(mu_run_t *run);
void mu_closing_device(mu_run_t *run);
void mu_last_deleter(mu_run_t *run);

#endif
