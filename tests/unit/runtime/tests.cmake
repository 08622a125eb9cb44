# Fills the segments that slots are cut from with old contents, or refuses them.
foreach(name test_unit_runtime_slot test_unit_runtime_slot_chunks)
    if(TARGET ${name})
        target_link_options(${name} PRIVATE -Wl,--wrap=fy__host_segment_alloc)
    endif()
endforeach()
# Replaces the system's functions by those of the test, also in the library's objects.
if(TARGET test_unit_runtime_input)
    target_link_options(test_unit_runtime_input PRIVATE
        -Wl,--wrap=open,--wrap=fstat,--wrap=read,--wrap=poll,--wrap=fcntl,--wrap=malloc,--wrap=realloc)
endif()
