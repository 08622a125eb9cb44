# Counted by test_growth.sh under valgrind, which does not run programs of a sanitizer.
ferry_find(path VALGRIND_INCLUDE_DIR valgrind/callgrind.h)
if(VALGRIND_INCLUDE_DIR AND NOT FERRY_SANITIZE AND NOT FERRY_COVERAGE)
    add_executable(growth ${CMAKE_CURRENT_SOURCE_DIR}/unit/runtime/growth.c)
    ferry_program(growth)
    target_include_directories(growth PRIVATE ${VALGRIND_INCLUDE_DIR})
    set_target_properties(growth PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin/tests)
endif()
