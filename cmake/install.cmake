# What `make install` installs of the library; the program installs itself (src/cli). Included last: it names the targets.

# once.pc finds its prefix from where it lies, so that an installed tree can be moved and DESTDIR needs no care.
set(ONCE_PC_DIR ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
if(IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR} OR IS_ABSOLUTE ${CMAKE_INSTALL_INCLUDEDIR})
  set(ONCE_PC_PREFIX ${CMAKE_INSTALL_PREFIX})
  set(ONCE_PC_LIBDIR ${CMAKE_INSTALL_FULL_LIBDIR})
  set(ONCE_PC_INCLUDEDIR ${CMAKE_INSTALL_FULL_INCLUDEDIR})
else()
  file(RELATIVE_PATH up /prefix/${ONCE_PC_DIR} /prefix)
  string(REGEX REPLACE "/$" "" up ${up})
  set(ONCE_PC_PREFIX "\${pcfiledir}/${up}")
  set(ONCE_PC_LIBDIR "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
  set(ONCE_PC_INCLUDEDIR "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
endif()
set(ONCE_PC_REQUIRES "libcrypto libzstd")
set(ONCE_PC_LIBS "")
if(ONCE_WITH_POSTGRES)
  string(APPEND ONCE_PC_LIBS "-lpq ")
endif()
if(ONCE_WITH_REDIS)
  string(APPEND ONCE_PC_REQUIRES " libssl")
  string(APPEND ONCE_PC_LIBS "-lhiredis ")
endif()
if(ONCE_WITH_CLIENT)
  string(APPEND ONCE_PC_LIBS "-lcurl ")
endif()
configure_file(${CMAKE_CURRENT_LIST_DIR}/once.pc.in ${PROJECT_BINARY_DIR}/once.pc @ONLY)

install(FILES ${PROJECT_BINARY_DIR}/once.pc DESTINATION ${ONCE_PC_DIR})

# find_package(once): the target once::once is the shared library. Like once.pc it finds its prefix from where it lies.
include(CMakePackageConfigHelpers)
set(ONCE_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/once)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/onceConfig.cmake.in ${PROJECT_BINARY_DIR}/onceConfig.cmake
  INSTALL_DESTINATION ${ONCE_CMAKE_DIR} PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/onceConfigVersion.cmake COMPATIBILITY SameMinorVersion) # until 1.0
install(FILES ${PROJECT_BINARY_DIR}/onceConfig.cmake ${PROJECT_BINARY_DIR}/onceConfigVersion.cmake DESTINATION ${ONCE_CMAKE_DIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/once DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN *.h)

# Man pages of the library, made of the headers' comments. Their date is that of once(1).
file(GLOB headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/once/*.h)
file(STRINGS ${PROJECT_SOURCE_DIR}/man/once.1 date REGEX "^\\.Dd " LIMIT_COUNT 1)
string(REPLACE ".Dd " "" date ${date})
set(ONCE_MAN3 ${PROJECT_BINARY_DIR}/man3)
add_custom_command(OUTPUT ${ONCE_MAN3}/libonce.3
  COMMAND ${PROJECT_SOURCE_DIR}/scripts/man3 ${PROJECT_VERSION} ${date} ${ONCE_MAN3} ${headers}
  DEPENDS ${headers} ${PROJECT_SOURCE_DIR}/scripts/man3 VERBATIM)
add_custom_target(man3 ALL DEPENDS ${ONCE_MAN3}/libonce.3)
install(DIRECTORY ${ONCE_MAN3}/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man3)
install(TARGETS once_static once_shared
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
# As in the source tree, so that links between the documents work.
install(FILES ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/CHANGELOG.md
  ${PROJECT_SOURCE_DIR}/SECURITY.md ${PROJECT_SOURCE_DIR}/CONTRIBUTING.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs ${PROJECT_SOURCE_DIR}/examples ${PROJECT_SOURCE_DIR}/deploy
  ${PROJECT_SOURCE_DIR}/openapi
  DESTINATION ${CMAKE_INSTALL_DOCDIR}
  PATTERN node_modules EXCLUDE PATTERN __pycache__ EXCLUDE)
# What it was linked with, here and now.
install(CODE "set(ONCE_SBOM \$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DOCDIR}/once.spdx.json)
message(STATUS \"Installing: \${ONCE_SBOM}\")
execute_process(COMMAND ${PROJECT_SOURCE_DIR}/scripts/sbom ${PROJECT_BINARY_DIR} OUTPUT_FILE \${ONCE_SBOM}
  COMMAND_ERROR_IS_FATAL ANY)")
