# Puts the test's own functions in the place of the system's, for the library's objects, too.
if(TARGET test_unit_train_safetensors_faults)
    target_link_options(test_unit_train_safetensors_faults PRIVATE
        -Wl,--wrap=open,--wrap=write,--wrap=fsync,--wrap=close,--wrap=rename)
endif()
