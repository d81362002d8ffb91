package once.client;

import java.io.IOException;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryStream;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.time.Duration;
import java.time.Instant;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.regex.Pattern;
import once.Json;

/**
 * Intents in a directory, a file for each, which processes and threads may share. Nothing of a request is in it but its hash. The
 * files are those of the packages for other languages.
 */
public final class Journal {
    private static final Duration MONTH = Duration.ofDays(30);
    private static final Pattern OWN = Pattern.compile("[0-9a-f]{64}\\.(json|.+\\.new)"); // what a journal calls its files
    private final Path directory;
    private final Duration keep;
    private final boolean posix;

    public Journal(Path directory) throws IOException {
        this(directory, Duration.ofDays(1));
    }

    /**
     * Makes the directory, and removes intents that are a month too old.
     *
     * @param keep how long after its first attempt an intent may be sent again if no answer has said for how long the key is
     *             remembered. It should not be longer than the API remembers keys.
     */
    public Journal(Path directory, Duration keep) throws IOException {
        this.directory = directory.toAbsolutePath();
        this.keep = keep;
        posix = directory.getFileSystem().supportedFileAttributeViews().contains("posix");
        if (!Files.isDirectory(this.directory)) {
            Path parent = Files.createDirectories(this.directory.getParent());
            try {
                if (posix) {
                    Files.createDirectory(this.directory,
                        PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------")));
                } else {
                    Files.createDirectory(this.directory);
                }
            } catch (FileAlreadyExistsException found) {
                if (!Files.isDirectory(this.directory)) { // made by another process in the meantime
                    throw found;
                }
            }
            sync(parent);
        }
        forget();
    }

    Path path(String name) {
        return directory.resolve(sha256(name.getBytes(StandardCharsets.UTF_8)) + ".json");
    }

    /** Of the parts with a zero byte between them. */
    static String sha256(byte[]... parts) {
        try {
            MessageDigest digest = MessageDigest.getInstance("SHA-256");
            for (int i = 0; i < parts.length; i++) {
                digest.update(new byte[i > 0 ? 1 : 0]);
                digest.update(parts[i]);
            }
            return HexFormat.of().formatHex(digest.digest());
        } catch (NoSuchAlgorithmException missing) {
            throw new IllegalStateException(missing); // every Java has it
        }
    }

    /**
     * Removes what has been too old to be sent again for a month. Until then its name is not taken for a new intent. Files that are
     * not the journal's own are left alone.
     */
    private void forget() throws IOException {
        Instant now = Instant.now();
        try (DirectoryStream<Path> entries = Files.newDirectoryStream(directory,
            entry -> OWN.matcher(entry.getFileName().toString()).matches())) {
            for (Path entry : entries) {
                try {
                    if (Files.getLastModifiedTime(entry).toInstant().isAfter(now.minus(keep).minus(MONTH))) {
                        continue;
                    }
                    Instant expires = entry.toString().endsWith(".new") ? null : time(read(entry).get("expires"));
                    if (expires == null || expires.isBefore(now.minus(MONTH))) { // .new: begun by a process that was killed
                        Files.deleteIfExists(entry);
                    }
                } catch (NoSuchFileException gone) {
                    continue; // removed by another process
                }
            }
        }
    }

    /** The key of this name, which is {@code key} if there was none; on disk when this returns. */
    String key(String name, String request, String key) throws IOException {
        Map<String, Object> made = new LinkedHashMap<>();
        made.put("version", 1);
        made.put("request", request);
        made.put("key", key);
        made.put("created", seconds(Instant.now()));
        made.put("expires", null);
        Map<?, ?> found = put(name, made, false);
        if (!request.equals(found.get("request"))) {
            throw new IntentChanged(name);
        }
        Instant expires = time(found.get("expires"));
        if (Instant.now().isAfter(expires == null ? time(found.get("created")).plus(keep) : expires)) {
            throw new IntentExpired(name);
        }
        return (String) found.get("key");
    }

    /** An answer said until when the key is remembered. */
    void ended(String name, Instant expires) throws IOException {
        Map<String, Object> found;
        try {
            found = read(path(name));
        } catch (NoSuchFileException gone) {
            return;
        }
        found.put("expires", seconds(expires));
        put(name, found, true);
    }

    private static BigDecimal seconds(Instant at) {
        return BigDecimal.valueOf(at.toEpochMilli(), 3);
    }

    private static Instant time(Object seconds) {
        return seconds == null ? null : Instant.ofEpochMilli((long) (((Number) seconds).doubleValue() * 1000));
    }

    @SuppressWarnings("unchecked")
    private static Map<String, Object> read(Path path) throws IOException {
        try {
            Map<String, Object> found = (Map<String, Object>) Json.read(Files.readString(path));
            if (found.get("request") instanceof String && found.get("key") instanceof String
                && found.get("created") instanceof Number
                && (found.get("expires") == null || found.get("expires") instanceof Number)) {
                return found;
            }
        } catch (IllegalArgumentException | ClassCastException wrong) {
            throw new IOException(path + " is not an intent of a journal", wrong);
        }
        throw new IOException(path + " is not an intent of a journal");
    }

    /** Writes it whole, or not at all. What another process has put there first is kept unless it is replaced. */
    private Map<String, Object> put(String name, Map<String, Object> made, boolean replace) throws IOException {
        Path path = path(name);
        Path temporary = Files.createTempFile(directory, sha256(name.getBytes(StandardCharsets.UTF_8)) + ".", ".new"); // mode 0600
        Map<String, Object> found = made;
        try {
            try (FileChannel channel = FileChannel.open(temporary, StandardOpenOption.WRITE)) {
                ByteBuffer text = StandardCharsets.UTF_8.encode(Json.write(made));
                while (text.hasRemaining()) {
                    channel.write(text);
                }
                channel.force(true);
            }
            if (replace) {
                Files.move(temporary, path, StandardCopyOption.ATOMIC_MOVE);
            } else {
                Files.createLink(path, temporary);
            }
        } catch (FileAlreadyExistsException first) {
            found = read(path);
        } finally {
            Files.deleteIfExists(temporary);
        }
        sync(directory);
        return found;
    }

    /** Only POSIX systems can, and need it. */
    private void sync(Path folder) throws IOException {
        if (posix) {
            try (FileChannel channel = FileChannel.open(folder, StandardOpenOption.READ)) {
                channel.force(true);
            }
        }
    }
}
