# Fails the host's allocator, for the library's objects, too.
if(TARGET test_faults_graph)
    target_link_options(test_faults_graph PRIVATE
        -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=aligned_alloc)
endif()
