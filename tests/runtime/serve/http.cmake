# The HTTP server: real sockets, a server thread in the test.
add_library(tern_http_fixture STATIC EXCLUDE_FROM_ALL
  ${CMAKE_CURRENT_LIST_DIR}/http_fixture.c ${CMAKE_CURRENT_LIST_DIR}/http_routes.c ${CMAKE_CURRENT_LIST_DIR}/http_cases.c)
target_link_libraries(tern_http_fixture PUBLIC tern_options tern_runtime PkgConfig::CMOCKA)
tern_test(serve_http_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/http_test.c DEPS tern_http_fixture LABELS threads)
foreach(subject cases gone limits mutate tls)
  tern_test(serve_http_${subject}_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/http_${subject}_test.c DEPS tern_http_fixture TIMEOUT 600 LABELS threads)
endforeach()

# Clients of the whole server that leave at every stage. By hand, against any server: tests/serve_chaos PORT MODEL REQUESTS.
add_executable(serve_chaos ${CMAKE_CURRENT_LIST_DIR}/chaos.c)
target_link_libraries(serve_chaos PRIVATE tern_options Threads::Threads)
set_target_properties(serve_chaos PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
add_test(NAME serve_chaos COMMAND ${CMAKE_CURRENT_LIST_DIR}/with_model.sh $<TARGET_FILE:tern> chaos.py)
set_tests_properties(serve_chaos PROPERTIES TIMEOUT 600 ENVIRONMENT "SERVE_CHAOS=$<TARGET_FILE:serve_chaos>")
