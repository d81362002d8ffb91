# What every target of this project is compiled with.
add_library(once_flags INTERFACE)
target_compile_definitions(once_flags INTERFACE _GNU_SOURCE OPENSSL_API_COMPAT=0x10101000L)
target_compile_options(once_flags INTERFACE
  -Wall -Wextra $<$<BOOL:${ONCE_WERROR}>:-Werror> -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith
  -Wwrite-strings -Wvla -Wformat=2 -Wcast-qual -Wundef -Wno-unused-parameter)
target_include_directories(once_flags INTERFACE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/lib ${PROJECT_SOURCE_DIR}/src)
if(ONCE_SANITIZE)
  target_compile_options(once_flags INTERFACE -fsanitize=${ONCE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(once_flags INTERFACE -fsanitize=${ONCE_SANITIZE})
endif()

# Hardening, as Debian builds its own packages. Sanitizers bring checks of their own, which the fortified functions would bypass.
include(CheckCCompilerFlag)
include(CheckPIESupported)
check_pie_supported()
function(once_harden flag) # where the compiler and the architecture have it
  string(MAKE_C_IDENTIFIER "ONCE_HAS${flag}" has)
  set(CMAKE_REQUIRED_FLAGS -Werror)
  check_c_compiler_flag(${flag} ${has})
  if(${has})
    target_compile_options(once_flags INTERFACE ${flag})
  endif()
endfunction()
if(ONCE_HARDEN AND NOT ONCE_SANITIZE AND NOT ONCE_FUZZ)
  once_harden(-fstack-protector-strong)
  once_harden(-fstack-clash-protection)
  once_harden(-fcf-protection)             # x86
  once_harden(-mbranch-protection=standard) # ARM
  set(optimised $<NOT:$<CONFIG:Debug>>) # fortified functions need that
  target_compile_options(once_flags INTERFACE $<${optimised}:-U_FORTIFY_SOURCE> $<${optimised}:-D_FORTIFY_SOURCE=2>)
  target_link_options(once_flags INTERFACE -Wl,-z,relro,-z,now)
endif()
# No path of the machine that it was built on is in what is installed.
target_compile_options(once_flags INTERFACE -ffile-prefix-map=${PROJECT_BINARY_DIR}=build -ffile-prefix-map=${PROJECT_SOURCE_DIR}=.)

# The libraries, by what needs them. Every target knows what was left out: ONCE_WITH_... is 0 or 1.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
pkg_check_modules(CRYPTO REQUIRED IMPORTED_TARGET libcrypto)
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
pkg_check_modules(YAML REQUIRED IMPORTED_TARGET yaml-0.1)
pkg_check_modules(CURL REQUIRED IMPORTED_TARGET libcurl)
pkg_check_modules(MICROHTTPD REQUIRED IMPORTED_TARGET libmicrohttpd)
foreach(part POSTGRES REDIS KAFKA AMQP CLIENT)
  target_compile_definitions(once_flags INTERFACE ONCE_WITH_${part}=$<BOOL:${ONCE_WITH_${part}}>)
endforeach()
if(ONCE_WITH_POSTGRES)
  pkg_check_modules(PQ REQUIRED IMPORTED_TARGET libpq)
endif()
if(ONCE_WITH_REDIS)
  pkg_check_modules(SSL REQUIRED IMPORTED_TARGET libssl)
  pkg_check_modules(HIREDIS REQUIRED IMPORTED_TARGET hiredis)
  # Without its -D_FILE_OFFSET_BITS: that would give the library's calls other names (pread64), which tests stand in for.
  set_property(TARGET PkgConfig::HIREDIS PROPERTY INTERFACE_COMPILE_OPTIONS "")
endif()
if(ONCE_WITH_KAFKA)
  pkg_check_modules(RDKAFKA REQUIRED IMPORTED_TARGET rdkafka)
endif()
if(ONCE_WITH_AMQP)
  pkg_check_modules(RABBITMQ REQUIRED IMPORTED_TARGET librabbitmq)
endif()
