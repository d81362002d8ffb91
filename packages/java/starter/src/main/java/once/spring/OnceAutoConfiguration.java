package once.spring;

import java.nio.charset.StandardCharsets;
import java.util.function.Function;
import javax.sql.DataSource;
import once.Bound;
import once.Json;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.context.properties.EnableConfigurationProperties;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.Import;
import tools.jackson.databind.json.JsonMapper;

/** Beans: {@link once.Once} for requests, {@link Bound} for every other transaction. */
@AutoConfiguration(afterName = {
    "org.springframework.boot.jdbc.autoconfigure.DataSourceAutoConfiguration",
    "org.springframework.boot.jdbc.autoconfigure.DataSourceTransactionManagerAutoConfiguration",
    "org.springframework.boot.hibernate.autoconfigure.HibernateJpaAutoConfiguration",
    "org.springframework.boot.jackson.autoconfigure.JacksonAutoConfiguration"})
@EnableConfigurationProperties(OnceProperties.class)
@Import({OnceAutoConfiguration.Jackson.class, OnceWebConfiguration.class})
public class OnceAutoConfiguration {
    /** Makes the JSON of events and checkpoints. */
    interface Mapper extends Function<Object, byte[]> {
    }

    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(JsonMapper.class)
    static class Jackson {
        @Bean
        @ConditionalOnBean(JsonMapper.class)
        Mapper onceMapper(JsonMapper mapper) {
            return mapper::writeValueAsBytes;
        }
    }

    static Function<Object, byte[]> mapperOf(ObjectProvider<Mapper> found) {
        return found.getIfAvailable(() -> value -> Json.write(value).getBytes(StandardCharsets.UTF_8));
    }

    /** For a listener: {@code @Transactional void on(Event event) { if (bound.accept("billing", event.id())) ... }}. */
    @Bean
    @ConditionalOnBean(DataSource.class)
    @ConditionalOnMissingBean
    Bound onceBound(DataSource source, ObjectProvider<Mapper> mapper) {
        return new Bound(new SpringTransaction(null, source, null), mapperOf(mapper));
    }
}
