# The programs that `ferry advise` is tested with, and the test.
ferry_test_program(advisor_corpus ${CMAKE_CURRENT_SOURCE_DIR}/advisor/corpus.c ${CMAKE_CURRENT_SOURCE_DIR}/advisor/programs.c
                   ${CMAKE_CURRENT_SOURCE_DIR}/advisor/waste.c)
