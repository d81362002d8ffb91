package once;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.math.BigDecimal;
import java.time.LocalDate;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

class JsonTest {
    record Paid(int payment, BigDecimal amount, List<String> notes, LocalDate on) {
    }

    @Test
    void writes() {
        assertEquals("{\"payment\":7,\"amount\":12.50,\"notes\":[\"a\\\"b\",\"\\u000a\"],\"on\":\"2026-11-17\"}",
            Json.write(new Paid(7, new BigDecimal("12.50"), List.of("a\"b", "\n"), LocalDate.of(2026, 11, 17))));
        assertEquals("[null,true,{},[],\"\u65e5\"]", Json.write(Arrays.asList(null, true, Map.of(), List.of(), "\u65e5")));
        assertThrows(IllegalArgumentException.class, () -> Json.write(new Object()));
        assertThrows(IllegalArgumentException.class, () -> Json.write(Double.NaN));
    }

    @Test
    void reads() {
        String text = " {\"a\" : [1, -2.5e3, true, null, \"\\u00e9\\n\\\\\\/\"], \"b\": {}, \"c\": []} ";
        List<Object> list = Arrays.asList(1L, new BigDecimal("-2.5e3"), true, null, "\u00e9\n\\/");
        assertEquals(Map.of("a", list, "b", Map.of(), "c", List.of()), Json.read(text));
    }

    @Test
    void refuses() {
        for (String bad : List.of("", "{", "[1,]", "{\"a\":1,}", "{a:1}", "[1 2]", "01", "+1", "1.", "\"\n\"", "\"\\x\"",
            "\"\\u12\"", "\"a", "tru", "nul", "[] []", "1e99999", "[".repeat(5000), "{\"a\" 1}")) {
            assertThrows(IllegalArgumentException.class, () -> Json.read(bad), bad);
        }
    }
}
