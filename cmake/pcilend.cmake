# SPDX-License-Identifier: GPL-2.0-or-later
# Compiler flags and the functions that add tests and fuzzers.

add_library(pcilend_flags INTERFACE)
target_compile_options(pcilend_flags INTERFACE
  -Wall -Wextra -Wshadow -Wno-missing-field-initializers
  $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor -Woverloaded-virtual>)

# The development preset optimises little, as compiling is what most of a first run's time goes into:
# what runs hot says so by linking pcilend_fast, what only waits for others by linking pcilend_quick.
add_library(pcilend_fast INTERFACE)
target_compile_options(pcilend_fast INTERFACE $<$<CONFIG:Development>:-O2>)
add_library(pcilend_quick INTERFACE)
target_compile_options(pcilend_quick INTERFACE $<$<CONFIG:Development>:-O0>)

if(PCILEND_SANITIZE)
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
endif()

if(PCILEND_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "PCILEND_FUZZ needs clang: configure with the sanitize or the fuzz preset")
  endif()
  # What fuzzers are steered by, and what half of compiling would be for: a corpus is replayed without.
  if(PCILEND_COVERAGE)
    add_compile_options(-fsanitize=fuzzer-no-link)
  endif()
endif()

# pcilend_portable(NAME): of a program that is installed: only libraries that every release has, and no
# more debug information than a host VM has room for.
function(pcilend_portable name)
  if(PCILEND_STATIC_CXX AND NOT PCILEND_SANITIZE AND NOT PCILEND_FUZZ)
    target_link_options(${name} PRIVATE -static-libstdc++ -static-libgcc -Wl,--strip-debug)
  endif()
endfunction()

# pcilend_test(NAME sources... [LIBS libs...] [DEFS defs...] [INCLUDES dirs...]): a GoogleTest program, label "unit".
function(pcilend_test name)
  if(NOT PCILEND_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "LIBS;DEFS;INCLUDES" ${ARGN})
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE pcilend_flags ${ARG_LIBS} GTest::gmock GTest::gtest_main)
  target_include_directories(${name} PRIVATE ${ARG_INCLUDES})
  pcilend_use_precompiled(${name} testing)
  # Tests find undefined behaviour in what they test, not in themselves.
  if(PCILEND_SANITIZE)
    target_compile_options(${name} PRIVATE -fno-sanitize=undefined)
  endif()
  target_compile_definitions(${name} PRIVATE ${ARG_DEFS}
    PCILEND_SOURCE_DIR="${CMAKE_SOURCE_DIR}" PCILEND_TESTDATA_DIR="${CMAKE_CURRENT_SOURCE_DIR}/testdata")
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS unit TIMEOUT 120)
  set_property(GLOBAL APPEND PROPERTY PCILEND_UNIT_TESTS ${name})
endfunction()

# pcilend_fuzzer(NAME sources... [LIBS libs...]): a libFuzzer program; NAME begins with fuzz_, its corpus is fuzz/corpus/NAME.
function(pcilend_fuzzer name)
  if(NOT PCILEND_FUZZ)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "LIBS" ${ARGN})
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE pcilend_flags ${ARG_LIBS})
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  set_property(GLOBAL APPEND PROPERTY PCILEND_FUZZERS ${name})
endfunction()
