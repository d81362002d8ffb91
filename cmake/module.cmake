# The nginx module. scripts/build-module makes it with nginx's own configure and makefile; here is only when.
set(ONCE_NGINX_SOURCE /usr/share/nginx/src CACHE PATH "nginx headers: of the package nginx-dev, or an nginx source tree")

set(ONCE_NGINX_MODULES lib/nginx/modules CACHE PATH "Where the module is installed, below the prefix or absolute")

add_custom_target(product DEPENDS once once_static once_shared) # what is installed

# Fuzz targets need no nginx, and the thread sanitizer does not work in a program that is not built with it.
if(NOT ONCE_WITH_NGINX OR ONCE_FUZZ OR ONCE_SANITIZE MATCHES thread)
  return()
endif()
if(NOT EXISTS ${ONCE_NGINX_SOURCE}/src/core/nginx.h)
  message(STATUS "no nginx headers in ${ONCE_NGINX_SOURCE}: the module is not built")
  return()
endif()

set(ONCE_MODULE ${PROJECT_BINARY_DIR}/ngx_http_once_module.so)
set(options --source ${ONCE_NGINX_SOURCE})
if(ONCE_SANITIZE)
  list(APPEND options --sanitize ${ONCE_SANITIZE})
  set(wrapper BYPRODUCTS ${PROJECT_BINARY_DIR}/nginx-sanitized)
endif()
file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/nginx/*.c ${PROJECT_SOURCE_DIR}/nginx/*.h)
file(GLOB headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/once/*.h)
add_custom_command(OUTPUT ${ONCE_MODULE} ${wrapper}
  COMMAND ${CMAKE_COMMAND} -E env CC=${CMAKE_C_COMPILER} ${PROJECT_SOURCE_DIR}/scripts/build-module ${PROJECT_BINARY_DIR} ${options}
  DEPENDS ${sources} ${headers} ${PROJECT_SOURCE_DIR}/nginx/config ${PROJECT_SOURCE_DIR}/scripts/build-module once_static
  COMMENT "Building the nginx module" VERBATIM)
add_custom_target(module ALL DEPENDS ${ONCE_MODULE})
add_dependencies(product module)

if(NOT ONCE_SANITIZE)
  install(FILES ${ONCE_MODULE} DESTINATION ${ONCE_NGINX_MODULES})
endif()
