# What every target of this project is compiled with.
add_library(once_flags INTERFACE)
target_compile_definitions(once_flags INTERFACE _GNU_SOURCE OPENSSL_API_COMPAT=0x10101000L)
target_compile_options(once_flags INTERFACE
  -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith
  -Wwrite-strings -Wvla -Wformat=2 -Wcast-qual -Wundef -Wno-unused-parameter)
target_include_directories(once_flags INTERFACE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
if(ONCE_SANITIZE)
  target_compile_options(once_flags INTERFACE -fsanitize=${ONCE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(once_flags INTERFACE -fsanitize=${ONCE_SANITIZE})
endif()

find_package(PkgConfig REQUIRED)
pkg_check_modules(CRYPTO REQUIRED IMPORTED_TARGET libcrypto)
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(PQ REQUIRED IMPORTED_TARGET libpq)
pkg_check_modules(SSL REQUIRED IMPORTED_TARGET libssl)
pkg_check_modules(HIREDIS REQUIRED IMPORTED_TARGET hiredis)
# Without its -D_FILE_OFFSET_BITS: that would give the library's calls other names (pread64), which tests stand in for.
set_property(TARGET PkgConfig::HIREDIS PROPERTY INTERFACE_COMPILE_OPTIONS "")
find_package(Threads REQUIRED)
