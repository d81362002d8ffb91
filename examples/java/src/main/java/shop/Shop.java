package shop;

import java.math.BigDecimal;
import java.util.Map;
import once.Operation;
import once.spring.Idempotent;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.http.HttpStatus;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RequestBody;
import org.springframework.web.bind.annotation.ResponseStatus;
import org.springframework.web.bind.annotation.RestController;

/** Payments that are made exactly once, with Spring Boot: docs/java.md. */
@SpringBootApplication
@RestController
public class Shop {
    record Payment(String order, BigDecimal amount) {
    }

    private final JdbcTemplate db;

    Shop(JdbcTemplate db) {
        this.db = db;
    }

    @Idempotent
    @PostMapping("/payments")
    @ResponseStatus(HttpStatus.CREATED)
    Map<String, Object> pay(@RequestBody Payment payment, Operation op) {
        Long made = db.queryForObject("INSERT INTO paid (order_id, amount) VALUES (?, ?) RETURNING id", Long.class,
            payment.order(), payment.amount());
        op.emit("payments", payment.order(), "paid", payment);
        return Map.of("payment", made, "order", payment.order());
    }

    public static void main(String[] arguments) {
        SpringApplication.run(Shop.class, arguments);
    }
}
