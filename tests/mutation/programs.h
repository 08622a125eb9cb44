/* The programs, for their table (programs.c). */
#ifndef FERRY_TESTS_MUTATION_PROGRAMS_H_
#define FERRY_TESTS_MUTATION_PROGRAMS_H_

#include "tests/mutation/mutation.h"

typedef void mu_body_t(mu_run_t *run);

/* programs_streams.c */
mu_body_t mu_ping_pong, mu_readers, mu_reuse, mu_neighbours, mu_workspace, mu_native,
    mu_stream_waits, mu_closing_streams;
/* programs_memory.c */
mu_body_t mu_handover, mu_joined, mu_split, mu_stretch, mu_many;
/* programs_transfers.c */
mu_body_t mu_borrow, mu_ring, mu_views, mu_pinned_blocks, mu_into, mu_files, mu_polls, mu_tries,
    mu_prefetch, mu_two_devices, mu_collect, mu_peers;
/* programs_queue.c */
mu_body_t mu_queue;
/* programs_graphs.c */
mu_body_t mu_replays, mu_graph_memory, mu_graph_inherits, mu_graph_gone;
/* programs_lifetimes.c */
mu_body_t mu_faults, mu_failing_copies, mu_deleters, mu_pins, mu_closing_device, mu_last_deleter;

#endif
