/* The table of programs. With little memory, blocks are reused soon; with a small ring, uploads
 * wait for it. */
#include "tests/mutation/programs.h"

#define PLENTY    "capacity=64MiB&pinned=1MiB"
#define TIGHT     "capacity=1MiB&limit=64KiB&pinned=64KiB"
#define ONE_BLOCK "capacity=1MiB&limit=40KiB&pinned=64KiB"

const mu_program_t mu_programs[] = {
    { "ping-pong", PLENTY, 1, mu_ping_pong },
    { "readers", PLENTY, 1, mu_readers },
    { "reuse", ONE_BLOCK, 1, mu_reuse },
    { "neighbours", TIGHT, 1, mu_neighbours },
    { "handover", ONE_BLOCK, 1, mu_handover },
    { "joined", ONE_BLOCK, 1, mu_joined },
    { "split", ONE_BLOCK, 1, mu_split },
    { "stretch", ONE_BLOCK, 1, mu_stretch },
    { "many", ONE_BLOCK, 1, mu_many },
    { "workspace", "capacity=64MiB&limit=112KiB&pinned=64KiB", 1, mu_workspace },
    { "native", PLENTY, 1, mu_native },
    { "stream-waits", PLENTY, 2, mu_stream_waits },
    { "closing-streams", PLENTY, 1, mu_closing_streams },
    { "borrow", PLENTY, 1, mu_borrow },
    { "ring", "capacity=64MiB&pinned=64KiB", 1, mu_ring },
    { "views", PLENTY, 1, mu_views },
    { "pinned-blocks", TIGHT, 1, mu_pinned_blocks },
    { "into", "capacity=64MiB&pinned=64KiB", 1, mu_into },
    { "files", "capacity=64MiB&pinned=64KiB", 1, mu_files },
    { "polls", PLENTY, 1, mu_polls },
    { "queue", PLENTY "&window=64", 1, mu_queue },
    { "tries", PLENTY, 1, mu_tries },
    { "two-devices", PLENTY, 2, mu_two_devices },
    { "collect", ONE_BLOCK, 1, mu_collect },
    { "peers", PLENTY, 2, mu_peers },
    { "replays", PLENTY, 1, mu_replays },
    { "graph-memory", ONE_BLOCK, 1, mu_graph_memory },
    { "prefetch", PLENTY, 1, mu_prefetch },
    { "faults", PLENTY, 1, mu_faults },
    { "failing-copies", PLENTY "&faults=copy@6+copy@11+copy@19", 1, mu_failing_copies },
    { "failing-jobs", PLENTY "&window=64&faults=copy@2+copy@9+copy@14", 1, mu_failing_copies },
    { "deleters", PLENTY, 1, mu_deleters },
    { "graph-inherits", ONE_BLOCK, 1, mu_graph_inherits },
    { "graph-gone", ONE_BLOCK, 1, mu_graph_gone },
    { "pins", "capacity=64MiB&pinned=16MiB", 1, mu_pins },
    { "last-deleter", PLENTY, 1, mu_last_deleter },
    { "closing-device", PLENTY, 1, mu_closing_device },
};
const size_t mu_program_count = sizeof mu_programs / sizeof *mu_programs;
