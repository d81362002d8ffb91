package once.spring;

import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.nio.file.Files;
import java.security.Principal;
import java.util.List;
import javax.sql.DataSource;
import once.Once;
import once.Operation;
import once.Request;
import once.Transaction;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnWebApplication;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.core.MethodParameter;
import org.springframework.core.Ordered;
import org.springframework.transaction.PlatformTransactionManager;
import org.springframework.transaction.TransactionDefinition;
import org.springframework.transaction.annotation.AnnotationTransactionAttributeSource;
import org.springframework.transaction.support.DefaultTransactionDefinition;
import org.springframework.web.bind.support.WebDataBinderFactory;
import org.springframework.web.context.request.NativeWebRequest;
import org.springframework.web.method.HandlerMethod;
import org.springframework.web.method.support.HandlerMethodArgumentResolver;
import org.springframework.web.method.support.ModelAndViewContainer;
import org.springframework.web.servlet.DispatcherServlet;
import org.springframework.web.servlet.HandlerExceptionResolver;
import org.springframework.web.servlet.HandlerInterceptor;
import org.springframework.web.servlet.ModelAndView;
import org.springframework.web.servlet.config.annotation.InterceptorRegistry;
import org.springframework.web.servlet.config.annotation.WebMvcConfigurer;
import org.springframework.web.servlet.mvc.method.RequestMappingInfoHandlerMapping;

@Configuration(proxyBeanMethods = false)
@ConditionalOnWebApplication(type = ConditionalOnWebApplication.Type.SERVLET)
class OnceWebConfiguration {
    private final AnnotationTransactionAttributeSource annotations = new AnnotationTransactionAttributeSource();

    @Bean
    @ConditionalOnMissingBean
    ScopeResolver onceScope(OnceProperties settings) {
        return request -> {
            Principal caller = request.getUserPrincipal();
            return settings.scope() != null ? settings.scope() : caller == null ? null : caller.getName();
        };
    }

    @Bean
    @ConditionalOnMissingBean
    Once once(OnceProperties settings, ScopeResolver scope, ObjectProvider<OnceAutoConfiguration.Mapper> mapper,
        ObjectProvider<PlatformTransactionManager> manager, ObjectProvider<DataSource> source) throws IOException {
        String token = settings.tokenFile() == null ? settings.token() : Files.readString(settings.tokenFile()).strip();
        Once made = settings.server() != null ? Once.store(settings.server(), token)
            : Once.transactional(request -> transaction(request, manager.getObject(), source.getObject()));
        return made.scope(request -> scope.scopeOf((HttpServletRequest) request.origin())).waits(settings.waits())
            .lease(settings.lease()).ttl(settings.ttl()).attempts(settings.attempts()).json(OnceAutoConfiguration.mapperOf(mapper))
            .retries(settings.recover() == OnceProperties.Recover.RETRY);
    }

    /** With the isolation and the timeout that the handler's own {@code @Transactional} asks for: it joins this transaction. */
    private Transaction transaction(Request request, PlatformTransactionManager manager, DataSource source) {
        DefaultTransactionDefinition definition = new DefaultTransactionDefinition();
        if (((HttpServletRequest) request.origin()).getAttribute(IdempotentFilter.HANDLER) instanceof HandlerMethod handler) {
            TransactionDefinition asked = annotations.getTransactionAttribute(handler.getMethod(), handler.getBeanType());
            if (asked != null) {
                definition.setIsolationLevel(asked.getIsolationLevel());
                definition.setTimeout(asked.getTimeout());
            }
        }
        return new SpringTransaction(manager, source, definition);
    }

    @Bean
    IdempotentFilter onceFilter(ObjectProvider<Once> once, ObjectProvider<RequestMappingInfoHandlerMapping> mappings,
        ObjectProvider<DispatcherServlet> dispatcher, @Value("${server.error.path:${error.path:/error}}") String errorPath) {
        return new IdempotentFilter(once, mappings, dispatcher, errorPath);
    }

    /** Sees every exception of a handler before its answer is made, and changes nothing about that. */
    @Bean
    HandlerExceptionResolver onceRollback() {
        return new Rollback();
    }

    private static final class Rollback implements HandlerExceptionResolver, Ordered {
        @Override
        public int getOrder() {
            return HIGHEST_PRECEDENCE;
        }

        @Override
        public ModelAndView resolveException(HttpServletRequest request, HttpServletResponse response, Object handler,
            Exception error) {
            Once.find().ifPresent(operation -> operation.fail(error));
            return null;
        }
    }

    /** Handlers may have an {@link Operation} as a parameter. */
    @Bean
    WebMvcConfigurer onceWebMvc() {
        return new WebMvcConfigurer() {
            @Override
            public void addArgumentResolvers(List<HandlerMethodArgumentResolver> resolvers) {
                resolvers.add(new OperationParameter());
            }

            @Override
            public void addInterceptors(InterceptorRegistry registry) {
                registry.addInterceptor(new HandlerInterceptor() {
                    @Override
                    public void postHandle(HttpServletRequest request, HttpServletResponse response, Object handler,
                        ModelAndView view) {
                        Once.find().ifPresent(Operation::flush); // errors of JPA are the handler's, not those of COMMIT
                    }
                });
            }
        };
    }

    private static final class OperationParameter implements HandlerMethodArgumentResolver {
        @Override
        public boolean supportsParameter(MethodParameter parameter) {
            return parameter.getParameterType() == Operation.class;
        }

        @Override
        public Object resolveArgument(MethodParameter parameter, ModelAndViewContainer container, NativeWebRequest request,
            WebDataBinderFactory binders) {
            return Once.current();
        }
    }
}
