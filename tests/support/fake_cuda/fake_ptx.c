/* FAKE_CUDA_KERNELS=ptx: runs a launch by the PTX that nvcc made of the kernel (target ferry_ptx),
 * with device addresses, on the machine in ptx/. A fault is printed; the launch then fails as on a
 * card. FAKE_CUDA_PTX_COUNTS=FILE: at exit a line for each kernel that ran is added to the file:
 * name, launches, instructions of warps, 32-byte sectors read and written, bank conflicts, with
 * tabs between them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/fake_cuda/fake.h"
#include "tests/support/fake_cuda/ptx/ptx.h"

typedef struct module {
    const char *name;
    char *file, *text;
} module_t;

static module_t modules[] = {
#define X(name) { #name, NULL, NULL },
    FY__CUDA_MODULE_LIST(X)
#undef X
};

static struct {
    const char *module, *name;
    ptx_kernel_t *kernel;
    ptx_counts_t counts;
} kernels[] = {
#define X(module, name) { #module, #name, NULL, { 0 } },
    FY__CUDA_KERNEL_LIST(X)
#undef X
};
enum { KERNELS = sizeof kernels / sizeof *kernels };

static void write_counts(void)
{
    FILE *file = fopen(getenv("FAKE_CUDA_PTX_COUNTS"), "a");
    for (size_t i = 0; file != NULL && i < KERNELS; i++) {
        const ptx_counts_t *counts = &kernels[i].counts;
        if (counts->launches == 0) continue;
        fprintf(file, "%s\t%llu\t%llu\t%llu\t%llu\t%llu\n", kernels[i].name,
                (unsigned long long)counts->launches, (unsigned long long)counts->instructions,
                (unsigned long long)counts->sectors_read,
                (unsigned long long)counts->sectors_written,
                (unsigned long long)counts->bank_conflicts);
    }
    if (file == NULL || fclose(file) != 0) perror("FAKE_CUDA_PTX_COUNTS");
}

/* Returns whether its text is there. */
static int read_module(module_t *module)
{
    if (module->text != NULL) return 1;
    const size_t room = sizeof FAKE_CUDA_PTX_DIR + strlen(module->name) + 8;
    module->file = malloc(room);
    snprintf(module->file, room, "%s/%s.ptx", FAKE_CUDA_PTX_DIR, module->name);
    FILE *file = fopen(module->file, "r");
    if (file == NULL) {
        fprintf(stderr, "fake_cuda: %s is missing: build the target ferry_ptx\n", module->file);
        return 0;
    }
    fseek(file, 0, SEEK_END);
    const size_t nbytes = (size_t)ftell(file);
    rewind(file);
    module->text = calloc(1, nbytes + 1);
    const size_t nread = fread(module->text, 1, nbytes, file);
    fclose(file);
    return nread == nbytes;
}

static ptx_kernel_t *read_kernel(const char *module, const char *name)
{
    char report[PTX_REPORT_NBYTES];
    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++) {
        if (strcmp(modules[i].name, module) != 0 || !read_module(&modules[i])) continue;
        ptx_kernel_t *kernel = ptx_kernel_create(modules[i].file, modules[i].text, name, report);
        if (kernel == NULL) fprintf(stderr, "fake_cuda: %s\n", report);
        return kernel;
    }
    return NULL;
}

CUresult fake_run_ptx(int device, const char *name, const void *arguments, size_t nbytes,
                      unsigned grid, unsigned block_x, unsigned block_y)
{
    static int counts = -1;
    char report[PTX_REPORT_NBYTES];
    size_t i = 0;
    if (counts < 0 && (counts = getenv("FAKE_CUDA_PTX_COUNTS") != NULL)) atexit(write_counts);
    while (i < KERNELS && strcmp(kernels[i].name, name) != 0) i++;
    if (i == KERNELS) return CUDA_ERROR_NOT_FOUND;
    if (kernels[i].kernel == NULL) kernels[i].kernel = read_kernel(kernels[i].module, name);
    if (kernels[i].kernel == NULL) return CUDA_ERROR_INVALID_PTX;
    const ptx_launch_t launch = { .kernel = kernels[i].kernel,
                                  .grid = grid,
                                  .block_x = block_x,
                                  .block_y = block_y,
                                  .arguments = arguments,
                                  .arguments_nbytes = nbytes,
                                  .device = device,
                                  .translate = fake_translate,
                                  .counts = counts ? &kernels[i].counts : NULL };
    const ptx_fault_t fault = ptx_run(&launch, report);
    if (fault != PTX_OK) fprintf(stderr, "fake_cuda: %s\n", report);
    return fault == PTX_OK           ? CUDA_SUCCESS
           : fault == PTX_MISALIGNED ? CUDA_ERROR_MISALIGNED_ADDRESS
           : fault == PTX_BARRIER    ? CUDA_ERROR_LAUNCH_TIMEOUT
                                     : CUDA_ERROR_ILLEGAL_ADDRESS;
}
