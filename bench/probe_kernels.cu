/* Kernels that do nothing, for cuda_probe.c: what a launch costs depends on how many bytes of
 * arguments it carries. */

template <int nbytes> struct arguments {
    unsigned long long words[nbytes / 8];
};

extern "C" __global__ void probe_8(arguments<8>) {}
extern "C" __global__ void probe_128(arguments<128>) {}
extern "C" __global__ void probe_2120(arguments<2120>) {}
