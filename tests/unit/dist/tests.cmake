# One rank each, on the shared libraries: test_*.sh start them by mpirun.
foreach(program ranks ddp shards norms faults native)
    add_executable(${program} ${CMAKE_CURRENT_SOURCE_DIR}/unit/dist/${program}.c)
    ferry_program(${program})
    target_link_libraries(${program} PRIVATE ferry_dist)
    set_target_properties(${program} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin/tests)
endforeach()
foreach(mpi IN LISTS FERRY_MPIS)
    add_library(count_mpi_${mpi} MODULE ${CMAKE_CURRENT_SOURCE_DIR}/unit/dist/count_mpi.c)
    target_include_directories(count_mpi_${mpi} SYSTEM PRIVATE $<TARGET_PROPERTY:ferry_mpi_${mpi},INCLUDE_DIRECTORIES>)
    target_link_libraries(count_mpi_${mpi} PRIVATE $<TARGET_PROPERTY:ferry_mpi_${mpi},LINK_LIBRARIES>)
    set_target_properties(count_mpi_${mpi} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib/tests)
endforeach()
# Ranks in one process, on the objects of libferry_dist.
target_link_libraries(test_unit_dist PRIVATE ferry_dist_static)
# Ranks that wait for each other spin: two such tests at once would take more than twice as long.
foreach(name faults native norms planned ranks shards)
    set_tests_properties(unit_dist_${name} PROPERTIES RESOURCE_LOCK mpirun)
endforeach()
