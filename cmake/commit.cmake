# overtake_commit(NAME) sets NAME to the commit that is checked out here, or to "unknown" where this is no git repository of
# its own: within another project's repository, git would tell that one's commit.
function(overtake_commit name)
  set(${name} unknown PARENT_SCOPE)
  find_package(Git QUIET)
  if(NOT GIT_FOUND)
    return()
  endif()
  execute_process(COMMAND ${GIT_EXECUTABLE} rev-parse --show-toplevel --short=12 HEAD
                  WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} RESULT_VARIABLE status OUTPUT_VARIABLE lines ERROR_QUIET)
  file(REAL_PATH ${PROJECT_SOURCE_DIR} here)
  if(status EQUAL 0 AND lines MATCHES "^([^\n]*)\n([0-9a-f]+)\n$" AND CMAKE_MATCH_1 STREQUAL here)
    set(${name} ${CMAKE_MATCH_2} PARENT_SCOPE)
  endif()
endfunction()
