// A consumer in C++17: the headers as C++ sees them, handles in smart pointers, the same sequence
// as scenario.h.
#include <dlfcn.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <ferry/ferry.h>

namespace
{
int disappointments = 0;

void expect(bool condition, const char *what)
{
    if (condition) return;
    std::fprintf(stderr, "not so: %s\n  %s\n", what, fy_error_get()->text);
    ++disappointments;
}
#define EXPECT(condition) expect((condition), #condition)

struct destroy_tensor {
    void operator()(fy_tensor_t *tensor) const { fy_tensor_destroy(tensor); }
};
using tensor_ptr = std::unique_ptr<fy_tensor_t, destroy_tensor>;

// operator new's owner: one that this program itself uses, through std::vector and std::string.
bool owned_by(const char *symbol, const char *owner)
{
    Dl_info info;
    void *address = dlsym(RTLD_DEFAULT, symbol);
    return address && dladdr(address, &info) &&
           std::string(info.dli_fname).find(owner) != std::string::npos;
}
} // namespace

int main()
{
    std::array<std::int64_t, 1> dims{ 4 };
    std::vector<float> data{ 1, 2, 3, 4 };
    fy_tensor_t *raw = nullptr;

    EXPECT(fy_tensor_wrap(fy_device_host(), FY_DTYPE_F32, 1, dims.data(), data.data(), nullptr,
                          nullptr, &raw) == FY_STATUS_OK);
    tensor_ptr x(raw);
    EXPECT(fy_add(x.get(), x.get(), &raw) == FY_STATUS_OK);
    tensor_ptr sum(raw);
    void *bytes = nullptr;
    EXPECT(fy_tensor_map(sum.get(), FY_ACCESS_READ, &bytes) == FY_STATUS_OK);
    EXPECT(bytes && static_cast<float *>(bytes)[3] == 8.0f);

    fy_pool_options_t options = FY_POOL_OPTIONS_INIT;
    options.limit = 1u << 20;
    fy_pool_t *pool = nullptr;
    fy_pool_block_t block;
    fy_memory_stats_t stats = FY_MEMORY_STATS_INIT;
    EXPECT(fy_pool_create(&options, &pool) == FY_STATUS_OK);
    EXPECT(fy_pool_alloc(pool, 1u << 20, &block) == FY_STATUS_OK && block.offset == 0);
    EXPECT(fy_pool_alloc(pool, 1, &block) == FY_STATUS_OUT_OF_MEMORY &&
           fy_error_get()->oom->would_help == 1u << 20);
    EXPECT(fy_pool_query(pool, &stats) == FY_STATUS_OK && stats.reserved == 1u << 20);
    fy_pool_destroy(pool);

    fy_device_t *sim = nullptr;
    fy_ledger_totals_t totals = FY_LEDGER_TOTALS_INIT;
    EXPECT(fy_device_open("sim:0", &sim) == FY_STATUS_OK);
    EXPECT(fy_tensor_upload(x.get(), sim, nullptr, &raw) == FY_STATUS_OK);
    tensor_ptr device_x(raw);
    EXPECT(fy_mul(device_x.get(), device_x.get(), &raw) == FY_STATUS_OK);
    tensor_ptr square(raw);
    fy_download_t *download = nullptr;
    EXPECT(fy_tensor_download(square.get(), nullptr, &download) == FY_STATUS_OK);
    EXPECT(fy_download_wait(download, FY_FOREVER, &raw) == FY_STATUS_OK);
    tensor_ptr back(raw);
    EXPECT(fy_tensor_map(back.get(), FY_ACCESS_READ, &bytes) == FY_STATUS_OK);
    EXPECT(bytes && static_cast<float *>(bytes)[3] == 16.0f);
    EXPECT(fy_ledger_query(nullptr, &totals) == FY_STATUS_OK);
    EXPECT(totals.upload.count == 1 && totals.upload.nbytes == 16 && totals.download.count == 1 &&
           totals.download.nbytes == 16);

    EXPECT(fy_add(x.get(), device_x.get(), &raw) == FY_STATUS_DEVICE_MISMATCH && raw == nullptr);
    EXPECT(std::strstr(fy_error_get()->text, "sim:0") != nullptr);
    device_x.reset();
    square.reset();
    fy_device_close(sim);

    EXPECT(owned_by("malloc", "libc.so"));
    EXPECT(owned_by("_Znwm", "libstdc++.so"));
    return disappointments != 0;
}
