# Writes a C file that holds other files as text: cmake -DROOT=DIR -DOUT=FILE.c -P embed.cmake
file(GLOB files RELATIVE ${ROOT} ${ROOT}/*.sql ${ROOT}/functions/*.sql)
list(SORT files)
set(texts "")
set(table "")
set(n 0)
foreach(file ${files})
  file(READ ${ROOT}/${file} hex HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  string(APPEND texts "static const unsigned char file_${n}[] = {${bytes}0};\n")
  string(APPEND table "    {\"${file}\", (const char *)file_${n}},\n")
  math(EXPR n "${n} + 1")
endforeach()
file(WRITE ${OUT}.new "#include \"cli/pg_sql.h\"\n\n${texts}
const once__pg_file_t once__pg_files[] = {\n${table}};
const size_t once__pg_file_count = sizeof(once__pg_files) / sizeof(once__pg_files[0]);\n")
file(COPY_FILE ${OUT}.new ${OUT} ONLY_IF_DIFFERENT)
