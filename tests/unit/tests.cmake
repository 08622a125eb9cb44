# What the unit tests need beyond the archive: train/ and tools/ are no part of it, so their tests are built with the sources they test.
foreach(name table)
    if(TARGET test_unit_train_${name})
        file(GLOB train_sources_tested CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/train/*.c)
        target_sources(test_unit_train_${name} PRIVATE ${train_sources_tested})
        target_link_libraries(test_unit_train_${name} PRIVATE ZLIB::ZLIB)
    endif()
endforeach()
foreach(name options json sheet)
    if(TARGET test_unit_tools_${name})
        target_sources(test_unit_tools_${name} PRIVATE
            ${PROJECT_SOURCE_DIR}/tools/options.c ${PROJECT_SOURCE_DIR}/tools/json.c ${PROJECT_SOURCE_DIR}/tools/sheet.c
            ${PROJECT_SOURCE_DIR}/tools/measure.c)
    endif()
endforeach()
