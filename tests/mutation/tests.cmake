# Both files run the same programs and use the same trace.
file(GLOB programs CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/programs*.c)
target_sources(test_mutation PRIVATE ${CMAKE_CURRENT_LIST_DIR}/run.c ${programs})
