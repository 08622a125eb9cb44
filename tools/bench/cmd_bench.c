/* `ferry bench`: picks the suite. Times are wall clock, medians of interleaved rounds; the worst
 * round is shown beside. */
#include "tools/cli/tool.h"

int cmd_bench(int argc, char **argv)
{
    static const command_t suites[] = {
        { "dispatch", "what a light request costs, beside the bare work", bench_dispatch },
        { "gemm", "matrix products through the dispatcher, beside bare oneDNN", bench_gemm },
        { "copy", "uploads and downloads by size, beside memcpy", bench_copy },
        { "alloc", "a block and its return, beside malloc, jemalloc and mimalloc", bench_alloc },
        { "train", "training steps, called and replayed as graphs", bench_train },
    };
    return run_command("ferry bench", "Micro benchmarks.", suites, sizeof suites / sizeof *suites,
                       argc, argv);
}
