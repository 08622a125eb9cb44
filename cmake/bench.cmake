# bench/*.c: one program each, on the public API. bench/peers_*: against other libraries; only with
# FERRY_BENCH_PEERS, since nothing else of Ferry needs those libraries.
file(GLOB bench_sources CONFIGURE_DEPENDS bench/*.c)
list(FILTER bench_sources EXCLUDE REGEX "/(peers_|cuda_probe)[^/]*$")
if(NOT FERRY_DNNL)
    list(FILTER bench_sources EXCLUDE REGEX "/dispatch_floor\\.c$") # calls oneDNN itself
    if(FERRY_BENCH_PEERS)
        message(FATAL_ERROR "FERRY_BENCH_PEERS compares with oneDNN: it needs FERRY_DNNL=ON")
    endif()
endif()

function(ferry_bench source)
    get_filename_component(name ${source} NAME_WE)
    add_executable(bench_${name} ${source})
    set_target_properties(bench_${name} PROPERTIES OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin/bench)
    ferry_program(bench_${name})
    if(FERRY_DNNL)
        target_include_directories(bench_${name} SYSTEM PRIVATE ${DNNL_INCLUDE_DIR})
        target_link_libraries(bench_${name} PRIVATE ${DNNL_LIBRARY})
    endif()
endfunction()

foreach(source ${bench_sources})
    ferry_bench(${source})
endforeach()

# Calls of the CUDA driver alone: nothing of Ferry is linked. Needs nvcc for its empty kernels.
if(FERRY_CUDA_BUILT)
    set(probe_fatbin ${FERRY_FATBIN_DIR}/probe_kernels.fatbin)
    add_custom_command(
        OUTPUT ${probe_fatbin}
        COMMAND ${CMAKE_CUDA_COMPILER_LAUNCHER} ${FERRY_NVCC} ${FERRY_NVCC_FLAGS} ${ferry_fatbin_flags} -o ${probe_fatbin} ${PROJECT_SOURCE_DIR}/bench/probe_kernels.cu
        DEPENDS ${PROJECT_SOURCE_DIR}/bench/probe_kernels.cu
        COMMENT "Compiling CUDA kernels probe_kernels.cu"
        VERBATIM)
    add_executable(bench_cuda_probe bench/cuda_probe.c ${probe_fatbin})
    set_source_files_properties(bench/cuda_probe.c PROPERTIES OBJECT_DEPENDS ${probe_fatbin})
    set_target_properties(bench_cuda_probe PROPERTIES OUTPUT_NAME cuda_probe RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin/bench)
    target_compile_options(bench_cuda_probe PRIVATE ${FERRY_WARNINGS})
    target_compile_definitions(bench_cuda_probe PRIVATE FERRY_PROBE_FATBIN="${probe_fatbin}")
    target_include_directories(bench_cuda_probe SYSTEM PRIVATE ${FERRY_CUDA_INCLUDE_DIR})
    target_link_libraries(bench_cuda_probe PRIVATE ${CMAKE_DL_LIBS})
endif()

if(FERRY_BENCH_PEERS)
    enable_language(CXX)
    ferry_forget_removed(TORCH_INCLUDE_DIR torch/csrc/api/include/torch/torch.h)
    ferry_forget_removed(MIMALLOC_INCLUDE_DIR mimalloc.h)
    ferry_forget_removed(TORCH_LIBRARY)
    ferry_forget_removed(TORCH_CPU_LIBRARY)
    ferry_forget_removed(C10_LIBRARY)
    ferry_forget_removed(MIMALLOC_LIBRARY)
    find_path(TORCH_INCLUDE_DIR torch/csrc/api/include/torch/torch.h)
    find_library(TORCH_LIBRARY torch)
    find_library(TORCH_CPU_LIBRARY torch_cpu)
    find_library(C10_LIBRARY c10)
    find_path(MIMALLOC_INCLUDE_DIR mimalloc.h PATH_SUFFIXES mimalloc-2.0)
    find_library(MIMALLOC_LIBRARY mimalloc)
    if(NOT TORCH_INCLUDE_DIR OR NOT TORCH_CPU_LIBRARY)
        message(FATAL_ERROR "FERRY_BENCH_PEERS needs libtorch (Debian: libtorch-dev)")
    endif()
    file(GLOB peer_sources CONFIGURE_DEPENDS bench/peers_*.c bench/peers_*.cpp)
    # What `ferry bench` and the comparisons both run.
    set(shared_peers_train tools/train/small_train.c)
    set(shared_peers_images tools/train/image_train.c tools/train/small_train.c tools/bench/roofline.c)
    foreach(source ${peer_sources})
        ferry_bench(${source})
        get_filename_component(name ${source} NAME_WE)
        target_sources(bench_${name} PRIVATE ${shared_${name}})
        target_include_directories(bench_${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
        target_include_directories(bench_${name} SYSTEM PRIVATE ${TORCH_INCLUDE_DIR} ${TORCH_INCLUDE_DIR}/torch/csrc/api/include)
        target_link_libraries(bench_${name} PRIVATE ${TORCH_LIBRARY} ${TORCH_CPU_LIBRARY} ${C10_LIBRARY})
        if(MIMALLOC_INCLUDE_DIR AND MIMALLOC_LIBRARY)
            # The program must not carry mimalloc as its malloc; a comparison asks for the library
            # by dlopen or by these symbols.
            target_include_directories(bench_${name} SYSTEM PRIVATE ${MIMALLOC_INCLUDE_DIR})
            target_compile_definitions(bench_${name} PRIVATE FERRY_MIMALLOC_LIBRARY="${MIMALLOC_LIBRARY}")
        endif()
    endforeach()
endif()
