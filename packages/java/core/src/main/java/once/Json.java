package once;

import java.lang.reflect.RecordComponent;
import java.math.BigDecimal;
import java.time.temporal.Temporal;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;

/** JSON without a library: maps, lists, records, text, numbers, dates. Everything else needs a mapper: {@link Once#json}. */
public final class Json {
    private static final int DEPTH = 200;
    private final String text;
    private int at;

    private Json(String text) {
        this.text = text;
    }

    public static String write(Object value) {
        StringBuilder out = new StringBuilder();
        append(out, value);
        return out.toString();
    }

    private static void append(StringBuilder out, Object value) {
        if (value == null || value instanceof Boolean || value instanceof Number number && Double.isFinite(number.doubleValue())) {
            out.append(value);
        } else if (value instanceof CharSequence || value instanceof UUID || value instanceof Temporal || value instanceof Enum) {
            quote(out, value.toString());
        } else if (value instanceof Map<?, ?> map) {
            String before = "{";
            for (Map.Entry<?, ?> member : map.entrySet()) {
                quote(out.append(before), String.valueOf(member.getKey()));
                append(out.append(':'), member.getValue());
                before = ",";
            }
            out.append(map.isEmpty() ? "{}" : "}");
        } else if (value instanceof Iterable<?> list) {
            String before = "[";
            for (Object element : list) {
                append(out.append(before), element);
                before = ",";
            }
            out.append(before.equals("[") ? "[]" : "]");
        } else if (value instanceof Object[] array) {
            append(out, Arrays.asList(array));
        } else if (value instanceof Record record) {
            append(out, membersOf(record));
        } else {
            throw new IllegalArgumentException(value.getClass().getName() + " is not JSON; convert it first, or set a mapper");
        }
    }

    private static Map<String, Object> membersOf(Record record) {
        Map<String, Object> members = new LinkedHashMap<>();
        for (RecordComponent component : record.getClass().getRecordComponents()) {
            try {
                component.getAccessor().setAccessible(true);
                members.put(component.getName(), component.getAccessor().invoke(record));
            } catch (ReflectiveOperationException error) {
                throw new IllegalArgumentException(record.getClass().getName() + " cannot be read", error);
            }
        }
        return members;
    }

    private static void quote(StringBuilder out, String value) {
        out.append('"');
        for (int i = 0; i < value.length(); i++) {
            char c = value.charAt(i);
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < 0x20) {
                out.append(String.format("\\u%04x", (int) c));
            } else {
                out.append(c);
            }
        }
        out.append('"');
    }

    /** Objects are maps, arrays are lists, numbers are {@code Long} or {@code BigDecimal}. */
    public static Object read(String text) {
        Json json = new Json(text);
        Object value = json.value(0);
        json.expect(json.peek() == 0);
        return value;
    }

    private Object value(int depth) {
        char first = peek();
        expect(depth < DEPTH);
        return switch (first) {
            case '{' -> {
                Map<String, Object> map = new LinkedHashMap<>();
                for (at++; peek() != '}'; separator('}')) {
                    expect(peek() == '"');
                    String name = string();
                    expect(peek() == ':');
                    at++;
                    map.put(name, value(depth + 1));
                }
                at++;
                yield map;
            }
            case '[' -> {
                List<Object> list = new ArrayList<>();
                for (at++; peek() != ']'; separator(']')) {
                    list.add(value(depth + 1));
                }
                at++;
                yield list;
            }
            case '"' -> string();
            case 't' -> word("true", true);
            case 'f' -> word("false", false);
            case 'n' -> word("null", null);
            default -> number();
        };
    }

    private void separator(char end) {
        if (peek() == ',') {
            at++;
            expect(peek() != end);
        } else {
            expect(peek() == end);
        }
    }

    private Object word(String word, Object value) {
        expect(text.startsWith(word, at));
        at += word.length();
        return value;
    }

    private Object number() {
        int begin = at;
        while (at < text.length() && "+-.eE0123456789".indexOf(text.charAt(at)) >= 0) {
            at++;
        }
        String found = text.substring(begin, at);
        expect(found.length() <= 100 && found.matches("-?(0|[1-9]\\d*)(\\.\\d+)?([eE][+-]?\\d{1,4})?"));
        return found.matches("-?\\d{1,18}") ? (Object) Long.valueOf(found) : new BigDecimal(found);
    }

    private String string() {
        StringBuilder out = new StringBuilder();
        for (at++; ; at++) {
            expect(at < text.length() && text.charAt(at) >= 0x20);
            char c = text.charAt(at);
            if (c == '"') {
                at++;
                return out.toString();
            }
            if (c == '\\') {
                expect(++at < text.length());
                int known = "bfnrt\"\\/u".indexOf(text.charAt(at));
                expect(known >= 0 && (known < 8 || at + 4 < text.length()));
                c = known < 8 ? "\b\f\n\r\t\"\\/".charAt(known) : (char) HexFormat.fromHexDigits(text, at + 1, at + 5);
                at += known < 8 ? 0 : 4;
            }
            out.append(c);
        }
    }

    /** The next character that is not white space; 0 at the end. */
    private char peek() {
        while (at < text.length() && " \t\r\n".indexOf(text.charAt(at)) >= 0) {
            at++;
        }
        return at < text.length() ? text.charAt(at) : 0;
    }

    private void expect(boolean holds) {
        if (!holds) {
            throw new IllegalArgumentException("this is not JSON, at character " + at);
        }
    }
}
