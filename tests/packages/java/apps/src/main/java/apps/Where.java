package apps;

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.Map;
import once.Json;

/** The environment of an application, and its third party. */
final class Where {
    private Where() {
    }

    /** Of DATABASE; without prepared statements that outlive a transaction, for PgBouncer. */
    static String jdbc() {
        URI url = URI.create(System.getenv("DATABASE"));
        return "jdbc:postgresql://" + url.getHost() + ":" + url.getPort() + url.getPath() + "?user=" + url.getUserInfo()
            + "&sslmode=disable&prepareThreshold=0";
    }

    static int port() {
        return Integer.parseInt(System.getenv().getOrDefault("PORT", "0"));
    }

    static String transfer(String provider, String key, String order) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(provider)).version(HttpClient.Version.HTTP_1_1)
            .header("Idempotency-Key", key).POST(HttpRequest.BodyPublishers.ofString(Json.write(Map.of("order", order)))).build();
        String answer = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString()).body();
        return (String) ((Map<?, ?>) Json.read(answer)).get("id");
    }
}
