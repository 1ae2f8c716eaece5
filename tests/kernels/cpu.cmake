# The core of the CPU backend: levels, threads, matrix product.
tern_test(test_cpu_pool SOURCES cpu_pool.c DEPS tern_kernels_cpu LABELS threads)
tern_test(test_cpu_isa SOURCES cpu_isa.c DEPS tern_kernels_cpu)
tern_test(test_cpu_gemm SOURCES cpu_gemm.c DEPS tern_kernels_cpu tern_kernels m TIMEOUT 900)
tern_test(test_cpu_ops SOURCES cpu_ops.c DEPS tern_kernels_cpu tern_kernels m TIMEOUT 900)
