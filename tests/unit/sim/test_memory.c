/* Tests of backends/sim/memory.c: only the simulator can access device memory, capacity is exact,
 * and a foreign address is refused with numbers. */
#include "tests/unit/sim/fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/sim/sim.h"

/* Returns the signal that ends a child which runs `act`; 0 if it survives. */
static int signal_of(void (*act)(volatile char *address), char *address)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL); /* sanitizers install a handler */
        struct rlimit none = { 0, 0 };
        setrlimit(RLIMIT_CORE, &none);
        act(address);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void read_one(volatile char *address) { (void)*address; }
static void write_one(volatile char *address) { *address = 1; }

TS_TEST(host_access_to_device_memory_crashes)
{
    world_t w = MAKE_WORLD(0, 0, NULL, 0, "capacity=1048576");
    char *address = make_block(w.dev, 100000);
    assert_int_equal((uintptr_t)address % 256, 0);
    assert_int_equal(signal_of(read_one, address), SIGSEGV);
    assert_int_equal(signal_of(write_one, address), SIGSEGV);
    assert_int_equal(signal_of(read_one, address + 99999), SIGSEGV);
    char on_host = 0;
    assert_int_equal(signal_of(write_one, &on_host), 0);
    sim->free(w.dev, address, 100000);
}

TS_TEST(system_calls_on_device_memory_fail)
{
    world_t w = MAKE_WORLD(0, 0, NULL, 0, "capacity=1048576");
    char *address = make_block(w.dev, 4096);
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], address, 1), -1);
    assert_int_equal(errno, EFAULT);
    assert_int_equal(write(ends[1], "x", 1), 1);
    assert_int_equal(read(ends[0], address, 1), -1);
    assert_int_equal(errno, EFAULT);
    close(ends[0]);
    close(ends[1]);
    sim->free(w.dev, address, 4096);
}

TS_TEST(capacity_is_exact)
{
    world_t w = MAKE_WORLD(0, 0, NULL, 0, "capacity=10000");
    void *a = make_block(w.dev, 9999), *b = &b;
    sim_fails(sim->alloc(w.dev, 2, &b), OUT_OF_MEMORY);
    assert_null(b);
    assert_string_equal(said, "sim:0: 2 bytes asked for, 1 of 10000 are free");
    b = make_block(w.dev, 1);
    fy_backend_info_t info;
    sim->device_query(w.dev, &info);
    assert_int_equal(info.free_nbytes, 0);
    sim->free(w.dev, a, 9999);
    sim_fails(sim->alloc(w.dev, UINT64_MAX, &a), OUT_OF_MEMORY);
    a = make_block(w.dev, 9999);
    sim->free(w.dev, a, 9999);
    sim->free(w.dev, b, 1);
}

/* In a child process, because the limit cannot be lifted. */
TS_TEST(refused_address_space_is_explained)
{
    world_t w = MAKE_WORLD(0, 0, NULL, 0, "capacity=1099511627776");
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        struct rlimit limit = { 64ull << 30, 64ull << 30 };
        void *address;
        if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(1);
        if (sim->alloc(w.dev, 512ull << 30, &address) != FY_STATUS_OUT_OF_MEMORY || address)
            _exit(2);
        if (!strstr(said, "ulimit -v") || !strstr(said, "1099511627776") ||
            !strstr(said, "68719476736"))
            _exit(3);
        fy_backend_info_t info;
        sim->device_query(w.dev, &info);
        _exit(info.free_nbytes == 1ull << 40 ? 0 : 4);
    }
    int status = 0;
    waitpid(child, &status, 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

TS_TEST(requests_beyond_any_capacity_are_refused)
{
    world_t w = MAKE_WORLD(0, 0, NULL, 0, "capacity=18446744073709551615");
    void *address = &address;
    sim_fails(sim->alloc(w.dev, UINT64_MAX, &address), OUT_OF_MEMORY);
    assert_null(address);
    sim_fails(sim->alloc(w.dev, 1ull << 62, &address), OUT_OF_MEMORY);
}

TS_TEST(foreign_addresses_are_refused)
{
    world_t w = MAKE_WORLD(0, 0, NULL, 0, "capacity=1048576");
    char *block = make_block(w.dev, 1000), on_host[64] = "";
    sim_fails_with(sim->fill(w.dev, w.stream[0], on_host, 0, 64), INVALID_ARGUMENT,
                   "fill: dst at 0x");
    assert_non_null(strstr(said, "(64 bytes) is not an address of sim:0"));
    sim_fails(sim->fill(w.dev, w.stream[0], NULL, 0, 1), INVALID_ARGUMENT);
    sim_ok(sim->fill(w.dev, w.stream[0], block, 0, 1000));
    sim_fails_with(sim->fill(w.dev, w.stream[0], block + 990, 0, 11), INVALID_ARGUMENT,
                   "needs 11 bytes; the block of sim:0 that it lies in ends after 10");
    sim_fails(sim->fill(w.dev, w.stream[0], block - 1, 0, 1), INVALID_ARGUMENT);
    sim_fails_with(copy(w.dev, w.stream[0], FY_COPY_UPLOAD, 0, block, block, 10), INVALID_ARGUMENT,
                   "is device memory of sim:0");
    sim_fails(copy(w.dev, w.stream[0], FY_COPY_DOWNLOAD, 0, on_host, on_host, 10),
              INVALID_ARGUMENT);
    sim->free(w.dev, block, 1000);
    sim_fails(sim->fill(w.dev, w.stream[0], block, 0, 1), INVALID_ARGUMENT);
}

TS_TEST(a_wrong_free_is_logged_and_ignored)
{
    world_t w = MAKE_WORLD(0, 0, NULL, 0, "capacity=1048576");
    char *block = make_block(w.dev, 4096);
    int before = nlogged;
    sim->free(w.dev, block + 256, 4096);
    sim->free(w.dev, block, 4095);
    assert_int_equal(nlogged, before + 2);
    assert_int_equal(fy__sim_memory_used(w.dev), 4096);
    sim->free(w.dev, block, 4096);
    sim->free(w.dev, block, 4096);
    assert_int_equal(nlogged, before + 3);
    assert_int_equal(fy__sim_memory_used(w.dev), 0);
}

TS_TEST(page_locked_ranges_are_tracked)
{
    world_t w = MAKE_WORLD(0, 0, NULL, 0, "capacity=1048576");
    static char slab[8192];
    char *block = make_block(w.dev, 8192);
    sim_fails_with(copy(w.dev, w.stream[0], FY_COPY_UPLOAD, 1, block, slab, 100), INVALID_ARGUMENT,
                   "not registered with sim:0");
    sim_ok(sim->register_host(w.dev, slab, 4096));
    assert_int_equal(fy__sim_memory_pinned(w.dev), 4096);
    sim_ok(copy(w.dev, w.stream[0], FY_COPY_UPLOAD, 1, block, slab, 4096));
    sim_fails(copy(w.dev, w.stream[0], FY_COPY_UPLOAD, 1, block, slab, 4097), INVALID_ARGUMENT);
    sim_fails_with(sim->register_host(w.dev, slab + 4095, 1), INVALID_ARGUMENT,
                   "page-locked already");
    sim_fails(sim->register_host(w.dev, block, 4096), INVALID_ARGUMENT);
    sim->unregister_host(w.dev, slab, 4096);
    assert_int_equal(fy__sim_memory_pinned(w.dev), 0);
    int before = nlogged;
    sim->unregister_host(w.dev, slab, 4096);
    assert_int_equal(nlogged, before + 1);
    sim->free(w.dev, block, 8192);
}

TS_SUITE(.begin = open_backend, .tear_down = end_worlds);
