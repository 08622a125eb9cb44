/* FAKE_CUDA_KERNELS=ptx: runs a launch by the PTX that nvcc made of the kernel (target ferry_ptx),
 * with device addresses, on the machine in ptx/. A fault is printed and counted; the launch then
 * fails as on a card. README.md documents FAKE_CUDA_PTX_COUNTS and FAKE_CUDA_PTX_DIR. */
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

static const char *counts_path;
static int has_lines; /* FAKE_CUDA_PTX_LAUNCHES */
static uint64_t nfaults;

uint64_t fake_cuda_faults(void)
{
    fake_lock();
    const uint64_t n = nfaults;
    nfaults = 0;
    fake_unlock();
    return n;
}

/* Other processes write to the file, too: the buffer is written at once. */
static FILE *open_counts(void)
{
    FILE *file = counts_path == NULL ? NULL : fopen(counts_path, "a");
    if (file != NULL) setvbuf(file, NULL, _IOFBF, 1 << 16);
    return file;
}
static void close_counts(FILE *file)
{
    if (file == NULL || fclose(file) != 0) perror("FAKE_CUDA_PTX_COUNTS");
}

static void print_counts(FILE *file, const char *name, const ptx_counts_t *counts)
{
    fprintf(file, "%s\t%llu\t%llu\t%llu\t%llu\t%llu\n", name, (unsigned long long)counts->launches,
            (unsigned long long)counts->instructions, (unsigned long long)counts->sectors_read,
            (unsigned long long)counts->sectors_written,
            (unsigned long long)counts->bank_conflicts);
}

static void write_counts(void)
{
    FILE *file = open_counts();
    for (size_t i = 0; file != NULL && i < KERNELS; i++)
        if (kernels[i].counts.launches > 0) print_counts(file, kernels[i].name, &kernels[i].counts);
    close_counts(file);
}

static void add_launch(ptx_counts_t *all, const char *name, const ptx_counts_t *counts)
{
    all->launches += counts->launches;
    all->instructions += counts->instructions;
    all->sectors_read += counts->sectors_read;
    all->sectors_written += counts->sectors_written;
    all->bank_conflicts += counts->bank_conflicts;
    if (has_lines && counts->launches > 0) print_counts(stderr, name, counts);
}

static CUresult record_fault(const char *kernel, const char *report, CUresult code)
{
    fprintf(stderr, "fake_cuda: %s\n", report);
    nfaults++;
    if (counts_path == NULL) return code;
    FILE *file = open_counts();
    if (file != NULL) fprintf(file, "fault\t%s\n", kernel);
    close_counts(file);
    return code;
}

/* Returns whether its text is there. */
static int read_module(module_t *module, char report[PTX_REPORT_NBYTES])
{
    if (module->text != NULL) return 1;
    const char *folder = getenv("FAKE_CUDA_PTX_DIR");
    if (folder == NULL) folder = FAKE_CUDA_PTX_DIR;
    const size_t room = strlen(folder) + strlen(module->name) + 8;
    if ((module->file = malloc(room)) == NULL) return 0;
    snprintf(module->file, room, "%s/%s.ptx", folder, module->name);
    FILE *file = fopen(module->file, "r");
    const long nbytes = file == NULL || fseek(file, 0, SEEK_END) != 0 ? -1 : ftell(file);
    if (nbytes >= 0 && fseek(file, 0, SEEK_SET) == 0) module->text = calloc(1, (size_t)nbytes + 1);
    const int is_read = module->text != NULL &&
                        fread(module->text, 1, (size_t)nbytes, file) == (size_t)nbytes;
    if (file != NULL) fclose(file);
    if (is_read) return 1;
    snprintf(report, PTX_REPORT_NBYTES, "%s cannot be read: build the target ferry_ptx",
             module->file);
    free(module->text);
    free(module->file);
    module->text = module->file = NULL;
    return 0;
}

static ptx_kernel_t *read_kernel(const char *module, const char *name,
                                 char report[PTX_REPORT_NBYTES])
{
    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++)
        if (strcmp(modules[i].name, module) == 0 && read_module(&modules[i], report))
            return ptx_kernel_create(modules[i].file, modules[i].text, name, report);
    return NULL;
}

/* A kernel that cannot be run is a fault: the plugin must not choose another one. */
CUresult fake_run_ptx(int device, const char *name, const void *arguments, size_t nbytes,
                      unsigned grid, unsigned block_x, unsigned block_y)
{
    static int has_begun;
    char report[PTX_REPORT_NBYTES] = "no memory";
    ptx_counts_t counts = { 0 };
    size_t i = 0;
    if (!has_begun && (counts_path = getenv("FAKE_CUDA_PTX_COUNTS")) != NULL) atexit(write_counts);
    if (!has_begun) has_lines = getenv("FAKE_CUDA_PTX_LAUNCHES") != NULL;
    has_begun = 1;
    while (i < KERNELS && strcmp(kernels[i].name, name) != 0) i++;
    if (i == KERNELS) return CUDA_ERROR_NOT_FOUND;
    if (kernels[i].kernel == NULL) kernels[i].kernel = read_kernel(kernels[i].module, name, report);
    if (kernels[i].kernel == NULL) return record_fault(name, report, CUDA_ERROR_LAUNCH_FAILED);
    const ptx_launch_t launch = { .kernel = kernels[i].kernel,
                                  .grid = grid,
                                  .block_x = block_x,
                                  .block_y = block_y,
                                  .arguments = arguments,
                                  .arguments_nbytes = nbytes,
                                  .device = device,
                                  .translate = fake_translate,
                                  .counts = counts_path != NULL || has_lines ? &counts : NULL };
    const ptx_fault_t fault = ptx_run(&launch, report);
    add_launch(&kernels[i].counts, name, &counts);
    switch (fault) {
    case PTX_OK: return CUDA_SUCCESS;
    case PTX_MISALIGNED: return record_fault(name, report, CUDA_ERROR_MISALIGNED_ADDRESS);
    case PTX_BARRIER:
    case PTX_ENDLESS: return record_fault(name, report, CUDA_ERROR_LAUNCH_TIMEOUT);
    case PTX_ARGUMENTS:
    case PTX_UNKNOWN: return record_fault(name, report, CUDA_ERROR_LAUNCH_FAILED);
    default: return record_fault(name, report, CUDA_ERROR_ILLEGAL_ADDRESS);
    }
}
