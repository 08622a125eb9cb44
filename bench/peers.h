// Shared by the programs that compare with libtorch: equal conditions for both sides, a clock,
// medians. Not here: the compared operations (peers_*.cpp).
#ifndef FERRY_BENCH_PEERS_H_
#define FERRY_BENCH_PEERS_H_

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <unistd.h>

#include <ferry/ferry.h>

namespace peers
{

// First of all in main. OpenBLAS takes some CPUs for others unless OPENBLAS_CORETYPE names one, and
// reads it when it loads: so the program
// starts again with it. Debian's libtorch runs on whatever BLAS is installed; beside the reference
// BLAS, several times slower, a comparison
// would say nothing, and the program ends with what to install.
inline void prepare(char **argv)
{
    if (!std::getenv("OPENBLAS_CORETYPE")) {
        setenv("OPENBLAS_CORETYPE", "SKYLAKEX", 1);
        execv("/proc/self/exe", argv);
    }
    Dl_info blas;
    char path[4096] = "";
    void *product = dlsym(RTLD_DEFAULT, "sgemm_");
    if (product && dladdr(product, &blas) && realpath(blas.dli_fname, path) &&
        std::strstr(path, "openblas"))
        return;
    std::fprintf(stderr,
                 "libtorch's products would run on %s, which is no OpenBLAS, and several times "
                 "slower: install libopenblas0-openmp\n",
                 path[0] ? path : "an unknown BLAS");
    std::exit(1);
}

// All of the machine's threads for both sides. libtorch's setting applies to this thread's OpenMP,
// so
// to Ferry and oneDNN too. (libtorch's default omits half of them where two share a core.)
// OMP_NUM_THREADS is obeyed.
inline int use_all_threads()
{
    const char *wanted = std::getenv("OMP_NUM_THREADS");
    const int threads = wanted ? std::atoi(wanted)
                               : static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
    at::set_num_threads(std::max(threads, 1));
    return at::get_num_threads();
}

inline void check(fy_status_t status)
{
    if (status == FY_STATUS_OK) return;
    std::fprintf(stderr, "%s: %s\n", fy_status_name(status), fy_error_get()->text);
    std::exit(1);
}

template <typename Work> double time_ns(const Work &work)
{
    const auto begin = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin)
        .count();
}

inline double median(std::vector<double> v)
{
    std::sort(v.begin(), v.end());
    return v.size() % 2 ? v[v.size() / 2] : 0.5 * (v[v.size() / 2 - 1] + v[v.size() / 2]);
}

inline double best(const std::vector<double> &v) { return *std::min_element(v.begin(), v.end()); }
inline double worst(const std::vector<double> &v) { return *std::max_element(v.begin(), v.end()); }

} // namespace peers

#endif
