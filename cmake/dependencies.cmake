# The libraries Ferry stands on (docs/dependencies.md says why each). Makes ferry_dependencies (what
# libferry itself links) and ferry::jemalloc (what a program links if it wants Ferry's host memory
# to come from jemalloc).
include(cmake/forget.cmake)
# A build by Ninja begins with another run of CMake if one of these was installed or removed since.
file(GLOB ferry_installed CONFIGURE_DEPENDS /usr/bin/c++ /usr/bin/mpicc.* /usr/include/python3*/Python.h
     /usr/lib/*/libjemalloc.so /usr/local/cuda/bin/nvcc)
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
find_package(OpenMP COMPONENTS C)
if(NOT OpenMP_C_FOUND)
    message(FATAL_ERROR "Ferry needs a C compiler with OpenMP (gcc, or clang with libomp-dev)")
endif()
ferry_forget_removed(ZLIB_INCLUDE_DIR zlib.h)
ferry_forget_removed(ZLIB_LIBRARY_RELEASE)
find_package(ZLIB)
set(missing "")
if(FERRY_DNNL)
    ferry_find(path DNNL_INCLUDE_DIR oneapi/dnnl/dnnl_version.h)
    ferry_find(library DNNL_LIBRARY dnnl)
    if(NOT DNNL_INCLUDE_DIR OR NOT DNNL_LIBRARY)
        string(APPEND missing "\n  oneDNN (Debian: libdnnl-dev): matrix products and convolutions on the host;"
               "\n    -DFERRY_DNNL=OFF builds Ferry without it; networks of convolutions then train 6 to 12 times slower")
    endif()
endif()
if(NOT ZLIB_FOUND)
    string(APPEND missing "\n  zlib (Debian: zlib1g-dev): compressed data and event files")
endif()
if(missing)
    message(FATAL_ERROR "Ferry cannot be built here; not found:${missing}\nscripts/setup.sh installs what is missing on Debian.")
endif()
# FERRY_DNNL_MAJOR: whose C API the kernels use; 0: they use none.
if(FERRY_DNNL)
    file(STRINGS ${DNNL_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h dnnl_major REGEX "define +DNNL_VERSION_MAJOR")
    string(REGEX REPLACE "[^0-9]" "" FERRY_DNNL_MAJOR "${dnnl_major}")
    if(FERRY_DNNL_MAJOR LESS 2 OR FERRY_DNNL_MAJOR GREATER 3)
        message(FATAL_ERROR "Ferry knows the C API of oneDNN 2 and 3; ${DNNL_INCLUDE_DIR} is version ${FERRY_DNNL_MAJOR}")
    endif()
else()
    set(FERRY_DNNL_MAJOR 0)
    set(FERRY_DNNL_FILE "")
    message(WARNING "oneDNN is left out (FERRY_DNNL=OFF): on the host, large products and convolutions run in plain loops. "
                    "Products have 0.7 to 1.0 of oneDNN's speed, networks of convolutions train 6 to 12 times slower. "
                    "`ferry info` says so as well.")
    message(STATUS "oneDNN is left out: FERRY_DNNL=OFF")
endif()

add_library(ferry_dependencies INTERFACE)
target_compile_definitions(ferry_dependencies INTERFACE FERRY_DNNL_MAJOR=${FERRY_DNNL_MAJOR})
if(FERRY_DNNL)
    target_include_directories(ferry_dependencies SYSTEM INTERFACE $<BUILD_INTERFACE:${DNNL_INCLUDE_DIR}>)
    # Opened at run time, not linked (backends/kernels/dnnl.c): by its soname where the linker looks anyway.
    get_filename_component(folder ${DNNL_LIBRARY} DIRECTORY)
    execute_process(COMMAND ${CMAKE_READELF} -d ${DNNL_LIBRARY} OUTPUT_VARIABLE section)
    if(NOT section MATCHES "SONAME[^[]*\\[([^]]+)")
        message(FATAL_ERROR "${DNNL_LIBRARY} is no shared library with a soname: Ferry opens oneDNN at run time")
    endif()
    set(FERRY_DNNL_FILE ${CMAKE_MATCH_1}) # libdnnl.so.2, Debian 13: libdnnl.so.3.6
    if(NOT folder IN_LIST CMAKE_C_IMPLICIT_LINK_DIRECTORIES)
        string(PREPEND FERRY_DNNL_FILE ${folder}/)
    endif()
    if(FERRY_SANITIZE)
        # gcc 12's LeakSanitizer may crash on thread-local data of a library that is opened later.
        target_link_libraries(ferry_dependencies INTERFACE -Wl,--push-state,--no-as-needed ${DNNL_LIBRARY} -Wl,--pop-state)
    endif()
endif()
set_source_files_properties(backends/kernels/dnnl.c tools/bench/peer_gemm.c PROPERTIES
    COMPILE_DEFINITIONS FERRY_DNNL_FILE="${FERRY_DNNL_FILE}")
target_link_libraries(ferry_dependencies INTERFACE OpenMP::OpenMP_C Threads::Threads ZLIB::ZLIB m ${CMAKE_DL_LIBS})

# jemalloc belongs to the program, never to libferry.so: linked into a program it serves the
# program's malloc and, through weak references, Ferry's host memory. --no-as-needed, because
# nothing in the program itself refers to it. Sanitizers provide malloc themselves.
add_library(ferry_jemalloc INTERFACE)
add_library(ferry::jemalloc ALIAS ferry_jemalloc)
ferry_find(library JEMALLOC_LIBRARY jemalloc)
if(FERRY_JEMALLOC AND JEMALLOC_LIBRARY AND NOT FERRY_SANITIZE)
    set(FERRY_HAVE_JEMALLOC ON)
    target_link_options(ferry_jemalloc INTERFACE LINKER:--push-state,--no-as-needed,${JEMALLOC_LIBRARY},--pop-state)
else()
    set(FERRY_HAVE_JEMALLOC OFF)
    message(STATUS "jemalloc is left out: host memory comes from mmap")
endif()
