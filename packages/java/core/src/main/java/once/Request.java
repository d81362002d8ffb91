package once;

import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.regex.Pattern;

/** What tells one operation from another. {@code origin} is the framework's request, or null. */
public record Request(String method, String target, List<Header> headers, byte[] body, Object origin) {
    private static final Pattern CLAIM = Pattern.compile("[A-Za-z0-9_-]{70}");

    public List<String> all(String name) {
        return headers.stream().filter(header -> header.name().equalsIgnoreCase(name)).map(Header::value).toList();
    }

    /** The body as {@link Json} reads it. */
    public Object json() {
        return Json.read(new String(body, StandardCharsets.UTF_8));
    }

    /** The claim of the gate. Without one the application claims by itself. */
    String claim() {
        List<String> values = all("Once-Claim");
        if (!values.isEmpty() && !(values.size() == 1 && CLAIM.matcher(values.get(0)).matches())) {
            throw Problem.KEY_INVALID.answer("the header Once-Claim is not a claim; only once gate may send it");
        }
        return values.isEmpty() ? null : values.get(0);
    }

    /** From all the Idempotency-Key headers: {@code "k"} and {@code k} are the same. The rules are those of lib/core/key.c. */
    public String key() {
        List<String> values = all("Idempotency-Key");
        if (values.isEmpty()) {
            throw Problem.KEY_MISSING.answer();
        }
        refuse(values.size() > 1, "the key header was sent " + values.size() + " times; send it once");
        String value = values.get(0).strip();
        boolean quoted = value.startsWith("\"");
        refuse(!quoted && value.contains(","),
            "the key has a comma, as if several were joined; send exactly one, in double quotes if the comma belongs to it");
        String key = quoted ? unquote(value) : value;
        refuse(key.isEmpty(), "the key is empty; send 1 to 255 characters");
        refuse(key.chars().anyMatch(c -> c >= 0x80), "the key has a byte that is not ASCII; use visible ASCII characters only");
        refuse(key.chars().anyMatch(c -> c < 0x20 || c == 0x7f),
            "the key has a control character; use visible ASCII characters only");
        refuse(key.length() > 255, "the key is longer than 255 bytes; send a shorter one");
        return key;
    }

    private static String unquote(String value) {
        StringBuilder key = new StringBuilder();
        int at = 1;
        for (; at < value.length() && value.charAt(at) != '"'; at++) {
            if (value.charAt(at) == '\\') {
                at++;
                refuse(at == value.length() || "\"\\".indexOf(value.charAt(at)) < 0,
                    "the key has a backslash that escapes nothing; inside quotes only \\\" and \\\\ are escapes");
            }
            key.append(value.charAt(at));
        }
        refuse(at >= value.length(), "the key's closing quote is missing; add it");
        String rest = value.substring(at + 1).strip();
        refuse(rest.startsWith(","), "the key header has several keys, separated by commas; send exactly one");
        refuse(rest.startsWith(";"), "the key has parameters after its closing quote; send the key alone");
        refuse(!rest.isEmpty(), "there is text after the key's closing quote; write a quote inside a key as \\\"");
        return key.toString();
    }

    private static void refuse(boolean wrong, String why) {
        if (wrong) {
            throw Problem.KEY_INVALID.answer(why);
        }
    }
}
