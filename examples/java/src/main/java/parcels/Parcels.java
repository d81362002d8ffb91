package parcels;

import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.Executors;
import once.Once;
import once.Operation;
import once.Response;

/** Parcels that are sent once, with the records in any store: docs/java.md. The carrier takes its time, and does not know keys. */
public final class Parcels {
    private Parcels() {
    }

    private static Response send(Operation op) throws IOException, InterruptedException {
        Map<?, ?> parcel = (Map<?, ?>) op.request().json();
        Path carrier = Path.of(System.getenv("SENT"));
        Files.writeString(carrier, parcel.get("to") + "\n", StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        Thread.sleep(Duration.ofSeconds((Long) parcel.get("takes")).toMillis());
        return Response.json(201, Map.of("sent", parcel.get("to")));
    }

    public static void main(String[] arguments) throws IOException {
        Once once = Once.store(URI.create(System.getenv("SERVE")), null).scope("the only client").lease(Duration.ofSeconds(2));
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(System.getenv("PORT"))), 0);
        server.setExecutor(Executors.newCachedThreadPool());
        server.createContext("/parcels", once.handler(Parcels::send));
        server.start();
        System.out.println("parcels: ready");
    }
}
