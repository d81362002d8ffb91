package once;

import io.opentelemetry.api.trace.Span;

/** Attributes of the span that the application is in, if it has OpenTelemetry. */
final class Telemetry {
    private static final boolean PRESENT = isPresent();

    private Telemetry() {
    }

    private static boolean isPresent() {
        try {
            Class.forName("io.opentelemetry.api.trace.Span");
            return true;
        } catch (ClassNotFoundException | LinkageError error) {
            return false;
        }
    }

    /** The outcome is named as the gate names it in $once_outcome. */
    static void mark(String outcome, Ticket ticket) {
        if (PRESENT) {
            Span span = Span.current().setAttribute("once.outcome", outcome).setAttribute("once.attempts", ticket.attempt);
            ticket.key().ifPresent(key -> span.setAttribute("once.key", key));
        }
    }
}
