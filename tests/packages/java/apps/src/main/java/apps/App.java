package apps;

import jakarta.persistence.Column;
import jakarta.persistence.Entity;
import jakarta.persistence.EntityManager;
import jakarta.persistence.GeneratedValue;
import jakarta.persistence.GenerationType;
import jakarta.persistence.Id;
import jakarta.persistence.Table;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import once.Bound;
import once.NothingDone;
import once.Operation;
import once.spring.Idempotent;
import org.hibernate.annotations.SQLInsert;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.boot.context.event.ApplicationReadyEvent;
import org.springframework.context.annotation.Profile;
import org.springframework.context.event.EventListener;
import org.springframework.dao.DataIntegrityViolationException;
import org.springframework.http.HttpStatus;
import org.springframework.http.MediaType;
import org.springframework.http.ResponseEntity;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.stereotype.Component;
import org.springframework.transaction.annotation.Isolation;
import org.springframework.transaction.annotation.Transactional;
import org.springframework.web.bind.annotation.ExceptionHandler;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RequestBody;
import org.springframework.web.bind.annotation.RestController;
import org.springframework.web.server.ResponseStatusException;

/** Spring Boot with JdbcTemplate (profile jdbc), with JPA (jpa), and with records in a store of their own (store). */
@SpringBootApplication
public class App {
    record Asked(String order, String note, String then, String provider) {
    }

    interface Payments {
        long next(String order);

        long insert(String order, long number, String note);

        void note(String order, String note);
    }

    @Component
    @Profile("!jpa")
    static class WithJdbc implements Payments {
        private final JdbcTemplate db;

        WithJdbc(JdbcTemplate db) {
            this.db = db;
        }

        @Override
        public long next(String order) {
            return db.queryForObject("SELECT count(*) + 1 FROM payments WHERE order_id = ?", Long.class, order);
        }

        @Override
        public long insert(String order, long number, String note) {
            return db.queryForObject("INSERT INTO payments (order_id, number, note) VALUES (?, ?, ?) RETURNING id", Long.class,
                order, number, note);
        }

        @Override
        public void note(String order, String note) {
            db.update("UPDATE payments SET note = ? WHERE order_id = ?", note, order);
        }
    }

    @Entity
    @Table(name = "payments")
    @SQLInsert(sql = "INSERT INTO payments (note, number, order_id) VALUES (?, ?, ?)") // in capitals, for the tests
    static class Payment {
        @Id
        @GeneratedValue(strategy = GenerationType.IDENTITY)
        Long id;
        String note;
        long number;
        @Column(name = "order_id")
        String order;
    }

    @Component
    @Profile("jpa")
    static class WithJpa implements Payments {
        private final EntityManager db;

        WithJpa(EntityManager db) {
            this.db = db;
        }

        @Override
        public long next(String order) {
            return db.createQuery("SELECT count(p) + 1 FROM App$Payment p WHERE p.order = :o", Long.class).setParameter("o", order)
                .getSingleResult();
        }

        @Override
        public long insert(String order, long number, String note) {
            Payment made = new Payment();
            made.order = order;
            made.number = number;
            made.note = note;
            db.persist(made);
            return made.id;
        }

        @Override
        public void note(String order, String note) {
            db.createQuery("SELECT p FROM App$Payment p WHERE p.order = :o", Payment.class).setParameter("o", order)
                .getSingleResult().note = note; // written by the commit
        }
    }

    /** In the transaction of the request, as any method that is called with one. */
    @Component
    static class Till {
        private final Payments payments;

        Till(Payments payments) {
            this.payments = payments;
        }

        @Transactional
        public Map<String, Object> pay(Asked asked) {
            return work(asked);
        }

        @Transactional
        public void fail(Asked asked) {
            work(asked);
            throw new IllegalStateException("after the payment");
        }

        Map<String, Object> work(Asked asked) {
            Map<String, Object> paid = new LinkedHashMap<>();
            long number = payments.next(asked.order);
            paid.put("payment", payments.insert(asked.order, number, asked.note));
            paid.put("number", number);
            paid.put("order", asked.order);
            paid.put("note", asked.note);
            return paid;
        }
    }

    @RestController
    static class Api {
        private final Till till;
        private final Payments payments;
        private final Bound bound;
        private final boolean hasStore = System.getenv("ONCE_SERVE") != null;

        Api(Till till, Payments payments, Bound bound) {
            this.till = till;
            this.payments = payments;
            this.bound = bound;
        }

        @Idempotent
        @PostMapping("/payments")
        ResponseEntity<?> pay(@RequestBody Asked asked, Operation op) {
            String then = asked.then == null ? "" : asked.then;
            if (hasStore) {
                check(then);
            }
            if (hasStore && then.equals("later")) {
                return ResponseEntity.status(429).body(Map.of("error", "later"));
            }
            Map<String, Object> paid = hasStore ? till.work(asked) : till.pay(asked);
            Map<String, Object> event = new HashMap<>(Map.of("order", asked.order));
            event.put("note", asked.note);
            paid.put("event", hasStore ? null : op.emit("payments", asked.order, "paid", event));
            check(then);
            return switch (then) {
                case "refuse later" -> throw new ResponseStatusException(HttpStatus.TOO_MANY_REQUESTS, "later");
                case "raise" -> throw new IllegalStateException("as asked");
                case "refuse in the transaction" -> ResponseEntity.status(402).body(Map.of("error", "no"));
                case "later" -> ResponseEntity.status(429).body(Map.of("error", "later"));
                case "bytes" -> ResponseEntity.ok().contentType(MediaType.APPLICATION_OCTET_STREAM).body(bytes());
                default -> ResponseEntity.status(201).header("X-Order", asked.order).body(paid);
            };
        }

        private void check(String then) {
            if (then.equals("refuse")) {
                throw new ResponseStatusException(HttpStatus.PAYMENT_REQUIRED, "refused");
            }
            if (then.equals("release")) {
                throw new NothingDone("as asked", null);
            }
        }

        private static byte[] bytes() {
            byte[] all = new byte[512];
            for (int i = 0; i < all.length; i++) {
                all[i] = (byte) i;
            }
            return all;
        }

        @Idempotent
        @PostMapping("/payouts")
        ResponseEntity<?> payOut(@RequestBody Asked asked, Operation op) throws Exception {
            String key = op.derive("transfer");
            Operation.Checkpoint done = hasStore ? new Operation.Checkpoint("reserved", null) : op.resume();
            Object id = done.state() instanceof Map<?, ?> state ? state.get("id") : null;
            if (done.name() == null) {
                payments.insert(asked.order, 0, "reserved");
                op.checkpoint("reserved");
            }
            if (id == null) {
                id = Where.transfer(asked.provider, key, asked.order);
                if (hasStore) {
                    payments.insert(asked.order, 0, id.toString());
                } else {
                    op.checkpoint("transferred", Map.of("id", id));
                }
            }
            payments.note(asked.order, id.toString());
            return ResponseEntity.status(201).body(Map.of("transfer", id));
        }

        @Transactional
        @PostMapping("/events")
        public Map<String, Object> event(@RequestBody String message) {
            return Map.of("new", bound.accept("ledger", message));
        }
    }

    /** What only Spring has; see ../test_spring.py. */
    @Idempotent
    @RestController
    @Profile("jpa")
    static class Odd {
        private final Till till;
        private final EntityManager db;

        Odd(Till till, EntityManager db) {
            this.till = till;
            this.db = db;
        }

        /** PostgreSQL refuses it when JPA sends it: after the handler, before the record. */
        @PostMapping("/late")
        Map<String, Object> late(@RequestBody Asked asked) {
            Map<String, Object> paid = till.pay(asked);
            db.find(Payment.class, paid.get("payment")).order = null;
            return paid;
        }

        @ExceptionHandler
        ResponseEntity<?> refused(DataIntegrityViolationException error) {
            return ResponseEntity.status(422).body(Map.of("error", "PostgreSQL refuses it"));
        }

        /** A method that joined the transaction has failed, and the handler goes on as if nothing were. */
        @PostMapping("/caught")
        ResponseEntity<?> caught(@RequestBody Asked asked) {
            try {
                till.fail(asked);
            } catch (IllegalStateException error) {
                return ResponseEntity.status(Integer.parseInt(asked.then)).body(Map.of("error", "caught"));
            }
            return ResponseEntity.ok().build();
        }

        @Transactional(isolation = Isolation.SERIALIZABLE)
        @PostMapping("/isolated")
        public Object isolated() {
            return Map.of("isolation", db.createNativeQuery("SHOW transaction_isolation").getSingleResult());
        }
    }

    @EventListener
    void ready(ApplicationReadyEvent event) {
        String port = event.getApplicationContext().getEnvironment().getProperty("local.server.port");
        System.out.println("listening on http://127.0.0.1:" + port);
    }

    public static void main(String[] arguments) {
        SpringApplication application = new SpringApplication(App.class);
        Map<String, Object> settings = new HashMap<>(Map.of("spring.datasource.url", Where.jdbc(),
            "spring.datasource.type", "org.springframework.jdbc.datasource.SimpleDriverDataSource", // connects anew each time
            "server.address", "127.0.0.1", "server.port", Where.port(), "once.scope", "tenant-7",
            "spring.jpa.properties.hibernate.boot.allow_jdbc_metadata_access", "false",
            "spring.jpa.database-platform", "org.hibernate.dialect.PostgreSQLDialect", "spring.jpa.open-in-view", "false",
            "spring.main.banner-mode", "off", "logging.level.root", "warn"));
        if (System.getenv("ONCE_SERVE") != null) {
            settings.putAll(Map.of("once.server", System.getenv("ONCE_SERVE"), "once.lease", System.getenv("LEASE") + "s"));
        }
        settings.put("spring.main.lazy-initialization", true); // it is started often
        application.setDefaultProperties(settings);
        if (!List.of(arguments).contains("--spring.profiles.active=jpa")) {
            settings.put("spring.autoconfigure.exclude",
                "org.springframework.boot.hibernate.autoconfigure.HibernateJpaAutoConfiguration,"
                + "org.springframework.boot.data.jpa.autoconfigure.DataJpaRepositoriesAutoConfiguration");
        }
        application.run(arguments);
        if (List.of(arguments).contains("--exit")) { // for `prepare`
            System.exit(0);
        }
    }
}
