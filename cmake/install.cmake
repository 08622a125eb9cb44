# What `cmake --install` puts where, and what find_package(ferry) and pkg-config find afterwards.
# ferry::jemalloc is not exported but made again by ferryConfig.cmake, where the application is
# built: jemalloc is the application's choice.
include(CMakePackageConfigHelpers)
set(config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ferry)

set_target_properties(ferry PROPERTIES EXPORT_NAME ferry)
install(TARGETS ferry EXPORT ferryTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET ferry_train)
    set_target_properties(ferry_train PROPERTIES EXPORT_NAME train)
    install(TARGETS ferry_train EXPORT ferryTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
    install(DIRECTORY include/ferry/train DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ferry FILES_MATCHING PATTERN "*.h")
endif()
set_target_properties(ferry_dist PROPERTIES EXPORT_NAME dist)
install(TARGETS ferry_dist EXPORT ferryTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
foreach(mpi IN LISTS FERRY_MPIS)
    install(TARGETS ferry_mpi_${mpi} LIBRARY DESTINATION ${FERRY_PLUGIN_INSTALL_DIRECTORY})
endforeach()
file(GLOB installed_headers CONFIGURE_DEPENDS include/ferry/*.h include/ferry/*.hpp)
install(FILES ${installed_headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ferry)
if(TARGET ferry_command)
    install(TARGETS ferry_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

# The archives are no exported targets: ferryConfig.cmake and the pkg-config files name them and the
# libraries that they need, so that a program with shared libraries need not have those.
install(TARGETS ferry_static ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET ferry_train_static)
    install(TARGETS ferry_train_static ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
set(private ${OpenMP_C_LIB_NAMES} pthread z m ${CMAKE_DL_LIBS})
list(REMOVE_DUPLICATES private)
set(FERRY_PRIVATE_LIBRARIES ${private})
list(TRANSFORM private REPLACE "^([^/].*)$" "-l\\1")
list(JOIN private " " FERRY_PC_PRIVATE)

# Pages and examples, in the folders that their links to each other expect.
install(FILES LICENSE README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
file(GLOB pages CONFIGURE_DEPENDS docs/*.md)
install(FILES ${pages} DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs)
install(DIRECTORY docs/decisions docs/internals docs/pictures docs/results DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs)
# Pages of folders of sources that the others link to.
foreach(page CONTRIBUTING.md backends/README.md backends/cuda/KERNELS.md backends/kernels/README.md backends/sim/README.md
        bench/README.md python/README.md scripts/gpu-check/README.md tests/README.md tests/traces/README.md tools/calibrate/README.md)
    cmake_path(GET page PARENT_PATH folder)
    install(FILES ${page} DESTINATION ${CMAKE_INSTALL_DOCDIR}/${folder})
endforeach()
install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN "*.[ch]" PATTERN "*.md")
if(TARGET ferry_command)
    install(FILES docs/ferry.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
endif()
if(NOT TARGET uninstall)
    add_custom_target(uninstall COMMAND ${CMAKE_COMMAND} -DMANIFEST=${PROJECT_BINARY_DIR}/install_manifest.txt
                      -P ${PROJECT_SOURCE_DIR}/cmake/uninstall.cmake VERBATIM)
endif()

install(EXPORT ferryTargets NAMESPACE ferry:: DESTINATION ${config_dir})
configure_package_config_file(cmake/ferryConfig.cmake.in ferryConfig.cmake INSTALL_DESTINATION ${config_dir})
# 0.x: a new minor version may break callers.
write_basic_package_version_file(ferryConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/ferryConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/ferryConfigVersion.cmake DESTINATION ${config_dir})

# ferry.pc names its prefix relative to itself, so an installed tree can be moved.
file(RELATIVE_PATH FERRY_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" FERRY_PC_PREFIX "${FERRY_PC_PREFIX}")
configure_file(cmake/ferry.pc.in ferry.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/ferry.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
if(TARGET ferry_train)
    configure_file(cmake/ferry-train.pc.in ferry-train.pc @ONLY)
    install(FILES ${CMAKE_CURRENT_BINARY_DIR}/ferry-train.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()
