# The op table's cases: the tests' own, and bench_ops measures them in builds without tests too.
add_library(tern_kernel_cases STATIC)
set(cases cases.c build.c instance.c magnitude.c paged.c runners.c)
list(TRANSFORM cases PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
target_sources(tern_kernel_cases PRIVATE ${cases})
target_link_libraries(tern_kernel_cases PUBLIC tern_kernels tern_base m)
