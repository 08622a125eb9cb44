# Compiler and linker flags, and the functions that give a target its role: library objects, shared
# library, program, test.

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()
set(CMAKE_C_FLAGS_RELEASE "-O2 -g1 -DNDEBUG")
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -g")

# Error texts are cut to the record on purpose: no -Wformat-truncation.
set(FERRY_WARNINGS -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition -Wundef -Wvla
    -Wpointer-arith -Wwrite-strings -Wformat=2 -Wno-format-nonliteral -Wno-missing-field-initializers)
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
    list(APPEND FERRY_WARNINGS -Wno-format-truncation -Wduplicated-cond -Wlogical-op)
endif()
# The only place that makes a warning an error (a lint rule looks): FERRY_WERROR asks for it. Every
# preset sets it but release, which users build with compilers that CI has not seen.
set(FERRY_WERROR_FLAGS)      # for the C and the C++ compiler
set(FERRY_WERROR_NVCC_FLAGS) # for nvcc
if(FERRY_WERROR)
    # Whether a value is set depends, for gcc, on how far it inlines: those two stay warnings, and
    # under sanitizers mean nothing.
    set(FERRY_WERROR_FLAGS -Werror)
    set(FERRY_WERROR_NVCC_FLAGS -Werror=all-warnings)
    if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
        list(APPEND FERRY_WERROR_FLAGS -Wno-error=maybe-uninitialized -Wno-error=array-bounds)
    endif()
endif()
list(APPEND FERRY_WARNINGS ${FERRY_WERROR_FLAGS})
if(FERRY_SANITIZE AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
    list(APPEND FERRY_WARNINGS -Wno-maybe-uninitialized -Wno-array-bounds -Wno-stringop-overflow -Wno-stringop-truncation)
endif()

# Results do not depend on the instructions of a machine (-ffp-contract=off); no code reads errno
# or FP traps after a kernel.
set(FERRY_KERNEL_FLAGS -fno-math-errno -fno-trapping-math)
# clang warns of each `omp simd` loop that it leaves scalar, such as those that call tanh.
if(CMAKE_C_COMPILER_ID MATCHES "Clang")
    list(APPEND FERRY_KERNEL_FLAGS -Wno-pass-failed)
endif()
if(NOT CMAKE_BUILD_TYPE STREQUAL "Debug" AND NOT FERRY_COVERAGE AND NOT FERRY_SANITIZE)
    list(APPEND FERRY_KERNEL_FLAGS -O3)
endif()

add_compile_options($<$<COMPILE_LANGUAGE:C>:-ffp-contract=off> $<$<COMPILE_LANGUAGE:C,CXX>:-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=>
                   )
# Loops outside the kernels run over one to eight dims: neither a call of memcpy nor vectors pay
# there.
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
    set(FERRY_CORE_FLAGS -fno-tree-loop-distribute-patterns -fno-tree-vectorize)
else()
    set(FERRY_CORE_FLAGS -fno-vectorize)
endif()
# Event files name call sites by them (runtime/record/site.h); profilers need them too.
list(APPEND FERRY_CORE_FLAGS -fno-omit-frame-pointer)
add_compile_definitions($<$<COMPILE_LANGUAGE:C>:_GNU_SOURCE>)
if(FERRY_SANITIZE)
    add_compile_options(-fsanitize=${FERRY_SANITIZE} -fno-sanitize-recover=all)
    add_link_options(-fsanitize=${FERRY_SANITIZE})
endif()
if(FERRY_COVERAGE)
    add_compile_options($<$<COMPILE_LANGUAGE:C>:--coverage> $<$<COMPILE_LANGUAGE:C>:-fprofile-update=atomic>)
    add_link_options(--coverage)
endif()

# Thread state through a TLS descriptor: a few instructions where the general-dynamic call takes a
# dozen, and it can be dlopen'ed.
include(CheckCCompilerFlag)
check_c_compiler_flag(-mtls-dialect=gnu2 FERRY_HAS_GNU2_TLS)
if(FERRY_HAS_GNU2_TLS AND NOT FERRY_SANITIZE)
    set(FERRY_TLS_FLAGS -mtls-dialect=gnu2)
endif()

# Sources of a library: hidden symbols, position independent, may include "folder/file.h" from the
# root.
function(ferry_library_flags target)
    target_compile_options(${target} PRIVATE ${FERRY_WARNINGS} -fvisibility=hidden -fno-semantic-interposition ${FERRY_TLS_FLAGS})
    target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
    target_compile_definitions(${target} PRIVATE FERRY_VERSION="${PROJECT_VERSION}")
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
    if(FERRY_LTO)
        set_target_properties(${target} PROPERTIES INTERPROCEDURAL_OPTIMIZATION ON)
    endif()
endfunction()

# -z nodelete: threads that used the library may outlive a dlclose.
function(ferry_shared_library target)
    # The names that a program is linked to have a version: FERRY_0.1 of libferry, FERRY_TRAIN_0.1 of
    # libferry_train. A call whose meaning must change gets a second version beside the first.
    set(map ${PROJECT_SOURCE_DIR}/cmake/lib${target}.map)
    target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
    target_link_options(${target} PRIVATE LINKER:--version-script=${map} LINKER:-z,nodelete LINKER:-z,defs
                        LINKER:--as-needed -Wl,-Bsymbolic-functions)
    if(FERRY_SANITIZE)
        target_link_options(${target} PRIVATE LINKER:-z,undefs)
    endif()
    set_target_properties(${target} PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR} LINKER_LANGUAGE C
                          LINK_DEPENDS ${map} INSTALL_RPATH "$ORIGIN")
endfunction()

# A program on the public API: the command, examples, benchmarks.
function(ferry_program target)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:C>:${FERRY_WARNINGS}>)
    target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
    target_link_libraries(${target} PRIVATE ferry ferry::jemalloc Threads::Threads m ${CMAKE_DL_LIBS})
    if(TARGET ferry_train)
        target_link_libraries(${target} PRIVATE ferry_train)
    endif()
    set_target_properties(${target} PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
endfunction()
