package once.spring;

import java.net.URI;
import java.nio.file.Path;
import java.time.Duration;
import org.springframework.boot.context.properties.ConfigurationProperties;
import org.springframework.boot.context.properties.bind.DefaultValue;

/**
 * @param scope whose keys they are, if all clients are one; without it, and without a bean {@link ScopeResolver}, the name of the
 *     authenticated principal
 * @param waits for a request with the same key that is at work, instead of 409
 * @param lease for which a checkpoint holds the key; with a store, for which a crash keeps it busy
 * @param ttl for which a response is kept
 * @param attempts of a transaction, when it conflicts or its connection is lost
 * @param server address of {@code once serve}: records are in its store, and not in the transaction
 * @param token of {@code once serve} over TCP
 * @param tokenFile instead: where {@code once serve} has written it
 * @param recover with {@code server}: what may have taken effect waits until it is settled ({@code hold}), or runs again
 *     ({@code retry})
 */
@ConfigurationProperties("once")
public record OnceProperties(String scope, @DefaultValue("false") boolean waits, @DefaultValue("30s") Duration lease,
    @DefaultValue("24h") Duration ttl, @DefaultValue("6") int attempts, URI server, String token, Path tokenFile,
    @DefaultValue("HOLD") Recover recover) {
    public enum Recover { HOLD, RETRY }
}
