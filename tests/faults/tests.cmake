# These tests make host allocations fail, also in the library's objects
# (tests/support/host_memory.h).
foreach(name test_faults_autocast test_faults_dlpack test_faults_gradient test_faults_graph test_faults_norms
        test_faults_kernel test_faults_unowned test_faults_recording test_faults_event_readers)
    if(TARGET ${name})
        target_link_options(${name} PRIVATE
            -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=aligned_alloc)
    endif()
endforeach()
# And reads and writes (tests/support/host_files.h).
foreach(name test_faults_recording test_faults_event_readers)
    if(TARGET ${name})
        target_link_options(${name} PRIVATE -Wl,--wrap=read,--wrap=write)
    endif()
endforeach()
