# Replaces the system's functions by those of the test, also in the library's objects.
if(TARGET test_unit_transfer_live)
    target_link_options(test_unit_transfer_live PRIVATE
        -Wl,--wrap=open,--wrap=posix_fallocate,--wrap=mmap,--wrap=pthread_create)
endif()
