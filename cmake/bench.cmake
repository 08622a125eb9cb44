# bench/*.c: one program each, on the public API. bench/peers_*.cpp: against other libraries, only when asked for.
file(GLOB bench_sources CONFIGURE_DEPENDS bench/*.c)
foreach(source ${bench_sources})
    get_filename_component(name ${source} NAME_WE)
    add_executable(bench_${name} ${source})
    set_target_properties(bench_${name} PROPERTIES OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin/bench)
    ferry_program(bench_${name})
    target_link_libraries(bench_${name} PRIVATE ${DNNL_LIBRARY})
endforeach()
