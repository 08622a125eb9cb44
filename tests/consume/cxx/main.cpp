// A consumer in C++17: scenario.h and the headers as C++ sees them, a pool, and an operator new
// that this program uses, too. Handles in smart pointers: raii.cpp.
#include <string>
#include <vector>

#include "../scenario.h"

int main()
{
    const std::vector<std::string> own(3, "a text that is too long for the object itself");
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
    EXPECT(own.back() == own.front());
    return run_scenario(RTLD_DEFAULT, "libc.so", "mmap") != 0;
}
