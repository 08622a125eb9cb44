# The oracle of test_bytes.c, and calls.
target_sources(test_property PRIVATE ${CMAKE_CURRENT_LIST_DIR}/bytes.c ${CMAKE_CURRENT_LIST_DIR}/bytes_calls.c)
