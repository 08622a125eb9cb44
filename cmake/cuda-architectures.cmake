# Sets ferry_cuda_architectures, the sorted list of compute capabilities for the CUDA kernels. The
# last one is also stored as PTX, which the driver compiles for newer cards when it loads the
# plugin. Included by cuda.cmake (needs FERRY_NVCC).
#   auto   the cards of this machine (nvidia-smi); without a card, or without one that this nvcc knows, 80
#   all    every capability below, as for a release (preset cuda); takes five times as long
#   LIST   those, for example -DFERRY_CUDA_ARCHITECTURES="80;90"
# Why 80: its code runs on every card of compute capability 8.x, its PTX on anything newer, and bf16
# tensor cores begin there. Only 7.5 needs a separate build.
set(FERRY_CUDA_ARCHITECTURES auto CACHE STRING "Compute capabilities for the CUDA kernels: auto (this machine's cards, else 80), all, or a list")
set(FERRY_CUDA_ALL_ARCHITECTURES 75 80 86 89 90)

# Sets `out` to the compute capabilities of this machine's cards, as 90 for 9.0; empty if nvidia-smi
# is missing or finds none.
function(ferry_find_cards out)
    set(cards)
    ferry_find(program FERRY_NVIDIA_SMI nvidia-smi)
    if(FERRY_NVIDIA_SMI)
        execute_process(COMMAND ${FERRY_NVIDIA_SMI} --query-gpu=compute_cap --format=csv,noheader OUTPUT_VARIABLE lines ERROR_QUIET
                        RESULT_VARIABLE failed TIMEOUT 30)
        if(NOT failed)
            string(REGEX MATCHALL "[0-9]+\\.[0-9]" cards "${lines}")
            list(TRANSFORM cards REPLACE "\\." "")
        endif()
    endif()
    set(${out} ${cards} PARENT_SCOPE)
endfunction()

string(TOLOWER "${FERRY_CUDA_ARCHITECTURES}" ferry_cuda_architectures)
if(ferry_cuda_architectures STREQUAL "all")
    set(ferry_cuda_architectures ${FERRY_CUDA_ALL_ARCHITECTURES})
    set(why "all")
elseif(ferry_cuda_architectures STREQUAL "auto")
    ferry_find_cards(ferry_cuda_architectures)
    set(why "the cards of this machine")
    execute_process(COMMAND ${FERRY_NVCC} --list-gpu-arch OUTPUT_VARIABLE known ERROR_QUIET)
    string(REGEX MATCHALL "[0-9]+" known "${known}")
    foreach(arch ${ferry_cuda_architectures})
        if(arch LESS 75)
            message(STATUS "CUDA: this machine's card of compute capability ${arch} is too old for Ferry's kernels (75)")
            list(REMOVE_ITEM ferry_cuda_architectures ${arch})
        elseif(known AND NOT arch IN_LIST known)
            message(STATUS "CUDA: ${FERRY_NVCC} does not know this machine's compute capability ${arch}; its driver compiles PTX instead")
            list(REMOVE_ITEM ferry_cuda_architectures ${arch})
        endif()
    endforeach()
    if(NOT ferry_cuda_architectures)
        set(ferry_cuda_architectures 80)
        set(why "no card found here")
    endif()
else()
    set(why "as asked")
endif()
list(REMOVE_DUPLICATES ferry_cuda_architectures)
list(SORT ferry_cuda_architectures COMPARE NATURAL)
foreach(arch ${ferry_cuda_architectures})
    if(NOT arch MATCHES "^[0-9]+[af]?$")
        message(FATAL_ERROR "FERRY_CUDA_ARCHITECTURES: '${arch}' is no compute capability: write auto, all, or numbers like 80;90 (9.0 is 90)")
    endif()
endforeach()
list(GET ferry_cuda_architectures -1 arch)
list(JOIN ferry_cuda_architectures " " names)
message(STATUS "CUDA plugin is built for compute capability ${names}, PTX ${arch} (${why}; -DFERRY_CUDA_ARCHITECTURES=all for every card)")
