# What libtern_cuda.so is made of; tests/cusim builds the same list against the simulated CUDA.
set(here ${CMAKE_CURRENT_LIST_DIR})
set(TERN_CUDA_C
  ${here}/plugin.c ${here}/host.c ${here}/err.c ${here}/device.c
  ${here}/attention_plan.c
  ${here}/blas.c ${here}/blas_lt.c ${here}/blas_plan.c ${here}/blas_table.c ${here}/blas_cache.c ${here}/blas_problem.c
  ${here}/../../runtime/base/dtype.c ${here}/../../runtime/base/thread.c
  ${here}/../../comm/socket.c
  ${here}/../../comm/nccl/plugin.c ${here}/../../comm/nccl/open.c ${here}/../../comm/nccl/library.c
  ${here}/../../comm/nccl/queue.c ${here}/../../comm/nccl/marks.c ${here}/../../comm/nccl/exchange.c
  ${here}/../../comm/nccl/calls.c ${here}/../../comm/nccl/death.c ${here}/../../comm/nccl/judge.c
  ${here}/../../comm/nccl/watch.c)
set(TERN_CUDA_CU
  ${here}/attention.cu ${here}/attention_plain.cu ${here}/attention_w64.cu ${here}/attention_w80.cu
  ${here}/attention_w96.cu ${here}/attention_w128.cu ${here}/attention_w256.cu
  ${here}/blas_side.cu
  ${here}/act.cu ${here}/adamw.cu ${here}/embed_fwd.cu ${here}/embed_bwd.cu ${here}/glu.cu ${here}/loss.cu ${here}/moe.cu
  ${here}/norm_fwd.cu ${here}/norm_bwd.cu ${here}/paged.cu ${here}/pointwise.cu ${here}/reduce.cu ${here}/rope.cu)
