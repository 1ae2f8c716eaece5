# Writes OUTPUT with the version, the commit and the build type, and touches it only when one of them changed.
set(commit "${COMMIT}")
if(commit STREQUAL "")
  set(commit unknown)
  execute_process(COMMAND git -c safe.directory=* -C ${SOURCE} rev-parse --short=12 HEAD
    OUTPUT_VARIABLE head OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(NOT failed)
    set(commit ${head})
    execute_process(COMMAND git -c safe.directory=* -C ${SOURCE} status --porcelain --untracked-files=no
      OUTPUT_VARIABLE changes ERROR_QUIET)
    if(changes)
      set(commit ${head}-dirty)
    endif()
  endif()
endif()
set(text "/* version_info.h - generated at build time by launch/version.cmake. */
#define TERN_VERSION_NUMBER \"${VERSION}\"
#define TERN_VERSION_COMMIT \"${commit}\"
#define TERN_VERSION_BUILD \"${BUILD}\"
")
set(old "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} old)
endif()
if(NOT text STREQUAL old)
  file(WRITE ${OUTPUT} "${text}")
endif()
