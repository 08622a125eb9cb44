# The CUDA plugin, libferry_cuda.so, and the fake driver that tests it where there is no GPU.
# Included when nvcc was found (FERRY_NVCC).
# Kernels are compiled to one fatbin a file and carried as bytes; the plugin itself is plain C and
# links neither libcuda nor cudart.

get_filename_component(ferry_cuda_bin ${FERRY_NVCC} REALPATH)
get_filename_component(ferry_cuda_bin ${ferry_cuda_bin} DIRECTORY)
get_filename_component(ferry_cuda_root ${ferry_cuda_bin} DIRECTORY)
ferry_find(path FERRY_CUDA_INCLUDE_DIR cudaTypedefs.h HINTS ${ferry_cuda_root}/include ${ferry_cuda_root}/targets/x86_64-linux/include
          ${ferry_cuda_root}/targets/sbsa-linux/include)
ferry_find(path FERRY_CUBLASLT_INCLUDE_DIR cublasLt.h HINTS ${FERRY_CUDA_INCLUDE_DIR})
if(NOT FERRY_CUDA_INCLUDE_DIR OR NOT FERRY_CUBLASLT_INCLUDE_DIR)
    message(FATAL_ERROR "nvcc is ${FERRY_NVCC}, but cudaTypedefs.h or cublasLt.h is missing: install the toolkit's headers (cuBLAS development "
                        "package), or configure with -DFERRY_CUDA=OFF")
endif()

# cuDNN is found at run time; its header says how it is called. Without it the plugin has its own
# kernels only.
ferry_find(path FERRY_CUDNN_INCLUDE_DIR cudnn.h HINTS ${FERRY_CUDA_INCLUDE_DIR})
set(ferry_cudnn_files ${PROJECT_SOURCE_DIR}/backends/cuda/dnn.c ${PROJECT_SOURCE_DIR}/backends/cuda/dnn_library.c
    ${PROJECT_SOURCE_DIR}/tests/support/fake_cuda/fake_cudnn.c)
if(FERRY_CUDNN_INCLUDE_DIR)
    file(STRINGS ${FERRY_CUDNN_INCLUDE_DIR}/cudnn_version.h ferry_cudnn_major REGEX "define CUDNN_MAJOR 9")
endif()
if(NOT ferry_cudnn_major)
    message(STATUS "cudnn.h of version 9 was not found: convolutions on cuda run Ferry's own kernels only")
    set_source_files_properties(${ferry_cudnn_files} PROPERTIES HEADER_FILE_ONLY ON)
endif()

include(cmake/cuda-architectures.cmake)
set(FERRY_NVCC_FLAGS -std=c++17 -O3 ${FERRY_WERROR_NVCC_FLAGS} -Xcompiler -Wall)
foreach(arch ${ferry_cuda_architectures})
    list(APPEND FERRY_NVCC_FLAGS -gencode arch=compute_${arch},code=sm_${arch})
endforeach()
list(GET ferry_cuda_architectures -1 arch)
list(APPEND FERRY_NVCC_FLAGS -gencode arch=compute_${arch},code=compute_${arch})

# As CMake does for languages that it knows: the variable of the environment is the default.
set(CMAKE_CUDA_COMPILER_LAUNCHER "$ENV{CMAKE_CUDA_COMPILER_LAUNCHER}" CACHE STRING "Program that runs nvcc, such as ccache")

include(cmake/compile-once.cmake)
file(GLOB kernel_files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/backends/cuda/kernels/*.cu)
# ferry_compile_kernels(OUT FOLDER EXTENSION COMMAND...): sets OUT to the compiled files.
function(ferry_compile_kernels out folder extension)
    file(MAKE_DIRECTORY ${folder})
    set(compiled)
    foreach(source ${kernel_files})
        get_filename_component(name ${source} NAME_WE)
        ferry_compile_once(${folder}/${name}.${extension} ${source} ${ARGN})
        list(APPEND compiled ${folder}/${name}.${extension})
    endforeach()
    set(${out} ${compiled} PARENT_SCOPE)
endfunction()
set(FERRY_FATBIN_DIR ${PROJECT_BINARY_DIR}/fatbin)
set(ferry_nvcc ${CMAKE_CUDA_COMPILER_LAUNCHER} -- ${FERRY_NVCC} -fatbin ${FERRY_NVCC_FLAGS} -I${PROJECT_SOURCE_DIR} -I${PROJECT_SOURCE_DIR}/include)
ferry_compile_kernels(fatbins ${FERRY_FATBIN_DIR} fatbin ${ferry_nvcc})

# Sources that see the toolkit's headers and, if it is there, cuDNN's.
function(ferry_cuda_headers target)
    target_include_directories(${target} SYSTEM PRIVATE ${FERRY_CUDA_INCLUDE_DIR} ${FERRY_CUBLASLT_INCLUDE_DIR})
    if(ferry_cudnn_major)
        target_compile_definitions(${target} PRIVATE FERRY_HAS_CUDNN)
        target_include_directories(${target} SYSTEM PRIVATE ${FERRY_CUDNN_INCLUDE_DIR})
    endif()
endfunction()

# ---- the plugin ----------------------------------------------------------------------------------
file(GLOB cuda_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/backends/cuda/*.c)
add_library(ferry_cuda MODULE ${cuda_sources} ${fatbins})
set_source_files_properties(${PROJECT_SOURCE_DIR}/backends/cuda/fatbins.c PROPERTIES OBJECT_DEPENDS "${fatbins}")
ferry_library_flags(ferry_cuda)
target_compile_definitions(ferry_cuda PRIVATE FERRY_FATBIN_DIR="${FERRY_FATBIN_DIR}")
ferry_cuda_headers(ferry_cuda)
target_link_libraries(ferry_cuda PRIVATE ${CMAKE_DL_LIBS} Threads::Threads)
target_link_options(ferry_cuda PRIVATE LINKER:-z,nodelete LINKER:--as-needed)
if(NOT FERRY_SANITIZE)
    target_link_options(ferry_cuda PRIVATE LINKER:-z,defs)
endif()
set_target_properties(ferry_cuda PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${FERRY_PLUGIN_OUTPUT_DIRECTORY} LINKER_LANGUAGE C
                      INTERPROCEDURAL_OPTIMIZATION OFF) # inline assembly carries the fatbins
if(FERRY_INSTALL)
    install(TARGETS ferry_cuda LIBRARY DESTINATION ${FERRY_PLUGIN_INSTALL_DIRECTORY})
endif()

# ---- for tests only: a driver and a cuBLASLt made of host memory and host kernels ----------------
if(FERRY_TESTS)
    file(GLOB fake_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/support/fake_cuda/*.c)
    # The kernels' PTX, for the fake driver (FAKE_CUDA_KERNELS=ptx); built only if it is asked for.
    set(FERRY_PTX_DIR ${PROJECT_BINARY_DIR}/ptx)
    set(ferry_ptx_command ${CMAKE_CUDA_COMPILER_LAUNCHER} -- ${FERRY_NVCC} -ptx -lineinfo -std=c++17 -O3 -arch=compute_80 -I${PROJECT_SOURCE_DIR}
        -I${PROJECT_SOURCE_DIR}/include)
    ferry_compile_kernels(ptx_files ${FERRY_PTX_DIR} ptx ${ferry_ptx_command})
    add_custom_target(ferry_ptx DEPENDS ${ptx_files})
    # The PTX machine. Some instructions have a rounding mode; -O3 makes vectors of lanes.
    file(GLOB ptx_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/support/fake_cuda/ptx/*.c)
    add_library(fake_ptx OBJECT ${ptx_sources})
    ferry_library_flags(fake_ptx)
    target_compile_options(fake_ptx PRIVATE -O3 -frounding-math -ffp-contract=off)
    add_library(fake_cuda MODULE ${fake_sources} $<TARGET_OBJECTS:fake_ptx> $<TARGET_OBJECTS:ferry_kernels> ${PROJECT_SOURCE_DIR}/runtime/base/dtype.c)
    ferry_library_flags(fake_cuda)
    target_compile_definitions(fake_cuda PRIVATE FAKE_CUDA_PTX_DIR="${FERRY_PTX_DIR}")
    ferry_cuda_headers(fake_cuda)
    target_link_libraries(fake_cuda PRIVATE ferry_dependencies Threads::Threads m)
    set_target_properties(fake_cuda PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib/tests LINKER_LANGUAGE C)
    if(EXISTS ${FERRY_CUDA_INCLUDE_DIR}/nvtx3/nvToolsExt.h) # a profiler for tests
        add_library(nvtx_tool MODULE ${PROJECT_SOURCE_DIR}/tests/support/nvtx_tool/nvtx_tool.c
                    ${PROJECT_SOURCE_DIR}/tests/support/nvtx_tool/nvtx_memory.c)
        ferry_library_flags(nvtx_tool)
        target_include_directories(nvtx_tool SYSTEM PRIVATE ${FERRY_CUDA_INCLUDE_DIR})
        set_target_properties(nvtx_tool PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib/tests LINKER_LANGUAGE C)
    endif()
endif()
