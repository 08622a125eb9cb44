# The traces by rule, for the test that replays them and for the program that writes them to files.
set(synthetic_sources ${CMAKE_CURRENT_SOURCE_DIR}/traces/synthetic.c ${CMAKE_CURRENT_SOURCE_DIR}/traces/synthetic_nets.c
    ${CMAKE_CURRENT_SOURCE_DIR}/traces/synthetic_churn.c)
ferry_test_program(make_traces ${CMAKE_CURRENT_SOURCE_DIR}/traces/make_traces.c ${synthetic_sources})
target_sources(test_traces PRIVATE ${synthetic_sources})
