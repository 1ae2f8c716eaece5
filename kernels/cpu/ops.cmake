# The ops other than gemm, compiled once a level; kernels/cpu/CMakeLists.txt includes this and adds
# ${TERN_CPU_OPS_OBJECTS} to its library's sources.
set(TERN_CPU_OPS_SOURCES
  act.c adamw.c attention_bwd.c attention_fwd.c embed.c loss.c kv.c moe.c norm.c paged.c reduce.c rope.c stored.c)
set(TERN_CPU_OPS_OBJECTS ${CMAKE_CURRENT_LIST_DIR}/ops.c)

function(tern_cpu_ops_level suffix)
  list(TRANSFORM TERN_CPU_OPS_SOURCES PREPEND ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/ OUTPUT_VARIABLE sources)
  add_library(tern_cpu_ops_${suffix} OBJECT ${sources})
  target_link_libraries(tern_cpu_ops_${suffix} PRIVATE tern_options)
  target_compile_definitions(tern_cpu_ops_${suffix} PRIVATE TERN_CPU_SUFFIX=${suffix})
  # -O3: the register tiles are loops over constant bounds that must be unrolled whole.
  target_compile_options(tern_cpu_ops_${suffix} PRIVATE -O3 ${ARGN})
  set(TERN_CPU_OPS_OBJECTS ${TERN_CPU_OPS_OBJECTS} $<TARGET_OBJECTS:tern_cpu_ops_${suffix}> PARENT_SCOPE)
endfunction()

tern_cpu_ops_level(generic)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  tern_cpu_ops_level(avx2 -mavx2 -mfma -mf16c)
  tern_cpu_ops_level(avx512 -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl)
endif()
