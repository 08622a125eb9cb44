# Replaces the system's functions by those of the test, also in the library's objects.
if(TARGET test_unit_train_safetensors_faults)
    target_link_options(test_unit_train_safetensors_faults PRIVATE
        -Wl,--wrap=open,--wrap=write,--wrap=fsync,--wrap=close,--wrap=rename)
endif()
if(TARGET test_unit_train_dataset_faults)
    target_link_options(test_unit_train_dataset_faults PRIVATE
        -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=aligned_alloc,--wrap=read)
endif()
foreach(name buffers containers layer_checkpoint low_faults npy npz replicas_faults rescue
        segments)
    if(TARGET test_unit_train_${name})
        target_link_options(test_unit_train_${name} PRIVATE
            -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=aligned_alloc)
    endif()
endforeach()
# A loader promises the same on every device: also over the driver made of host memory, and where
# bytes change as late as they may.
if(TARGET test_unit_train_loader)
    if(TARGET fake_cuda)
        ferry_test(unit_train_loader_fake_cuda unit test_unit_train_loader)
        set_property(TEST unit_train_loader_fake_cuda APPEND PROPERTY ENVIRONMENT FERRY_TEST_DEVICE=cuda:0 FERRY_TEST_REQUIRE=1
                     FERRY_CUDA_DRIVER=$<TARGET_FILE:fake_cuda> FERRY_CUBLASLT=$<TARGET_FILE:fake_cuda> FERRY_CUDNN=$<TARGET_FILE:fake_cuda>)
    endif()
    ferry_test(unit_train_loader_orders unit test_unit_train_loader)
    set_property(TEST unit_train_loader_orders APPEND PROPERTY ENVIRONMENT
                 "FERRY_TEST_DEVICE=sim:0?order=lazy,sim:0?order=random&seed=1,sim:0?order=random&seed=2")
endif()
# So do models and the training loop. Whole trainings convolve by Ferry's own kernels: the fake
# cuDNN is a plain loop.
foreach(name low model model_gradients trainer)
    if(TARGET fake_cuda)
        ferry_test(unit_train_${name}_fake_cuda unit test_unit_train_${name})
        set_property(TEST unit_train_${name}_fake_cuda APPEND PROPERTY ENVIRONMENT FERRY_TEST_DEVICE=cuda:0 FERRY_TEST_REQUIRE=1
                     FERRY_CUDA_DRIVER=$<TARGET_FILE:fake_cuda> FERRY_CUBLASLT=$<TARGET_FILE:fake_cuda> FERRY_CUDNN=$<IF:$<STREQUAL:${name},trainer>,none,$<TARGET_FILE:fake_cuda>>)
    endif()
    ferry_test(unit_train_${name}_orders unit test_unit_train_${name})
    set_property(TEST unit_train_${name}_orders APPEND PROPERTY ENVIRONMENT
                 "FERRY_TEST_DEVICE=sim:0?order=lazy,sim:0?order=random&seed=1")
endforeach()
if(TARGET test_unit_train_norm_sync)
    ferry_test(unit_train_norm_sync_orders unit test_unit_train_norm_sync)
    set_property(TEST unit_train_norm_sync_orders APPEND PROPERTY ENVIRONMENT
                 "FERRY_TEST_DEVICE=sim:0?order=lazy,sim:0?order=random&seed=1")
endif()
if(TARGET test_unit_train_checkpoint_kill)
    target_link_options(test_unit_train_checkpoint_kill PRIVATE -Wl,--wrap=write)
endif()
# Files that readers must refuse, one for each rule: make_rejects.py, make_dataset_rejects.py. Their
# path is relative to the sources, where tests run, so that error texts hold it.
ferry_forget_removed(FERRY_PYTHON3)
find_program(FERRY_PYTHON3 python3)
file(RELATIVE_PATH rejects ${PROJECT_SOURCE_DIR} ${CMAKE_BINARY_DIR}/data/rejects)
if(FERRY_PYTHON3)
    set(make_rejects ${CMAKE_CURRENT_SOURCE_DIR}/unit/train/data/make_rejects.py)
    set(make_dataset_rejects ${CMAKE_CURRENT_SOURCE_DIR}/unit/train/data/make_dataset_rejects.py)
    add_custom_command(
        OUTPUT ${CMAKE_BINARY_DIR}/data/rejects.stamp
        COMMAND ${CMAKE_COMMAND} -E rm -rf ${CMAKE_BINARY_DIR}/data/rejects
        COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/data/rejects
        COMMAND ${FERRY_PYTHON3} ${make_rejects} ${CMAKE_BINARY_DIR}/data/rejects
        COMMAND ${FERRY_PYTHON3} ${make_dataset_rejects} ${CMAKE_BINARY_DIR}/data/rejects
        COMMAND ${CMAKE_COMMAND} -E touch ${CMAKE_BINARY_DIR}/data/rejects.stamp
        DEPENDS ${make_rejects} ${make_dataset_rejects}
        COMMENT "Writing files that readers must refuse"
        VERBATIM)
    add_custom_target(ferry_test_rejects DEPENDS ${CMAKE_BINARY_DIR}/data/rejects.stamp)
endif()
foreach(name safetensors dataset)
    if(TARGET test_unit_train_${name}_rejects)
        target_compile_definitions(test_unit_train_${name}_rejects PRIVATE REJECTS="${rejects}")
        if(FERRY_PYTHON3)
            add_dependencies(test_unit_train_${name}_rejects ferry_test_rejects)
        endif()
    endif()
endforeach()
# Every element beside PyTorch, where it is installed: FERRY_TORCH_PYTHON is a Python that has it.
if(FERRY_PYTHON3 AND TARGET test_unit_train_models_reference)
    add_test(NAME unit_train_models_pytorch
        COMMAND sh -c "exec \"\${FERRY_TORCH_PYTHON:-$0}\" \"$@\"" ${FERRY_PYTHON3}
            ${CMAKE_CURRENT_SOURCE_DIR}/unit/train/models_reference.py
            $<TARGET_FILE:test_unit_train_models_reference>
        WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    set_tests_properties(unit_train_models_pytorch PROPERTIES SKIP_RETURN_CODE 77 LABELS unit)
endif()
