# Fails the segments that cells are cut from.
if(TARGET test_unit_runtime_cell)
    target_link_options(test_unit_runtime_cell PRIVATE -Wl,--wrap=fy__host_segment_alloc)
endif()
