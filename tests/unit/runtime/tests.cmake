# Fill, or fail, the segments that cells are cut from.
foreach(name test_unit_runtime_cell test_unit_runtime_cell_chunks)
    if(TARGET ${name})
        target_link_options(${name} PRIVATE -Wl,--wrap=fy__host_segment_alloc)
    endif()
endforeach()
