# These tests make host allocations fail, also in the library's objects
# (tests/support/host_memory.h).
foreach(name test_faults_autocast test_faults_dlpack test_faults_gradient test_faults_graph
        test_faults_kernel test_faults_unowned)
    if(TARGET ${name})
        target_link_options(${name} PRIVATE
            -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=aligned_alloc)
    endif()
endforeach()
