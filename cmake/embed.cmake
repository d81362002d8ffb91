# Writes a C file that holds other files as text, sorted by name:
#   cmake -DROOT=DIR -DFILES=PATTERN,PATTERN... -DHEADER=NAME.h -DTYPE=TYPE -DNAME=NAME -DOUT=FILE.c -P embed.cmake
# HEADER declares `extern const TYPE NAME[]` and `extern const size_t NAME_count`; TYPE has the members name and text. A pattern is
# below ROOT, and so are the names in the table.
string(REPLACE "," ";" patterns "${FILES}")
list(TRANSFORM patterns PREPEND ${ROOT}/)
file(GLOB files RELATIVE ${ROOT} ${patterns})
list(SORT files)
set(texts "")
set(table "")
set(n 0)
foreach(file ${files})
  file(READ ${ROOT}/${file} hex HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  string(APPEND texts "static const unsigned char file_${n}[] = {${bytes}0};\n")
  string(APPEND table "    {.name = \"${file}\", .text = (const char *)file_${n}},\n")
  math(EXPR n "${n} + 1")
endforeach()
file(WRITE ${OUT}.new "#include \"${HEADER}\"\n\n${texts}
const ${TYPE} ${NAME}[] = {\n${table}};
const size_t ${NAME}_count = sizeof(${NAME}) / sizeof(${NAME}[0]);\n")
file(COPY_FILE ${OUT}.new ${OUT} ONLY_IF_DIFFERENT)
