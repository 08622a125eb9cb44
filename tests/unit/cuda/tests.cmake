# Reads the toolkit's headers as text.
if(TARGET test_unit_cuda_codes)
    target_compile_definitions(test_unit_cuda_codes PRIVATE FERRY_CUDA_INCLUDE_DIR="${FERRY_CUDA_INCLUDE_DIR}"
                               FERRY_CUBLASLT_INCLUDE_DIR="${FERRY_CUBLASLT_INCLUDE_DIR}")
endif()
