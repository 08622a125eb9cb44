# A loader promises the same on every device: also over the driver made of host memory, and where
# bytes change as late as they may. So do models and the training loop. Whole trainings convolve by
# Ferry's own kernels: the fake cuDNN is a plain loop.
foreach(file loader low model model_gradients trainer)
    if(TARGET fake_cuda)
        ferry_test_again(unit_train_${file} fake_cuda ${over_fake_driver} FERRY_NCCL=)
    endif()
endforeach()
if(TARGET fake_cuda)
    set_property(TEST unit_train_trainer_fake_cuda APPEND PROPERTY ENVIRONMENT FERRY_CUDNN=none)
endif()
ferry_test_again(unit_train_loader orders "FERRY_TEST_DEVICE=sim:0?order=lazy,sim:0?order=random&seed=1,sim:0?order=random&seed=2")
foreach(file low model model_gradients norm_sync trainer)
    ferry_test_again(unit_train_${file} orders "FERRY_TEST_DEVICE=sim:0?order=lazy,sim:0?order=random&seed=1")
endforeach()
# Files that readers of data sets must refuse, one for each rule: make_dataset_rejects.py. Their path
# is relative to the sources, where tests run, so that error texts hold it.
ferry_find(program FERRY_PYTHON3 python3)
file(RELATIVE_PATH rejects ${PROJECT_SOURCE_DIR} ${CMAKE_BINARY_DIR}/data/rejects)
if(FERRY_PYTHON3)
    set(make_dataset_rejects ${CMAKE_CURRENT_SOURCE_DIR}/unit/train/data/make_dataset_rejects.py)
    add_custom_command(
        OUTPUT ${CMAKE_BINARY_DIR}/data/rejects.stamp
        COMMAND ${CMAKE_COMMAND} -E rm -rf ${CMAKE_BINARY_DIR}/data/rejects
        COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/data/rejects
        COMMAND ${FERRY_PYTHON3} ${make_dataset_rejects} ${CMAKE_BINARY_DIR}/data/rejects
        COMMAND ${CMAKE_COMMAND} -E touch ${CMAKE_BINARY_DIR}/data/rejects.stamp
        DEPENDS ${make_dataset_rejects}
        COMMENT "Writing files that readers must refuse"
        VERBATIM)
    add_custom_target(ferry_test_rejects DEPENDS ${CMAKE_BINARY_DIR}/data/rejects.stamp)
endif()
target_compile_definitions(test_unit_train PRIVATE REJECTS="${rejects}")
if(FERRY_PYTHON3)
    add_dependencies(test_unit_train ferry_test_rejects)
endif()
# Every element beside PyTorch, where it is installed: FERRY_TORCH_PYTHON is a Python that has it.
if(FERRY_PYTHON3)
    add_test(NAME unit_train_models_pytorch
        COMMAND sh -c "exec \"\${FERRY_TORCH_PYTHON:-$0}\" \"$@\"" ${FERRY_PYTHON3}
            ${CMAKE_CURRENT_SOURCE_DIR}/unit/train/models_reference.py
            $<TARGET_FILE:test_unit_train>
        WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    set_tests_properties(unit_train_models_pytorch PROPERTIES SKIP_RETURN_CODE 77 LABELS unit)
endif()
