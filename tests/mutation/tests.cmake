# Both tests run the same programs and use the same trace.
foreach(name orders waits)
    if(TARGET test_mutation_${name})
        target_sources(test_mutation_${name} PRIVATE
            ${CMAKE_CURRENT_LIST_DIR}/run.c
            ${CMAKE_CURRENT_LIST_DIR}/programs.c
            ${CMAKE_CURRENT_LIST_DIR}/programs_queue.c
            ${CMAKE_CURRENT_LIST_DIR}/programs_graphs.c
            ${CMAKE_CURRENT_LIST_DIR}/programs_lifetimes.c
            ${CMAKE_CURRENT_LIST_DIR}/programs_memory.c
            ${CMAKE_CURRENT_LIST_DIR}/programs_streams.c
            ${CMAKE_CURRENT_LIST_DIR}/programs_transfers.c)
    endif()
endforeach()
