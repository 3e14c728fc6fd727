# Finds the libraries for which neither CMake nor Debian has a package file that can be used. Overtake's own build includes
# this file, and overtakeConfig.cmake does for those who link the static library.
#
# overtake_find_NAME() makes the target overtake::NAME where the library is installed, and sets OVERTAKE_NAME_FOUND.

# A library by a header of its own and by the names that its file may have. Where it lies can be given as NAME_INCLUDE_DIR and
# NAME_LIBRARY.
function(overtake_find_library name header)
  cmake_parse_arguments(PARSE_ARGV 2 given "" "" "NAMES;INCLUDE_HINTS;LIBRARY_HINTS")
  string(TOUPPER ${name} upper)
  find_path(${upper}_INCLUDE_DIR ${header} HINTS ${given_INCLUDE_HINTS})
  find_library(${upper}_LIBRARY NAMES ${given_NAMES} HINTS ${given_LIBRARY_HINTS})
  set(OVERTAKE_${upper}_FOUND OFF PARENT_SCOPE)
  if(${upper}_INCLUDE_DIR AND ${upper}_LIBRARY)
    set(OVERTAKE_${upper}_FOUND ON PARENT_SCOPE)
    if(NOT TARGET overtake::${name})
      add_library(overtake::${name} UNKNOWN IMPORTED)
      set_target_properties(overtake::${name} PROPERTIES IMPORTED_LOCATION ${${upper}_LIBRARY}
                            INTERFACE_INCLUDE_DIRECTORIES ${${upper}_INCLUDE_DIR})
    endif()
  endif()
endfunction()

# Debian's package file of oneDNN asks for OpenCL's headers, which we do not need.
macro(overtake_find_dnnl)
  overtake_find_library(dnnl oneapi/dnnl/dnnl.hpp NAMES dnnl)
endmacro()

macro(overtake_find_gloo)
  overtake_find_library(gloo gloo/transport/unbound_buffer.h NAMES gloo)
endmacro()

# Those of CUDA lie beside it where they are not in the compiler's own folders; after find_package(CUDAToolkit).
macro(overtake_find_cudnn)
  overtake_find_library(cudnn cudnn.h NAMES cudnn libcudnn.so.9 INCLUDE_HINTS ${CUDAToolkit_INCLUDE_DIRS}
                        LIBRARY_HINTS ${CUDAToolkit_LIBRARY_DIR})
endmacro()

macro(overtake_find_nccl)
  overtake_find_library(nccl nccl.h NAMES nccl libnccl.so.2 INCLUDE_HINTS ${CUDAToolkit_INCLUDE_DIRS}
                        LIBRARY_HINTS ${CUDAToolkit_LIBRARY_DIR})
endmacro()
