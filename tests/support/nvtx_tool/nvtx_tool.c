/* A profiler for tests: an NVTX injection library (NVTX_INJECTION64_PATH) that records its calls.
 * "+name": a range begins, "-": the innermost ends, each followed by a space; the first has the
 * domain's name before it. One thread. */
#include <nvtx3/nvToolsExt.h>

#include <stdio.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

static char told[16384];
static size_t used;
static struct domain {
    char name[32];
} domains[8];
static int ndomains;

static void tell(const char *sign, const char *text)
{
    if (used < sizeof told)
        used += (size_t)snprintf(told + used, sizeof told - used, "%s%s ", sign, text);
}

static nvtxDomainHandle_t NVTX_API create(const char *name)
{
    if (ndomains == 8) return NULL;
    snprintf(domains[ndomains].name, sizeof domains[ndomains].name, "%s", name);
    return (nvtxDomainHandle_t)&domains[ndomains++];
}

static int NVTX_API push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *attributes)
{
    if (attributes->version != NVTX_VERSION || attributes->messageType != NVTX_MESSAGE_TYPE_ASCII) {
        tell("?", "attributes");
        return 0;
    }
    if (used == 0) tell("", ((struct domain *)domain)->name);
    tell("+", attributes->message.ascii);
    return 0;
}

static int NVTX_API pop(nvtxDomainHandle_t domain)
{
    (void)domain;
    tell("-", "");
    return 0;
}

EXPORT int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table);
EXPORT int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table)
{
    const NvtxExportTableCallbacks *callbacks = get_table(NVTX_ETID_CALLBACKS);
    NvtxFunctionTable table;
    unsigned int size = 0;
    if (callbacks == NULL ||
        !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) ||
        size <= NVTX_CBID_CORE2_DomainCreateA)
        return 0;
    *table[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer)create;
    *table[NVTX_CBID_CORE2_DomainRangePushEx] = (NvtxFunctionPointer)push;
    *table[NVTX_CBID_CORE2_DomainRangePop] = (NvtxFunctionPointer)pop;
    return 1;
}

/* Returns the records since the last call. */
EXPORT const char *nvtx_tool_told(void);
EXPORT const char *nvtx_tool_told(void)
{
    static char out[sizeof told];
    memcpy(out, told, sizeof out);
    out[sizeof out - 1] = '\0';
    used = 0;
    told[0] = '\0';
    return out;
}
