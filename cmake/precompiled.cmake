# SPDX-License-Identifier: GPL-2.0-or-later
# Precompiled headers, with clang: they take two thirds off what compiling costs. CMake's own can't be
# used with the compiler cache: their paths differ between checkouts. Sources include what they use, so
# that everything compiles without them, too, as packages do.

# pcilend_precompile(NAME HEADER LIBS libs...): the library object pcilend_NAME_pch.
function(pcilend_precompile name header)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "LIBS" ${ARGN})
  # clang looks for the header by its absolute path when it is used. Where all checkouts find it:
  file(READ ${header} text)
  string(SHA256 hash "${text}")
  string(SUBSTRING ${hash} 0 12 hash)
  set(place ${PCILEND_COMPILER_CACHE})
  if(NOT place)
    set(place ${CMAKE_BINARY_DIR})
  endif()
  set(source ${place}/precompiled/${name}-${hash}.cpp)
  if(NOT EXISTS ${source})
    file(WRITE ${source} "${text}")
  endif()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${header})
  add_library(pcilend_${name}_pch OBJECT EXCLUDE_FROM_ALL ${source})
  set_source_files_properties(${source} PROPERTIES
    COMPILE_OPTIONS "-x;c++-header;-fpch-instantiate-templates;-Xclang;-fno-pch-timestamp")
  target_link_libraries(pcilend_${name}_pch PRIVATE pcilend_flags ${ARG_LIBS})
  # Who depends on an object library is compiled beside it, but after a custom target.
  set(stamp ${CMAKE_BINARY_DIR}/${name}.precompiled)
  add_custom_command(OUTPUT ${stamp} COMMAND ${CMAKE_COMMAND} -E touch ${stamp}
    DEPENDS $<TARGET_OBJECTS:pcilend_${name}_pch>)
  add_custom_target(pcilend_${name}_precompiled DEPENDS ${stamp})
endfunction()

# pcilend_use_precompiled(TARGET NAME): both must have the same compiler options and definitions.
function(pcilend_use_precompiled target name)
  if(NOT TARGET pcilend_${name}_pch)
    return()
  endif()
  # Its own headers' ages are not checked: ccache and ninja know what it was made from.
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:SHELL:-include-pch \
$<TARGET_OBJECTS:pcilend_${name}_pch> -Xclang -fno-validate-pch>")
  add_dependencies(${target} pcilend_${name}_precompiled)
endfunction()

# pcilend_lab_part(TARGET): of the lab or of its scenarios, which only wait for others.
function(pcilend_lab_part target)
  target_link_libraries(${target} PRIVATE pcilend_quick)
  pcilend_use_precompiled(${target} testing)
endfunction()
