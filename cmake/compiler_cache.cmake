# SPDX-License-Identifier: GPL-2.0-or-later
# Compilers' results are kept in the cache, so that a fresh checkout on a machine that has built
# before compiles only what is new. Packages (build type None) are built without.
find_program(PCILEND_CCACHE ccache)
set(PCILEND_COMPILER_CACHE)
if(PCILEND_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER AND NOT CMAKE_BUILD_TYPE STREQUAL "None")
  set(cache "$ENV{PCILEND_CACHE}")
  if(NOT cache)
    set(cache /var/cache/pcilend)
  endif()
  # Users who may not write there compile without.
  execute_process(COMMAND sh -c "mkdir -p \"$1\" && test -w \"$1\"" - ${cache}/compiler
    RESULT_VARIABLE unusable ERROR_QUIET)
  if(NOT unusable)
    set(PCILEND_COMPILER_CACHE ${cache}/compiler)
    # Precompiled headers need the sloppiness (ccache(1), PRECOMPILED HEADERS).
    set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_DIR=${PCILEND_COMPILER_CACHE}
      CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 CCACHE_MAXSIZE=2G
      CCACHE_SLOPPINESS=pch_defines,time_macros ${PCILEND_CCACHE})
    set(CMAKE_C_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
  endif()
endif()
