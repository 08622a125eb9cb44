# Allocations that fail, also in the library's objects.
if(TARGET test_unit_backends_conv_tune)
    target_link_options(test_unit_backends_conv_tune PRIVATE -Wl,--wrap=malloc,--wrap=calloc)
endif()
