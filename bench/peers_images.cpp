// Training of mnist (batch 64) and lenet (batch 256) beside libtorch, interleaved in one process,
// both with all threads: gather a batch of
// resident images, forward, loss, backward, update. libtorch runs in both memory formats and the
// faster one counts. Both sides start from the
// same weights, and before anything is timed their losses are compared over the first steps, with
// dropout off: its draws are no one's business.
// Not here: what Ferry does in a step (tools/train/image_train.c), small steps (peers_train.cpp).
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
#include "tools/bench/roofline.h"
#include "tools/train/image_train.h"

namespace
{

using peers::best, peers::check, peers::median, peers::worst;

struct Contestant {
    std::string name;
    std::function<void()> step;
    std::function<double()> loss; // of the last step
    std::function<void(bool)> set_dropout;
    std::vector<double> rounds = {}; // ns a step
};

struct Contest {
    const image_case_t *what;
    double limit, goal;                  // Ferry's images a second over libtorch's
    double flops;                        // of a step
    std::vector<Contestant> contestants; // Ferry, libtorch, libtorch in channels_last
};

// A parameter of Ferry's, as it lies there.
torch::Tensor parameter(const image_train_t &train, const char *name)
{
    fy_param_t param = FY_PARAM_INIT;
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    void *data;
    check(fy_model_find_param(train.model, name, &param));
    check(fy_tensor_query(param.value, &info));
    check(fy_tensor_map(param.value, FY_ACCESS_READ, &data));
    return torch::from_blob(data, std::vector<int64_t>(info.dims, info.dims + info.rank)).clone();
}

struct Net : torch::nn::Module {
    torch::nn::Conv2d conv1, conv2;
    torch::nn::Linear fc1, fc2;
    bool is_mnist, drops = false;

    Net(bool mnist, int64_t c1, int64_t k1, int64_t c2, int64_t k2, int64_t features)
        : conv1(torch::nn::Conv2dOptions(1, c1, k1)), conv2(torch::nn::Conv2dOptions(c1, c2, k2)),
          fc1(features, 128), fc2(128, IMAGE_CLASSES), is_mnist(mnist)
    {
        register_module("conv1", conv1);
        register_module("conv2", conv2);
        register_module("fc1", fc1);
        register_module("fc2", fc2);
    }

    torch::Tensor forward(torch::Tensor x)
    {
        if (is_mnist) {
            x = torch::max_pool2d(torch::relu(conv2(torch::relu(conv1(x)))), 2);
            x = torch::dropout(x, 0.25, drops).flatten(1);
            return fc2(torch::dropout(torch::relu(fc1(x)), 0.5, drops));
        }
        x = torch::avg_pool2d(torch::relu(conv1(x)), 2);
        x = torch::avg_pool2d(torch::relu(conv2(x)), 2);
        return fc2(torch::relu(fc1(x.flatten(1))));
    }
};

// Ferry has OHWI, and flattens [H, W, C]; libtorch OIHW and [C, H, W].
void copy_weights(Net &net, const image_train_t &train, int64_t channels, int64_t size)
{
    torch::NoGradGuard guard;
    net.conv1->weight.copy_(parameter(train, "conv1.weight").permute({ 0, 3, 1, 2 }));
    net.conv1->bias.copy_(parameter(train, "conv1.bias"));
    net.conv2->weight.copy_(parameter(train, "conv2.weight").permute({ 0, 3, 1, 2 }));
    net.conv2->bias.copy_(parameter(train, "conv2.bias"));
    net.fc1->weight.copy_(parameter(train, "fc1.weight")
                              .view({ 128, size, size, channels })
                              .permute({ 0, 3, 1, 2 })
                              .reshape({ 128, -1 }));
    net.fc1->bias.copy_(parameter(train, "fc1.bias"));
    net.fc2->weight.copy_(parameter(train, "fc2.weight"));
    net.fc2->bias.copy_(parameter(train, "fc2.bias"));
}

// As torch.optim.Adadelta's single-tensor form computes it: rho 0.9, eps 1e-6.
struct Adadelta {
    torch::Tensor param, square_avg, acc_delta;
    void step(double lr)
    {
        torch::NoGradGuard guard;
        const torch::Tensor grad = param.grad();
        square_avg.mul_(0.9).addcmul_(grad, grad, 0.1);
        torch::Tensor deviation = square_avg.add(1e-6).sqrt_(), delta = acc_delta.add(1e-6).sqrt_();
        delta.div_(deviation).mul_(grad);
        acc_delta.mul_(0.9).addcmul_(delta, delta, 0.1);
        param.add_(delta, -lr);
    }
};

Contestant ferry_side(const std::shared_ptr<image_train_t> &train)
{
    return { "ferry", [=] { check(image_train_run(train.get(), 1)); },
             [=] {
                 fy_download_t *download;
                 double value;
                 check(fy_tensor_download(train->loss, nullptr, &download));
                 check(fy_download_wait_f64(download, FY_FOREVER, &value));
                 return value;
             },
             [=](bool on) { fy_model_set_training(train->model, on); } };
}

Contestant torch_side(const image_train_t &train, bool channels_last)
{
    struct State {
        std::shared_ptr<Net> net;
        std::unique_ptr<torch::optim::Optimizer> optimizer;
        std::vector<Adadelta> adadelta; // libtorch has it in Python only
        torch::Tensor images = torch::empty({ IMAGE_SAMPLES, 1, IMAGE_SIZE, IMAGE_SIZE }),
                      targets = torch::empty({ IMAGE_SAMPLES }, torch::kLong), loss;
        int64_t steps = 0;
    };
    auto s = std::make_shared<State>();
    const image_case_t *what = train.what;
    const bool is_mnist = std::strcmp(what->model, "mnist") == 0;
    s->net = is_mnist ? std::make_shared<Net>(true, 32, 3, 64, 3, 9216)
                      : std::make_shared<Net>(false, 20, 3, 50, 5, 800);
    copy_weights(*s->net, train, is_mnist ? 64 : 50, is_mnist ? 12 : 4);
    for (int64_t i = 0; i < s->images.numel(); i++)
        s->images.data_ptr<float>()[i] = image_pixel(i); // one channel: NCHW is NHWC
    for (int64_t i = 0; i < IMAGE_SAMPLES; i++) s->targets.data_ptr<int64_t>()[i] = image_target(i);
    if (channels_last) {
        torch::NoGradGuard guard;
        for (auto &p : s->net->parameters())
            if (p.dim() == 4) p.set_data(p.data().contiguous(torch::MemoryFormat::ChannelsLast));
        s->images = s->images.contiguous(torch::MemoryFormat::ChannelsLast);
    }
    if (!what->is_adadelta)
        s->optimizer = std::make_unique<torch::optim::SGD>(s->net->parameters(), what->lr);
    for (auto &p : s->net->parameters())
        if (what->is_adadelta)
            s->adadelta.push_back({ p, torch::zeros_like(p), torch::zeros_like(p) });
    return { channels_last ? "libtorch, channels_last" : "libtorch",
             [=] {
                 const int64_t begin = s->steps++ * what->batch % IMAGE_SAMPLES;
                 torch::Tensor chosen = torch::arange(begin, begin + what->batch);
                 torch::Tensor x = s->images.index_select(0, chosen),
                               target = s->targets.index_select(0, chosen);
                 if (channels_last) x = x.contiguous(torch::MemoryFormat::ChannelsLast);
                 s->net->zero_grad();
                 s->loss = torch::cross_entropy_loss(s->net->forward(x), target);
                 s->loss.backward();
                 if (s->optimizer) s->optimizer->step();
                 for (auto &one : s->adadelta) one.step(what->lr);
             },
             [=] { return s->loss.item<double>(); }, [=](bool on) { s->net->drops = on; } };
}

// Float arithmetic in another order; the same steps otherwise. Not many: Adadelta follows the sign
// of the smallest gradients.
void check_losses(Contest &contest, int steps, double tolerance)
{
    for (auto &c : contest.contestants) c.set_dropout(false);
    for (int i = 0; i < steps; i++) {
        for (auto &c : contest.contestants) c.step();
        const double want = contest.contestants[1].loss();
        for (auto &c : contest.contestants) {
            if (std::fabs(c.loss() - want) <= tolerance * std::fabs(want)) continue;
            std::fprintf(stderr, "%s: step %d: the loss of %s is %.9g, of libtorch %.9g\n",
                         contest.what->model, i, c.name.c_str(), c.loss(), want);
            std::exit(1);
        }
    }
    std::fprintf(stderr, "%s: the first %d losses agree within %g of themselves\n",
                 contest.what->model, steps, tolerance);
    for (auto &c : contest.contestants) c.set_dropout(true);
}

void measure(Contest &contest, int rounds, int steps)
{
    for (int r = 0; r <= rounds; r++) // the first round warms up
        for (auto &c : contest.contestants) {
            const double ns = peers::time_ns([&] {
                for (int i = 0; i < steps; i++) c.step();
            });
            if (r) c.rounds.push_back(ns / steps);
        }
}

double images_per_s(const Contest &contest, double ns) { return 1e9 * contest.what->batch / ns; }

// The faster of libtorch's two.
const Contestant &peer_of(const Contest &contest)
{
    const auto &a = contest.contestants[1], &b = contest.contestants[2];
    return median(a.rounds) <= median(b.rounds) ? a : b;
}

void print_text(const Contest &contest, double roofline)
{
    const auto &ferry = contest.contestants[0];
    std::printf("%s, batch %d (at least %.1f x libtorch's images/s, goal %.1f x)\n",
                contest.what->model, contest.what->batch, contest.limit, contest.goal);
    for (const auto &c : contest.contestants) {
        std::printf(
            "  %-24s %8.0f images/s  best %8.0f  worst round %8.0f  %5.1f %% of %.0f GFLOP/s",
            c.name.c_str(), images_per_s(contest, median(c.rounds)),
            images_per_s(contest, best(c.rounds)), images_per_s(contest, worst(c.rounds)),
            100 * contest.flops / median(c.rounds) / roofline, roofline);
        if (&c != &ferry) std::printf("   ferry: %.2f x", median(c.rounds) / median(ferry.rounds));
        std::printf("\n");
    }
}

void print_json(const Contest &contest, double roofline, const char *comma)
{
    const auto &ferry = contest.contestants[0], &peer = peer_of(contest);
    std::printf(
        "%s\n    {\"case\": \"%s\", \"batch\": %d, \"images_per_s\": %.9g, \"worst_images_per_s\": "
        "%.9g, \"roofline_share\": %.4g, "
        "\"peer\": \"%s\", \"peer_images_per_s\": %.9g, \"peer_worst_images_per_s\": %.9g, "
        "\"ratio\": %.4g}",
        comma, contest.what->model, contest.what->batch,
        images_per_s(contest, median(ferry.rounds)), images_per_s(contest, worst(ferry.rounds)),
        contest.flops / median(ferry.rounds) / roofline, peer.name.c_str(),
        images_per_s(contest, median(peer.rounds)), images_per_s(contest, worst(peer.rounds)),
        median(peer.rounds) / median(ferry.rounds));
}

Contest make(const image_case_t *what, double limit, double goal,
             std::shared_ptr<image_train_t> train)
{
    check(image_train_make(fy_device_host(), what, train.get()));
    return { what,
             limit,
             goal,
             train->flops,
             { ferry_side(train), torch_side(*train, false), torch_side(*train, true) } };
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
    const double roofline = roofline_gflops(threads);
    fy_scope_t scope = fy_scope_begin("peers_images");
    std::vector<Contest> contests;
    std::vector<std::shared_ptr<image_train_t>> trains = { std::make_shared<image_train_t>(),
                                                           std::make_shared<image_train_t>() };
    contests.push_back(make(&image_cases[0], 1.6, 2.2, trains[0]));
    contests.push_back(make(&image_cases[1], 1.8, 3.0, trains[1]));
    for (auto &contest : contests) check_losses(contest, 10, 1e-4);
    for (auto &contest : contests) measure(contest, 15, 5);
    if (json)
        std::printf("{\n  \"bench\": \"peers_images\",\n  \"version\": \"%s\",\n  \"clock\": "
                    "\"wall\",\n  \"threads\": %d,\n  "
                    "\"roofline_gflops\": %.9g,\n  \"rows\": [",
                    fy_version(), threads, roofline);
    for (const auto &contest : contests)
        json ? print_json(contest, roofline, &contest == &contests[0] ? "" : ",")
             : print_text(contest, roofline);
    if (json) std::printf("\n  ]\n}\n");
    contests.clear();
    for (auto &train : trains) image_train_end(train.get());
    fy_scope_end(scope, 0, nullptr);
    return 0;
}
