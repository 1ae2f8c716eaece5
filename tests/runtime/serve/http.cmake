# The HTTP server: real sockets, a server thread in the test.
add_library(tern_http_fixture STATIC EXCLUDE_FROM_ALL
  ${CMAKE_CURRENT_LIST_DIR}/http_fixture.c ${CMAKE_CURRENT_LIST_DIR}/http_routes.c ${CMAKE_CURRENT_LIST_DIR}/http_cases.c)
target_link_libraries(tern_http_fixture PUBLIC tern_options tern_runtime PkgConfig::CMOCKA)
tern_test(serve_http_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/http_test.c DEPS tern_http_fixture LABELS threads)
foreach(subject cases gone limits tls)
  tern_test(serve_http_${subject}_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/http_${subject}_test.c DEPS tern_http_fixture LABELS threads)
endforeach()
