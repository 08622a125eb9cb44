/* The fake's devices: their number, names, attributes, and peer access. Not here: contexts
 * (fake_context.c). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/fake_cuda/fake.h"

uint64_t fake_cudnn_scratch = 4096;
void fake_cuda_dnn_scratch(uint64_t nbytes) { fake_cudnn_scratch = nbytes; }

CUresult fake_cuDeviceGetCount(int *count)
{
    int code = fake_enter(FAKE_cuDeviceGetCount);
    *count = code == 0 ? FAKE_DEVICES : 0;
    return (CUresult)fake_leave(code);
}

CUresult fake_cuDeviceGet(CUdevice *device, int ordinal)
{
    int code = fake_enter(FAKE_cuDeviceGet);
    *device = ordinal;
    if (code == 0 && (ordinal < 0 || ordinal >= FAKE_DEVICES)) code = CUDA_ERROR_INVALID_DEVICE;
    return (CUresult)fake_leave(code);
}

CUresult fake_cuDeviceGetName(char *name, int len, CUdevice device)
{
    (void)device;
    int code = fake_enter(FAKE_cuDeviceGetName);
    if (code == 0) strncpy(name, "Fake GPU (no kernel runs here)", (size_t)len);
    return (CUresult)fake_leave(code);
}

CUresult fake_cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    (void)device;
    int code = fake_enter(FAKE_cuDeviceGetAttribute);
    switch ((int)attribute) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = FAKE_PROCESSORS; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = 9; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = 0; break;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE: *value = 1500000; break;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE: *value = 2600000; break;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH: *value = 5120; break;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: *value = 50 << 20; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: *value = 228 << 10; break;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT: *value = 3; break;
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: *value = 1; break;
    case CU_DEVICE_ATTRIBUTE_ECC_ENABLED: *value = 1; break;
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
        *value = getenv("FAKE_CUDA_NO_MEM_OPS") == NULL;
        break;
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
        *value = getenv("FAKE_CUDA_NO_HOST_POINTERS") == NULL;
        break;
    default: *value = 0; code = CUDA_ERROR_INVALID_VALUE;
    }
    return (CUresult)fake_leave(code);
}

CUresult fake_cuDeviceGetPCIBusId(char *bus, int len, CUdevice device)
{
    int code = fake_enter(FAKE_cuDeviceGetPCIBusId);
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    if (rank == NULL) rank = getenv("PMI_RANK");
    if (getenv("FAKE_CUDA_SHARED") != NULL) rank = NULL; /* else each rank has its own cards */
    if (code == 0)
        snprintf(bus, (size_t)len, "%04x:%02x:00.0", rank != NULL ? atoi(rank) : 0, 0x1b + device);
    return (CUresult)fake_leave(code);
}

CUresult fake_cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
    int code = fake_enter(FAKE_cuDeviceCanAccessPeer);
    *can = code == 0 && device != peer;
    return (CUresult)fake_leave(code);
}

CUresult fake_cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice device,
                                      CUdevice peer)
{
    int code = fake_enter(FAKE_cuDeviceGetP2PAttribute);
    *value = 0;
    /* as the driver's documentation says */
    if (code == 0 && device == peer) code = CUDA_ERROR_INVALID_DEVICE;
    if (code == 0) *value = attribute == CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED;
    return (CUresult)fake_leave(code);
}
