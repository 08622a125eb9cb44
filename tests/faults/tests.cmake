# They fail the host's allocator, for the library's objects, too (tests/support/host_memory.h).
foreach(name test_faults_graph test_faults_kernel)
    if(TARGET ${name})
        target_link_options(${name} PRIVATE
            -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=aligned_alloc)
    endif()
endforeach()
