# Compiled CUDA kernels for several build folders. Included by cuda.cmake.
# Build folders below the source tree's build/, such as those of presets, share one folder.
set(ferry_kernel_cache ${PROJECT_SOURCE_DIR}/build)
cmake_path(IS_PREFIX ferry_kernel_cache ${PROJECT_BINARY_DIR} is_shared)
if(NOT is_shared)
    set(ferry_kernel_cache ${PROJECT_BINARY_DIR})
endif()
set(FERRY_KERNEL_CACHE ${ferry_kernel_cache}/kernels CACHE PATH "Folder of compiled CUDA kernels, for several build folders")

# ferry_compile_once(OUTPUT SOURCE [LAUNCHER...] -- COMPILER FLAG...)
function(ferry_compile_once output source)
    get_filename_component(name ${output} NAME)
    add_custom_command(
        OUTPUT ${output}
        COMMAND bash ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/compile-once.sh ${FERRY_KERNEL_CACHE} ${output} ${ARGN} ${source}
        DEPENDS ${source} ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/compile-once.sh
        DEPFILE ${output}.d
        WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
        COMMENT "Compiling CUDA kernels ${name}"
        VERBATIM)
endfunction()
