# Fill, or fail, the segments that slots are cut from.
foreach(name test_unit_runtime_slot test_unit_runtime_slot_chunks)
    if(TARGET ${name})
        target_link_options(${name} PRIVATE -Wl,--wrap=fy__host_segment_alloc)
    endif()
endforeach()
# Puts the test's own functions in the place of the system's, for the library's objects, too.
if(TARGET test_unit_runtime_input)
    target_link_options(test_unit_runtime_input PRIVATE
        -Wl,--wrap=open,--wrap=fstat,--wrap=read,--wrap=poll,--wrap=fcntl,--wrap=malloc,--wrap=realloc)
endif()
