# CTest labels besides the group. A name also stands for its variants (NAME_lazy, NAME_orders, ...).
# tests/unit/scripts/test_ci.sh checks that each name is a test.

# About five seconds of CPU or more, or fifteen under AddressSanitizer; under mpirun; with whole
# trainings: at a landing .ci/run leaves them out under sanitizers and on Debian 13 if their folder
# was not touched. They start first.
set(slow
    consume
    faults_autocast
    faults_command_sweep
    faults_event_readers
    faults_gradient
    golden_golden
    golden_json
    golden_plan_programs
    mutation_orders
    ops_op_accumulate
    ops_op_bits
    ops_op_gradients
    ops_op_matrix
    property_fused
    unit_alloc_plan
    unit_alloc_pool_random
    unit_backends_conv_depthwise
    unit_backends_elementwise
    unit_backends_matmul
    unit_backends_reduce
    unit_backends_slow_path
    unit_cuda_sass
    unit_dist_faults
    unit_dist_native
    unit_dist_norms
    unit_dist_planned
    unit_dist_ranks
    unit_dist_shards
    unit_runtime_growth
    unit_runtime_thread_cache
    unit_scripts_gpu_check
    unit_tools_cli
    unit_tools_examples
    unit_tools_figures
    unit_tools_hostile_files
    unit_tools_ledger
    unit_tools_plan
    unit_tools_precision
    unit_tools_predict
    unit_tools_replay
    unit_tools_train
    unit_train_cuda_step
    unit_train_drop_bias
    unit_train_layer_checkpoint
    unit_train_low
    unit_train_model
    unit_train_model_recompute
    unit_train_segments
    unit_train_trainer)
# Of those, what takes twenty seconds or more: `make test` leaves them to `make test-all`. A landing
# runs those of touched folders, a night all.
set(long
    faults_command_sweep
    golden_plan_programs
    unit_cuda_sass
    unit_dist_faults
    unit_dist_native
    unit_dist_norms
    unit_dist_ranks
    unit_tools_examples
    unit_tools_hostile_files
    unit_tools_precision)
# They start threads other than OpenMP's on the host or a simulated device: at a landing .ci/run runs
# these under ThreadSanitizer.
set(threads
    conformance_dlpack
    conformance_events
    conformance_ledger
    conformance_prefetch
    conformance_pressure
    conformance_queue
    conformance_snapshot
    conformance_threads
    conformance_verdict
    faults_cuda_calls
    faults_event_readers
    faults_recording
    unit_alloc_host_segments
    unit_alloc_host_touch
    unit_alloc_peers_bugs
    unit_alloc_pool_figures
    unit_alloc_pool_threads
    unit_backends_conv
    unit_backends_threads
    unit_dist_group
    unit_dist_native_faults
    unit_dist_shard_faults
    unit_ops_graph
    unit_ops_register_threads
    unit_runtime_abi
    unit_runtime_budget
    unit_runtime_device_races
    unit_runtime_dirty
    unit_runtime_event
    unit_runtime_external
    unit_runtime_fork_threads
    unit_runtime_guard
    unit_runtime_input
    unit_runtime_interrupt
    unit_runtime_pin
    unit_runtime_scope_memory
    unit_runtime_slot_chunks
    unit_runtime_thread_cache
    unit_sim_stream
    unit_train_allreduce_library
    unit_train_containers
    unit_train_find_lr
    unit_train_loader
    unit_train_loader_augment
    unit_train_loader_faults
    unit_train_replace
    unit_train_rescue
    unit_train_safetensors_reference
    unit_train_trainer
    unit_transfer_communicator
    unit_transfer_live
    unit_transfer_queue_threads
    unit_transfer_transfer_threads)
# They read data sets if there are any: .ci/run repeats them with real ones.
set(data
    golden_golden
    golden_json
    unit_tools_cli
    unit_tools_data
    unit_tools_train
    unit_train_dataset)

foreach(label slow long threads data)
    foreach(base IN LISTS ${label})
        foreach(name ${base} ${base}_lazy ${base}_random ${base}_mmap ${base}_orders ${base}_fake_cuda)
            if(NOT TEST ${name})
                continue()
            endif()
            set_property(TEST ${name} APPEND PROPERTY LABELS ${label})
            if(label STREQUAL "slow")
                set_property(TEST ${name} PROPERTY COST 100)
            endif()
        endforeach()
        get_property(test GLOBAL PROPERTY ferry_test_${base})
        list(GET test 1 program)
        if(label STREQUAL "threads" AND TARGET "${program}")
            list(APPEND thread_programs ${program})
        endif()
    endforeach()
endforeach()
list(REMOVE_DUPLICATES thread_programs)
add_custom_target(ferry_test_threads DEPENDS ${thread_programs})
