// Small training steps beside libtorch, interleaved in one process: a chain of 100 elementwise
// calls forward and back, and a network
// 64-64-10 at batch 1 with its update, called and (Ferry) replayed as a graph. Both sides start
// from the same numbers, and before anything
// is timed their losses are compared over the first steps.
// Not here: networks with work in them; what Ferry does in a step (tools/train/small_train.c).
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "bench/peers.h"
#include "tools/train/small_train.h"

namespace
{

using peers::best, peers::check, peers::median, peers::worst;

struct Contestant {
    std::string name;
    std::function<void(long)> run;      // so many steps
    std::function<double()> loss;       // of the last one
    std::function<void()> calm = [] {}; // before it is timed
    std::vector<double> rounds = {};    // ns per step
    long iters = 1;
};

struct Contest {
    std::string name;
    double parts;                        // of one step: times are divided by it
    double limit, goal;                  // Ferry's time over libtorch's
    std::vector<Contestant> contestants; // libtorch is the last one
};

double time_ns(const Contestant &c, long iters)
{
    return peers::time_ns([&] { c.run(iters); });
}

// The same steps on all sides give the same losses: float arithmetic in another order.
void check_losses(Contest &contest, int steps, double tolerance)
{
    for (int i = 0; i < steps; i++) {
        std::vector<double> losses;
        for (auto &c : contest.contestants) {
            c.run(1);
            losses.push_back(c.loss());
        }
        for (size_t k = 0; k < losses.size(); k++) {
            if (std::fabs(losses[k] - losses.back()) <= tolerance * std::fabs(losses.back()))
                continue;
            std::fprintf(stderr, "%s: step %d: the loss of %s is %.9g, of %s %.9g\n",
                         contest.name.c_str(), i, contest.contestants[k].name.c_str(), losses[k],
                         contest.contestants.back().name.c_str(), losses.back());
            std::exit(1);
        }
    }
    std::fprintf(stderr, "%s: the first %d losses agree within %g of themselves\n",
                 contest.name.c_str(), steps, tolerance);
}

void measure(Contest &contest, int rounds, double round_ns)
{
    for (auto &c : contest.contestants) c.calm();
    for (auto &c : contest.contestants)
        while (time_ns(c, c.iters) < round_ns / 2) c.iters *= 2;
    for (int r = 0; r < rounds; r++)
        for (auto &c : contest.contestants)
            c.rounds.push_back(time_ns(c, c.iters) / static_cast<double>(c.iters) / contest.parts);
}

torch::Tensor made(int which, std::vector<int64_t> dims)
{
    torch::Tensor tensor = torch::empty(dims);
    for (int64_t i = 0; i < tensor.numel(); i++)
        tensor.data_ptr<float>()[i] = SMALL_SCALE * small_value(which, i);
    return tensor;
}

double read(const fy_tensor_t *scalar)
{
    double value;
    check(small_read(scalar, &value));
    return value;
}

// ---- the chain ----

Contestant ferry_chain(int is_graph)
{
    auto chain = std::make_shared<small_chain_t>();
    check(small_chain_make(fy_device_host(), is_graph, chain.get()));
    return { is_graph ? "ferry, replayed" : "ferry",
             [=](long n) { check(small_chain_run(chain.get(), n)); },
             [=] { // the gradients' sum, too: the loss alone would say nothing of the way back
                 fy_tensor_t *sum_w, *sum_b;
                 check(fy_sum(chain->grad_w, 0, nullptr, 0, &sum_w));
                 check(fy_sum(chain->grad_b, 0, nullptr, 0, &sum_b));
                 return read(chain->loss) + read(sum_w) + read(sum_b);
             } };
}

Contestant torch_chain()
{
    struct State {
        torch::Tensor x = made(0, { SMALL_CHAIN_SIZE }),
                      w = made(1, { SMALL_CHAIN_SIZE }).requires_grad_(),
                      b = made(2, { SMALL_CHAIN_SIZE }).requires_grad_(), loss;
    };
    auto s = std::make_shared<State>();
    return { "libtorch",
             [=](long n) {
                 for (long step = 0; step < n; step++) {
                     s->w.mutable_grad() =
                         torch::Tensor(); // as Ferry's, the first write of a backward assigns
                     s->b.mutable_grad() = torch::Tensor();
                     torch::Tensor y = s->x;
                     for (int i = 0; i < SMALL_CHAIN_OPS; i++) {
                         switch (i % 4) {
                         case 0: y = y * s->w; break;
                         case 1: y = y + s->b; break;
                         case 2: y = y.tanh(); break;
                         default: y = y.relu(); break;
                         }
                     }
                     s->loss = y.sum();
                     s->loss.backward();
                 }
             },
             [=] { return (s->loss + s->w.grad().sum() + s->b.grad().sum()).item<double>(); } };
}

// ---- the network ----

Contestant ferry_mlp(small_optimizer_t optimizer, int is_graph)
{
    auto mlp = std::make_shared<small_mlp_t>();
    check(small_mlp_make(fy_device_host(), optimizer, is_graph, mlp.get()));
    return { is_graph ? "ferry, replayed" : "ferry",
             [=](long n) { check(small_mlp_run(mlp.get(), n)); }, [=] { return read(mlp->loss); },
             [=] { check(small_mlp_calm(mlp.get())); } };
}

Contestant torch_mlp(small_optimizer_t which)
{
    struct State {
        torch::nn::Linear first{ SMALL_INPUTS, SMALL_HIDDEN },
            second{ SMALL_HIDDEN, SMALL_CLASSES };
        torch::Tensor x = made(0, { 1, SMALL_INPUTS }), target = made(1, { 1, SMALL_CLASSES }),
                      loss;
        std::unique_ptr<torch::optim::Optimizer> optimizer;
    };
    auto s = std::make_shared<State>();
    {
        torch::NoGradGuard guard;
        s->first->weight.copy_(made(2, { SMALL_HIDDEN, SMALL_INPUTS }));
        s->first->bias.copy_(made(3, { SMALL_HIDDEN }));
        s->second->weight.copy_(made(4, { SMALL_CLASSES, SMALL_HIDDEN }));
        s->second->bias.copy_(made(5, { SMALL_CLASSES }));
    }
    std::vector<torch::Tensor> parameters = { s->first->weight, s->first->bias, s->second->weight,
                                              s->second->bias };
    if (which == SMALL_SGD)
        s->optimizer = std::make_unique<torch::optim::SGD>(parameters, SMALL_LR);
    else
        s->optimizer = std::make_unique<torch::optim::Adam>(parameters, SMALL_LR);
    return {
        "libtorch",
        [=](long n) {
            for (long step = 0; step < n; step++) {
                s->optimizer->zero_grad();
                s->loss = torch::mse_loss(s->second(torch::relu(s->first(s->x))), s->target);
                s->loss.backward();
                s->optimizer->step();
            }
        },
        [=] { return s->loss.item<double>(); },
        [=] {
            if (which == SMALL_SGD)
                static_cast<torch::optim::SGDOptions &>(s->optimizer->param_groups()[0].options())
                    .lr(SMALL_LR_CALM);
            else
                static_cast<torch::optim::AdamOptions &>(s->optimizer->param_groups()[0].options())
                    .lr(SMALL_LR_CALM);
        }
    };
}

// ---- output ----

void print_text(const std::vector<Contest> &contests)
{
    for (const auto &contest : contests) {
        const double peer = median(contest.contestants.back().rounds);
        std::printf("%s (limit %.2f x, goal %.2f x)\n", contest.name.c_str(), contest.limit,
                    contest.goal);
        for (const auto &c : contest.contestants) {
            const double ns = median(c.rounds);
            std::printf("  %-18s %10.1f ns  best %10.1f  worst round %10.1f", c.name.c_str(), ns,
                        best(c.rounds), worst(c.rounds));
            if (&c != &contest.contestants.back()) std::printf("   %.3f x libtorch", ns / peer);
            std::printf("\n");
        }
    }
}

void print_json(const std::vector<Contest> &contests, int threads)
{
    std::printf("{\n  \"bench\": \"peers_train\",\n  \"version\": \"%s\",\n  \"clock\": "
                "\"wall\",\n  \"threads\": %d,\n  \"rows\": [",
                fy_version(), threads);
    const char *comma = "";
    for (const auto &contest : contests) {
        const auto &peer = contest.contestants.back();
        for (const auto &c : contest.contestants) {
            if (&c == &peer) continue;
            std::printf("%s\n    {\"case\": \"%s\", \"mode\": \"%s\", \"ns\": %.9g, \"worst_ns\": "
                        "%.9g, \"peer\": \"%s\", \"peer_ns\": "
                        "%.9g, \"peer_worst_ns\": %.9g, \"time_ratio\": %.9g}",
                        comma, contest.name.c_str(), c.name == "ferry" ? "eager" : "graph",
                        median(c.rounds), worst(c.rounds), peer.name.c_str(), median(peer.rounds),
                        worst(peer.rounds), median(c.rounds) / median(peer.rounds));
            comma = ",";
        }
    }
    std::printf("\n  ]\n}\n");
}

} // namespace

int main(int argc, char **argv)
{
    const bool json = argc == 2 && std::strcmp(argv[1], "--json") == 0;
    if (argc > 1 && !json) {
        std::fprintf(stderr, "usage: %s [--json]\n", argv[0]);
        return 2;
    }
    peers::prepare(argv);
    const int threads = peers::use_all_threads();
    fy_scope_t scope = fy_scope_begin("peers_train");
    std::vector<Contest> contests;
    contests.push_back({ "chain of 100, forward and back, per call",
                         SMALL_CHAIN_OPS,
                         0.12,
                         0.06,
                         { ferry_chain(0), ferry_chain(1), torch_chain() } });
    contests.push_back(
        { "mlp 64-64-10, batch 1, SGD step",
          1,
          0.12,
          0.08,
          { ferry_mlp(SMALL_SGD, 0), ferry_mlp(SMALL_SGD, 1), torch_mlp(SMALL_SGD) } });
    contests.push_back(
        { "mlp 64-64-10, batch 1, Adam step",
          1,
          0.12,
          0.08,
          { ferry_mlp(SMALL_ADAM, 0), ferry_mlp(SMALL_ADAM, 1), torch_mlp(SMALL_ADAM) } });
    for (auto &contest : contests) check_losses(contest, 20, 1e-4);
    for (auto &contest : contests) measure(contest, 31, 5e6);
    if (json)
        print_json(contests, threads);
    else
        print_text(contests);
    contests.clear();
    fy_scope_end(scope, 0, nullptr);
    return 0;
}
