# `codes` reads the toolkit's headers as text.
if(TARGET test_unit_cuda)
    target_include_directories(test_unit_cuda SYSTEM PRIVATE ${FERRY_CUDA_INCLUDE_DIR} ${FERRY_CUBLASLT_INCLUDE_DIR})
    target_compile_definitions(test_unit_cuda PRIVATE FERRY_CUDA_INCLUDE_DIR="${FERRY_CUDA_INCLUDE_DIR}"
                               FERRY_CUBLASLT_INCLUDE_DIR="${FERRY_CUBLASLT_INCLUDE_DIR}")
    target_sources(test_unit_cuda PRIVATE $<TARGET_OBJECTS:fake_ptx>)
endif()
