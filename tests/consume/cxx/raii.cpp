// A consumer with <ferry/ferry.hpp>: objects, scopes, failures, with exceptions and without.
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#ifndef __cpp_exceptions
#include <ferry/status.h>
static fy_status_t last_failure;
#define FERRY_FAILED(status) last_failure = (status)
#endif
#include <ferry/ferry.hpp>

static int disappointments;

static void expect(bool condition, const char *what)
{
    if (condition) return;
    std::fprintf(stderr, "not so: %s\n  %s\n", what, fy_error_get()->text);
    ++disappointments;
}
#define EXPECT(condition) expect((condition), #condition)

// The status with which `body` fails; its text is in the error record.
template <typename F> static fy_status_t failure(F &&body)
{
#ifdef __cpp_exceptions
    try {
        body();
    } catch (const ferry::error &error) {
        EXPECT(std::strcmp(error.what(), fy_error_get()->text) == 0);
        return error.status();
    }
    return FY_STATUS_OK;
#else
    last_failure = FY_STATUS_OK;
    body();
    return last_failure;
#endif
}

static std::uint64_t live(const ferry::device &device)
{
    fy_memory_stats_t stats = FY_MEMORY_STATS_INIT;
    ferry::run(fy_memory_query, device, nullptr, &stats);
    return stats.live;
}

static void computes(const ferry::device &device)
{
    std::vector<float> data{ 1, 2, 3, 4, 5, 6 };
    ferry::tensor kept;
    {
        ferry::scope scope("step");
        ferry::tensor x =
            ferry::call(fy_tensor_upload, ferry::wrap(data.data(), { 2, 3 }), device, nullptr);
        kept = ferry::call(fy_add, x, x); // lives on: the object owns it, not the scope
        fy_tensor_t *raw = nullptr;
        EXPECT(fy_neg(x.get(), &raw) == FY_STATUS_OK); // destroyed with the scope
    }
    ferry::tensor sum = ferry::call(fy_sum, kept, 0, nullptr, 0);
    EXPECT(ferry::item(sum) == 42);
    ferry::tensor host = ferry::wait(ferry::call(fy_tensor_download, kept, nullptr));
    EXPECT(ferry::data<const float>(host)[5] == 12);
    EXPECT(ferry::info(host).nelem == 6 && host.get() != nullptr);
    ferry::tensor moved = std::move(host);
    EXPECT(!host && moved); // NOLINT(bugprone-use-after-move)
    std::uint64_t before = ferry::info(moved).version;
    ferry::data<float>(moved)[0] = -1;
    EXPECT(ferry::info(moved).version == before + 1);
}

static void learns(const ferry::device &device)
{
    ferry::tape tape = ferry::call(fy_tape_create);
    const std::int64_t dims[] = { 3 };
    ferry::tensor w = ferry::call(fy_full, device, FY_DTYPE_F32, 1, dims, 2.0);
    ferry::run(fy_tape_watch, tape, w, nullptr);
    ferry::run(fy_tape_begin, tape);
    ferry::tensor square = ferry::call(fy_mul, w, w),
                  loss = ferry::call(fy_sum, square, 0, nullptr, 0);
    ferry::run(fy_tape_backward, tape, loss, nullptr);
    ferry::tensor grad = ferry::call(fy_tape_grad, tape, w);
    EXPECT(ferry::item(ferry::call(fy_sum, grad, 0, nullptr, 0)) == 12);
}

static void fails(const ferry::device &device)
{
    float values[2] = { 1, 2 };
    ferry::tensor here = ferry::wrap(values, { 2 });
    ferry::tensor there = ferry::call(fy_tensor_upload, here, device, nullptr);
    EXPECT(failure([&] { (void)ferry::call(fy_add, here, there); }) == FY_STATUS_DEVICE_MISMATCH);
    EXPECT(failure([&] { (void)ferry::data<double>(here); }) == FY_STATUS_DTYPE_MISMATCH);
    EXPECT(failure([&] { (void)ferry::data<const float>(there); }) == FY_STATUS_DEVICE_MISMATCH);
    EXPECT(failure([&] { (void)ferry::open("nothing:0"); }) != FY_STATUS_OK);
    EXPECT(failure([&] { (void)ferry::item(here); }) == FY_STATUS_SHAPE_MISMATCH);
}

int main()
{
    ferry::device device = ferry::open("sim:0");
    const std::uint64_t before = live(device);
    computes(device);
    learns(device);
    fails(device);
    ferry::run(fy_device_wait, device, FY_FOREVER);
    EXPECT(live(device) == before);
    std::printf("%s\n", disappointments ? "disappointed" : "as expected");
    return disappointments ? 1 : 0;
}
