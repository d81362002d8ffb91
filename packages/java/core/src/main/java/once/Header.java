package once;

public record Header(String name, String value) {
}
