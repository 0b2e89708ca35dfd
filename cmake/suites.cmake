# SPDX-License-Identifier: GPL-2.0-or-later
# The entries of CTest that tools/test/run runs: builds (fixtures of those that need them), unit tests,
# fuzzers, and each suite of scenarios by itself. Labels: test, all, debug (docs/testing.md), and unit, lab,
# fuzz, packages for parts. Which scenarios belong to which is read from the table in docs/testing.md.
set(stage ${PROJECT_SOURCE_DIR}/tools/test/stage)
set(image ${PROJECT_SOURCE_DIR}/qemu-tests/image)
set(newer backports)

# pcilend_entry(NAME LIMIT seconds COMMAND command... [OPTIONS of tools/test/stage...] [LABELS ...]
#               [NEEDS fixtures...] [MAKES fixture] [COST seconds] [ALONE])
function(pcilend_entry name)
  cmake_parse_arguments(ARG "ALONE" "LIMIT;COST;MAKES" "COMMAND;OPTIONS;LABELS;NEEDS;ENVIRONMENT" ${ARGN})
  if(NOT ARG_COST)
    set(ARG_COST ${ARG_LIMIT})
  endif()
  if(ARG_ALONE)
    list(APPEND ARG_OPTIONS --wide)
  endif()
  add_test(NAME ${name} COMMAND ${stage} ${ARG_OPTIONS} ${name} ${ARG_LIMIT} ${ARG_COMMAND}
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  # The stage ends what takes longer than its limit; that is for the case that it can't.
  math(EXPR timeout "${ARG_LIMIT} + 120")
  set_tests_properties(${name} PROPERTIES TIMEOUT ${timeout} COST ${ARG_COST} LABELS "${ARG_LABELS}"
    FIXTURES_REQUIRED "${ARG_NEEDS}" FIXTURES_SETUP "${ARG_MAKES}" ENVIRONMENT "${ARG_ENVIRONMENT}")
  if(ARG_ALONE)
    cmake_host_system_information(RESULT cpus QUERY NUMBER_OF_LOGICAL_CORES)
    set_tests_properties(${name} PROPERTIES PROCESSORS ${cpus})
  endif()
endfunction()

# Builds. What takes longest or lets most others begin comes first; an image is made step after step,
# so compiling takes what CPU that leaves, and the programs come before the unit tests.
pcilend_entry(build LIMIT 3600 COST 9000 OPTIONS --wide --builds MAKES programs
  COMMAND nice -n 5 ${CMAKE_COMMAND} --build ${CMAKE_BINARY_DIR} --target scenarios)
pcilend_entry(build-tests LIMIT 3600 COST 3000 OPTIONS --builds MAKES tests
  COMMAND sh -c "cmake --preset sanitize && nice -n 15 ninja -C build/sanitize -j1 unit_tests fuzzers")
pcilend_entry(build-fuzzers LIMIT 3600 COST 2500 OPTIONS --builds MAKES fuzzers
  COMMAND sh -c "cmake --preset fuzz && nice -n 15 ninja -C build/fuzz -j1 fuzzers")
foreach(kernel 6.12 ${newer} 6.12-debug)
  set(cost 8000)
  if(NOT kernel STREQUAL "6.12")
    set(cost 2000)
  endif()
  pcilend_entry(image@${kernel} LIMIT 3600 COST ${cost} OPTIONS --wide --builds MAKES image@${kernel}
    COMMAND tools/test/side-by-side "${image}/build --kernel ${kernel}" "${image}/build-modules --kernel ${kernel}")
endforeach()
# All take gigabytes of downloads into one cache. Most wait for 6.12.
set_tests_properties(image@6.12 image@${newer} image@6.12-debug PROPERTIES RESOURCE_LOCK image)
set_tests_properties(image@${newer} image@6.12-debug PROPERTIES DEPENDS image@6.12)

pcilend_entry(image-attached LIMIT 1800 COST 1500 OPTIONS --wide --builds MAKES image-attached
  COMMAND ${image}/build --attached)
set_tests_properties(image-attached PROPERTIES RESOURCE_LOCK image DEPENDS image@6.12)

# Debian's, which scenarios have read our metrics.
pcilend_entry(node-exporter LIMIT 300 COST 1000 OPTIONS --builds MAKES node-exporter COMMAND tools/test/node-exporter)

pcilend_entry(unit LIMIT 500 LABELS test all unit NEEDS tests COMMAND tools/test/unit)
pcilend_entry(corpora LIMIT 120 LABELS test COMMAND tools/test/fuzz NEEDS tests)
pcilend_entry(fuzzers LIMIT 900 ALONE LABELS all fuzz COMMAND tools/test/fuzz 20 NEEDS fuzzers)
pcilend_entry(stage-test LIMIT 120 LABELS test all COMMAND tools/test/tests/stage_test)
pcilend_entry(kernel-folders LIMIT 30 LABELS test all
  COMMAND sh -c "tools/test/kernel-folders && tools/test/tests/kernel_folders_test")
pcilend_entry(kernel-needs LIMIT 30 LABELS test all COMMAND tools/test/tests/kernel_needs_test)
pcilend_entry(scripts-test LIMIT 60 LABELS test all COMMAND tools/test/tests/scripts_test)
pcilend_entry(testing-table LIMIT 30 LABELS test all COMMAND tools/test/testing-table NEEDS programs)

# What the table in docs/testing.md says: tests_of_SUITE_WHERE are GoogleTest's names.
set(table ${PROJECT_SOURCE_DIR}/docs/testing.md)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${table})
file(STRINGS ${table} rows ENCODING UTF-8 REGEX "^\\|.*`[A-Za-z0-9]+\\.[^`]*`.*\\| (test|all|debug) \\|$")
foreach(row ${rows})
  string(REGEX MATCH "(test|all|debug) \\|$" where "${row}")
  string(REGEX REPLACE " .*" "" where "${where}")
  string(REGEX REPLACE "^\\|[^|]*\\|" "" shown "${row}")
  string(REGEX MATCHALL "`[A-Za-z0-9]+\\.[A-Za-z0-9_/*]+`" names "${shown}")
  foreach(name ${names})
    string(REPLACE "`" "" name ${name})
    string(REGEX REPLACE "\\..*" "" suite ${name})
    list(APPEND suites ${suite})
    list(APPEND tests_of_${suite}_${where} ${name})
  endforeach()
endforeach()
list(REMOVE_DUPLICATES suites)

# pcilend_filters(OUT WHERE SUITE...): of what runs there. Parametrised suites have a prefix.
function(pcilend_filters out where)
  set(filter)
  set(but)
  foreach(suite ${ARGN})
    if(NOT suite IN_LIST suites)
      message(FATAL_ERROR "docs/testing.md has no scenario of ${suite}, which cmake/suites.cmake has")
    endif()
    foreach(name ${tests_of_${suite}_${where}})
      list(APPEND filter ${name} */${name})
    endforeach()
    # X.* stands for what no other row names.
    if("${suite}.*" IN_LIST tests_of_${suite}_${where})
      foreach(other test all debug)
        foreach(name ${tests_of_${suite}_${other}})
          if(NOT name STREQUAL "${suite}.*" AND NOT other STREQUAL where)
            list(APPEND but ${name} */${name})
          endif()
        endforeach()
      endforeach()
    endif()
  endforeach()
  if(NOT filter)
    message(FATAL_ERROR "docs/testing.md has no scenario of ${ARGN} for '${where}', which cmake/suites.cmake has")
  endif()
  list(JOIN filter ":" filter)
  if(but)
    list(JOIN but ":" but)
    string(APPEND filter "-${but}")
  endif()
  set(${out} "${filter}" PARENT_SCOPE)
endfunction()

# pcilend_scenarios(NAME KERNEL LIMIT FILTER LABELS labels... SUITES suites... [NEEDS fixtures...] [ALONE])
function(pcilend_scenarios name kernel limit filter)
  cmake_parse_arguments(ARG "ALONE" "" "LABELS;SUITES;NEEDS" ${ARGN})
  list(JOIN ARG_SUITES " " suites)
  set(alone)
  if(ARG_ALONE)
    set(alone ALONE)
  endif()
  pcilend_entry(${name} LIMIT ${limit} ${alone} OPTIONS --labs LABELS ${ARG_LABELS}
    NEEDS programs image@${kernel} ${ARG_NEEDS} ENVIRONMENT PCILEND_KERNEL=${kernel} "PCILEND_SUITES=${suites}"
    COMMAND build/bin/pcilend-scenarios "--gtest_filter=${filter}")
endfunction()

# pcilend_suite(SUITE LIMIT seconds [REST seconds] [ALONE] [WITH suites...] [NEEDS fixtures...]): what may be
# waited for it in `make test`, and for its other scenarios, which ALONE have all CPUs; WITH suites that have
# the same lab; what they need besides programs and image.
function(pcilend_suite suite)
  cmake_parse_arguments(ARG "ALONE" "LIMIT;REST" "WITH;NEEDS" ${ARGN})
  set(alone)
  if(ARG_ALONE)
    set(alone ALONE)
  endif()
  set(everything 0)
  if(ARG_LIMIT)
    pcilend_filters(filter test ${suite} ${ARG_WITH})
    pcilend_scenarios(${suite} 6.12 ${ARG_LIMIT} "${filter}" LABELS test all lab
      SUITES ${suite} ${ARG_WITH} NEEDS ${ARG_NEEDS})
    math(EXPR everything "${ARG_LIMIT}")
  endif()
  if(ARG_REST)
    pcilend_filters(filter all ${suite} ${ARG_WITH})
    pcilend_scenarios(${suite}+ 6.12 ${ARG_REST} "${filter}" ${alone} LABELS all
      SUITES ${suite} ${ARG_WITH} NEEDS ${ARG_NEEDS})
    math(EXPR everything "${everything} + ${ARG_REST}")
  endif()
  set(filter)
  foreach(one ${suite} ${ARG_WITH})
    list(APPEND filter ${one}.* */${one}.*)
  endforeach()
  list(JOIN filter ":" filter)
  pcilend_scenarios(${suite}@${newer} ${newer} ${everything} "${filter}" ${alone} LABELS all
    SUITES ${suite} ${ARG_WITH} NEEDS ${ARG_NEEDS})
  math(EXPR everything "${everything} * 6")
  pcilend_scenarios(${suite}@6.12-debug 6.12-debug ${everything} "${filter}" ${alone} LABELS debug
    SUITES ${suite} ${ARG_WITH} NEEDS ${ARG_NEEDS})
  set(known_suites ${known_suites} ${suite} ${ARG_WITH} PARENT_SCOPE)
endfunction()

# Limits: those of `make test` are less than 80 minutes in all but builds, 1.5 to 2 times what suites took on the
# slowest machine seen, two at a time on two CPUs.
pcilend_suite(AmdBorrower REST 240)
pcilend_suite(AmdLender LIMIT 100 REST 180)
pcilend_suite(DeviceMatrix LIMIT 180 REST 480 WITH Intx)
pcilend_suite(Direct LIMIT 110 REST 180)
pcilend_suite(Faults REST 820)
pcilend_suite(GuestMemory REST 1800)
pcilend_suite(InstalledGuest REST 1500 NEEDS image-attached)
pcilend_suite(Interrupted REST 110)
pcilend_suite(Mesh REST 700 ALONE)
pcilend_suite(Migration LIMIT 460 REST 1800 WITH Group Sriov ThreeHosts)
pcilend_suite(MsiRelay LIMIT 120 REST 240)
pcilend_suite(MsiRelayInGuests REST 240)
pcilend_suite(NvmeDisk REST 600)
pcilend_suite(NvmeLease REST 480)
pcilend_suite(NvmePaths REST 900 WITH NvmePathsRounds)
pcilend_suite(NvmePlaced REST 600)
pcilend_suite(P2p LIMIT 280 REST 600 WITH DeviceApi)
pcilend_suite(P2pLenders LIMIT 180 REST 540)
pcilend_suite(Paths LIMIT 300 REST 240)
pcilend_suite(PciExpress REST 400)
pcilend_suite(RogueNode LIMIT 320 REST 320)
pcilend_suite(RogueNodeAtAmdLender REST 240)
pcilend_suite(RogueNodeOnSwitchtec REST 360)
pcilend_suite(SharedGroup REST 180)
pcilend_suite(SharedLease REST 700)
pcilend_suite(SharedLeaseOfAmdLender REST 180)
pcilend_suite(SharedNvme REST 1800)
pcilend_suite(Shadow LIMIT 300 REST 640)
pcilend_suite(StackContracts LIMIT 200)
pcilend_suite(Targets REST 1000 WITH BarTargets FarSegments Near)
pcilend_suite(Switchtec LIMIT 180 REST 540)
pcilend_suite(TwoHosts LIMIT 1000 REST 2000
  WITH Libvirt LibvirtRefusals PciGuest Persistence Segments VfioClient NEEDS node-exporter)
pcilend_suite(SegmentFaults REST 1200 WITH SegmentMemory)
pcilend_suite(NvmeCluster REST 900 NEEDS image-attached)
pcilend_suite(VfioUsers REST 400 NEEDS image-attached)

pcilend_scenarios(main-job@${newer} ${newer} 160 TwoHosts.MainJob LABELS test SUITES TwoHosts)
pcilend_scenarios(DebugKernel@6.12-debug 6.12-debug 7200 DebugKernel.* LABELS debug SUITES DebugKernel)
# An installed Debian has an image of its own, which nothing else needs.
foreach(kernel 6.12 ${newer})
  pcilend_entry(installed@${kernel} LIMIT 3600 COST 3000 OPTIONS --wide --builds NEEDS image@${kernel}
    MAKES installed@${kernel} COMMAND ${image}/build --kernel ${kernel} --image installed)
  set_tests_properties(installed@${kernel} PROPERTIES RESOURCE_LOCK image)
endforeach()
pcilend_scenarios(InstalledDebian 6.12 5000 InstalledDebian.*:Nova.* LABELS all SUITES InstalledDebian Nova
  NEEDS installed@6.12)
# Its two installed Debians need both CPUs to boot in the five minutes that the lab gives a host (kBoot in
# qemu-tests/lab/lab.cpp).
foreach(kernel 6.12 ${newer})
  set(suffix)
  if(NOT kernel STREQUAL 6.12)
    set(suffix @${kernel})
  endif()
  pcilend_scenarios(NvmeUnits${suffix} ${kernel} 1800 NvmeUnits.* LABELS all SUITES NvmeUnits
    NEEDS installed@${kernel} ALONE)
endforeach()
foreach(kernel 6.12 ${newer})
  pcilend_entry(packages@${kernel} LIMIT 1800 LABELS all packages ALONE NEEDS image@${kernel}
    MAKES packages@${kernel} COMMAND tools/package/test --kernel ${kernel})
endforeach()
pcilend_scenarios(Packages 6.12 900 Packages.* LABELS all packages)
set_tests_properties(Packages PROPERTIES FIXTURES_REQUIRED "programs;image@6.12;packages@6.12")

foreach(suite ${suites})
  if(NOT suite IN_LIST known_suites AND NOT suite MATCHES "^(DebugKernel|InstalledDebian|Nova|NvmeUnits|Packages)$")
    message(FATAL_ERROR "docs/testing.md names the suite ${suite}, which cmake/suites.cmake does not have")
  endif()
endforeach()
