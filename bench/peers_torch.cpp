// Ferry beside libtorch and bare oneDNN, interleaved in one process: every round times every
// contestant once, so a busy machine hurts
// all alike. Medians and worst rounds are printed, and with --json one document.
// Not here: instruction counts (instructions.sh). Needs libtorch (Debian: libtorch-dev); nothing
// else of Ferry does.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <dlfcn.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <dnnl.h>

#include <ferry/ferry.h>

#include "bench/peers.h"

namespace
{

using peers::best, peers::check, peers::median, peers::worst;

struct Contestant {
    std::string name;
    std::function<void(long)> run; // does the work that many times
    std::vector<double> rounds;    // ns per call
    long iters = 1;
};

struct Contest {
    std::string op;
    std::vector<Contestant> contestants; // the first one is Ferry
};

double time_ns(const Contestant &c, long iters)
{
    return peers::time_ns([&] { c.run(iters); });
}

void measure(Contest &contest, int rounds, double round_ns)
{
    for (auto &c : contest.contestants) {
        c.run(1);
        while (time_ns(c, c.iters) < round_ns / 2) c.iters *= 2;
    }
    for (int r = 0; r < rounds; r++)
        for (auto &c : contest.contestants)
            c.rounds.push_back(time_ns(c, c.iters) / static_cast<double>(c.iters));
}

fy_tensor_t *ferry_full(std::vector<int64_t> dims, double value)
{
    fy_tensor_t *tensor;
    check(fy_full(fy_device_host(), FY_DTYPE_F32, static_cast<int>(dims.size()), dims.data(), value,
                  &tensor));
    return tensor;
}

// One thread for all: the work is far too small for two.
Contest contest_add()
{
    fy_tensor_t *fa = ferry_full({ 4 }, 1), *fb = ferry_full({ 4 }, 2);
    at::Tensor ta = at::ones({ 4 }), tb = at::full({ 4 }, 2.0f);
    return { "add f32[4], new result",
             { { "ferry",
                 [=](long n) {
                     for (long i = 0; i < n; i++) {
                         fy_tensor_t *sum;
                         if (fy_add(fa, fb, &sum) != FY_STATUS_OK) std::abort();
                         fy_tensor_destroy(sum);
                     }
                 },
                 {} },
               { "libtorch at::add",
                 [=](long n) {
                     for (long i = 0; i < n; i++) at::Tensor sum = at::add(ta, tb);
                 },
                 {} },
               { "libtorch at::add, inference mode",
                 [=](long n) {
                     c10::InferenceMode guard;
                     for (long i = 0; i < n; i++) at::Tensor sum = at::add(ta, tb);
                 },
                 {} } } };
}

// Of the oneDNN that Ferry opens, and as Ferry does: torch's may export the same symbols.
decltype(&dnnl_sgemm) find_sgemm()
{
    void *library = dlopen(FERRY_DNNL_FILE, RTLD_NOW | RTLD_DEEPBIND);
    void *symbol = library ? dlsym(library, "dnnl_sgemm") : nullptr;
    if (!symbol) std::abort();
    return reinterpret_cast<decltype(&dnnl_sgemm)>(symbol);
}

Contest contest_matmul(int64_t n, bool with_torch)
{
    const auto sgemm = find_sgemm();
    fy_tensor_t *fa = ferry_full({ n, n }, 0.5), *fb = ferry_full({ n, n }, 0.25);
    at::Tensor ta = at::full({ n, n }, 0.5f), tb = at::full({ n, n }, 0.25f),
               tc = at::empty({ n, n });
    std::string size = std::to_string(n);
    Contest contest = { "matmul " + size + "x" + size + "x" + size,
                        { { "ferry",
                            [=](long count) {
                                for (long i = 0; i < count; i++) {
                                    fy_tensor_t *product;
                                    if (fy_matmul(fa, fb, &product) != FY_STATUS_OK) std::abort();
                                    fy_tensor_destroy(product);
                                }
                            },
                            {} },
                          { "dnnl_sgemm, bare",
                            [=](long count) {
                                for (long i = 0; i < count; i++)
                                    sgemm('N', 'N', n, n, n, 1, ta.data_ptr<float>(), n,
                                          tb.data_ptr<float>(), n, 0, tc.data_ptr<float>(), n);
                            },
                            {} } } };
    if (with_torch)
        contest.contestants.push_back({ "libtorch at::mm",
                                        [=](long count) {
                                            for (long i = 0; i < count; i++)
                                                at::Tensor product = at::mm(ta, tb);
                                        },
                                        {} });
    return contest;
}

void print_text(const std::vector<Contest> &contests)
{
    for (const auto &contest : contests) {
        double ferry = median(contest.contestants[0].rounds);
        std::printf("%s\n", contest.op.c_str());
        for (const auto &c : contest.contestants) {
            double ns = median(c.rounds);
            std::printf("  %-34s %12.1f ns  best %12.1f  worst round %12.1f", c.name.c_str(), ns,
                        best(c.rounds), worst(c.rounds));
            if (&c != &contest.contestants[0])
                std::printf("   ferry: %.3fx the time, %+.1f ns", ferry / ns, ferry - ns);
            std::printf("\n");
        }
    }
}

void print_json(const std::vector<Contest> &contests)
{
    std::printf("{\n  \"bench\": \"peers_torch\",\n  \"version\": \"%s\",\n  \"clock\": "
                "\"wall\",\n  \"rows\": [",
                fy_version());
    const char *comma = "";
    for (const auto &contest : contests) {
        const auto &ferry = contest.contestants[0];
        for (size_t i = 1; i < contest.contestants.size(); i++) {
            const auto &peer = contest.contestants[i];
            double ns = median(ferry.rounds), peer_ns = median(peer.rounds);
            std::printf(
                "%s\n    {\"op\": \"%s\", \"ns_per_op\": %.9g, \"best_ns_per_op\": %.9g, "
                "\"worst_ns_per_op\": %.9g, \"peer\": "
                "\"%s\", \"peer_ns_per_op\": %.9g, \"peer_best_ns_per_op\": %.9g, "
                "\"peer_worst_ns_per_op\": %.9g, \"time_ratio\": %.9g, \"overhead_ns\": %.9g}",
                comma, contest.op.c_str(), ns, best(ferry.rounds), worst(ferry.rounds),
                peer.name.c_str(), peer_ns, best(peer.rounds), worst(peer.rounds), ns / peer_ns,
                ns - peer_ns);
            comma = ",";
        }
    }
    std::printf("\n  ]\n}\n");
}

} // namespace

int main(int argc, char **argv)
{
    bool json = argc == 2 && std::strcmp(argv[1], "--json") == 0;
    if (argc > 1 && !json) {
        std::fprintf(stderr, "usage: %s [--json]\n", argv[0]);
        return 2;
    }
    peers::prepare(argv);
    const int threads = peers::use_all_threads();
    std::vector<Contest> contests;
    fy_scope_t scope = fy_scope_begin("peers_torch");

    at::set_num_threads(1); // sets libgomp's team for this thread, so for Ferry and oneDNN too
    contests.push_back(contest_add());
    contests.push_back(contest_matmul(16, true));
    contests.push_back(contest_matmul(64, true));
    for (auto &contest : contests) measure(contest, 31, 5e6);

    at::set_num_threads(threads);
    contests.push_back(
        contest_matmul(1024, false)); // libtorch's BLAS is another library: not the question here
    measure(contests.back(), 15, 30e6);

    if (json)
        print_json(contests);
    else
        print_text(contests);
    fy_scope_end(scope, 0, nullptr);
    return 0;
}
