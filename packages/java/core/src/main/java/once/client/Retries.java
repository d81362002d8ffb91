package once.client;

import java.time.Duration;
import java.util.Set;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.UnaryOperator;

/**
 * How long and how often: {@code new Retries().deadline(Duration.ofSeconds(30))}.
 *
 * @param deadline from the first attempt to the last
 * @param base     the pause is drawn from 0 to base * 2^n (full jitter), after what Retry-After asks for
 * @param cap      the longest bound of a pause
 * @param methods  which get a key
 * @param draw     draws a pause that is not longer than the bound it gets
 */
public record Retries(Duration deadline, Duration base, Duration cap, Set<String> methods, UnaryOperator<Duration> draw) {
    public Retries {
        methods = Set.copyOf(methods);
    }

    public Retries() {
        this(Duration.ofMinutes(1), Duration.ofMillis(200), Duration.ofSeconds(20), Set.of("POST", "PATCH"),
            most -> Duration.ofNanos(ThreadLocalRandom.current().nextLong(most.toNanos() + 1)));
    }

    public Retries deadline(Duration value) {
        return new Retries(value, base, cap, methods, draw);
    }

    public Retries base(Duration value) {
        return new Retries(deadline, value, cap, methods, draw);
    }

    public Retries cap(Duration value) {
        return new Retries(deadline, base, value, methods, draw);
    }

    public Retries methods(Set<String> value) {
        return new Retries(deadline, base, cap, value, draw);
    }

    public Retries draw(UnaryOperator<Duration> value) {
        return new Retries(deadline, base, cap, methods, value);
    }

    /** The pause before attempt {@code attempt + 2}. */
    Duration pause(int attempt) {
        Duration bound = base.multipliedBy(1L << Math.min(attempt, 20));
        return draw.apply(bound.compareTo(cap) < 0 ? bound : cap);
    }
}
