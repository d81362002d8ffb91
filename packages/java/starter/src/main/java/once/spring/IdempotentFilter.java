package once.spring;

import jakarta.servlet.AsyncContext;
import jakarta.servlet.DispatcherType;
import jakarta.servlet.FilterChain;
import jakarta.servlet.ReadListener;
import jakarta.servlet.RequestDispatcher;
import jakarta.servlet.ServletException;
import jakarta.servlet.ServletInputStream;
import jakarta.servlet.ServletOutputStream;
import jakarta.servlet.ServletRequest;
import jakarta.servlet.ServletResponse;
import jakarta.servlet.WriteListener;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletRequestWrapper;
import jakarta.servlet.http.HttpServletResponse;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.io.PrintWriter;
import java.net.URLDecoder;
import java.net.URLEncoder;
import java.nio.charset.Charset;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Enumeration;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import once.Header;
import once.Once;
import once.Operation;
import once.Request;
import once.Response;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.core.Ordered;
import org.springframework.core.annotation.AnnotatedElementUtils;
import org.springframework.http.MediaType;
import org.springframework.web.filter.OncePerRequestFilter;
import org.springframework.web.method.HandlerMethod;
import org.springframework.web.servlet.DispatcherServlet;
import org.springframework.web.servlet.HandlerExecutionChain;
import org.springframework.web.servlet.mvc.method.RequestMappingInfoHandlerMapping;
import org.springframework.web.util.ContentCachingResponseWrapper;
import org.springframework.web.util.ServletRequestPathUtils;

/**
 * Around the DispatcherServlet, as the last filter: requests whose handler is {@link Idempotent} run in a transaction, and the
 * response is recorded as it is sent, whoever made it: a converter, a view, an exception handler. Everything else passes through.
 */
final class IdempotentFilter extends OncePerRequestFilter implements Ordered {
    private static final Set<String> SAFE = Set.of("GET", "HEAD", "OPTIONS", "TRACE"); // take no effect
    static final String HANDLER = IdempotentFilter.class.getName() + ".handler";
    private final ObjectProvider<Once> once;
    private final ObjectProvider<RequestMappingInfoHandlerMapping> mappings;
    private final ObjectProvider<DispatcherServlet> dispatcher;
    private final String errorPath;

    IdempotentFilter(ObjectProvider<Once> once, ObjectProvider<RequestMappingInfoHandlerMapping> mappings,
        ObjectProvider<DispatcherServlet> dispatcher, String errorPath) {
        this.once = once;
        this.mappings = mappings;
        this.dispatcher = dispatcher;
        this.errorPath = errorPath;
    }

    @Override
    public int getOrder() {
        return LOWEST_PRECEDENCE;
    }

    @Override
    protected void doFilterInternal(HttpServletRequest request, HttpServletResponse response, FilterChain chain)
        throws ServletException, IOException {
        HandlerMethod handler = handlerOf(request);
        if (handler == null) {
            chain.doFilter(request, response);
            return;
        }
        byte[] body = request.getInputStream().readNBytes(Once.BODY_LIMIT + 1);
        boolean hasParts = request.getContentType() != null && request.getContentType().startsWith("multipart/");
        if (body.length > Once.BODY_LIMIT || hasParts) {
            response.sendError(hasParts ? 415 : 413, "an @Idempotent handler takes bodies up to 16 MiB, without parts");
            return;
        }
        HttpServletRequest asked = request;
        if (isForm(request) && body.length > 0) { // its bytes were read here, so the container has no parameters of them
            try {
                asked = new WithForm(request, body);
            } catch (IllegalArgumentException wrong) {
                response.sendError(400, "the form is not encoded as one: " + wrong.getMessage());
                return;
            }
        } else if (isForm(request) && request.getContentLengthLong() != 0) { // another filter has read it: what it made of it
            body = encode(request.getParameterMap());
        }
        run(asked, response, body, handler, chain);
    }

    private void run(
        HttpServletRequest request, HttpServletResponse response, byte[] body, HandlerMethod handler, FilterChain chain)
        throws ServletException, IOException {
        request.setAttribute(HANDLER, handler);
        Map<String, List<String>> before = headersOf(response);
        Attempt attempt = new Attempt(request, response, body, before);
        try {
            Response answer = once.getObject().run(requestOf(request, body), operation -> attempt.run(operation, chain));
            attempt.forget();
            response.setStatus(answer.status());
            answer.headers().forEach(header -> response.addHeader(header.name(), header.value()));
            response.getOutputStream().write(answer.body());
        } catch (ServletException | IOException | RuntimeException error) {
            attempt.forget();
            throw error;
        } catch (Exception error) {
            attempt.forget();
            throw new ServletException(error);
        }
    }

    private static boolean isForm(HttpServletRequest request) {
        String type = request.getContentType();
        return type != null && type.toLowerCase(Locale.ROOT).startsWith(MediaType.APPLICATION_FORM_URLENCODED_VALUE);
    }

    private static byte[] encode(Map<String, String[]> parameters) {
        List<String> pairs = new ArrayList<>();
        parameters.forEach((name, values) -> List.of(values).forEach(value -> pairs.add(
            URLEncoder.encode(name, StandardCharsets.UTF_8) + "=" + URLEncoder.encode(value, StandardCharsets.UTF_8))));
        return String.join("&", pairs).getBytes(StandardCharsets.US_ASCII);
    }

    private HandlerMethod handlerOf(HttpServletRequest request) {
        if (SAFE.contains(request.getMethod())) {
            return null;
        }
        try {
            ServletRequestPathUtils.parseAndCache(request);
            for (RequestMappingInfoHandlerMapping mapping : mappings.orderedStream().toList()) {
                HandlerExecutionChain found = mapping.getHandler(request);
                if (found != null && found.getHandler() instanceof HandlerMethod handler) {
                    return handler.hasMethodAnnotation(Idempotent.class)
                        || AnnotatedElementUtils.hasAnnotation(handler.getBeanType(), Idempotent.class) ? handler : null;
                }
            }
            return null;
        } catch (Exception error) {
            return null; // the DispatcherServlet will say the same
        } finally {
            ServletRequestPathUtils.clearParsedRequestPath(request);
        }
    }

    private static Request requestOf(HttpServletRequest request, byte[] body) {
        List<Header> headers = new ArrayList<>();
        Collections.list(request.getHeaderNames())
            .forEach(name -> Collections.list(request.getHeaders(name)).forEach(value -> headers.add(new Header(name, value))));
        String query = request.getQueryString() == null ? "" : "?" + request.getQueryString();
        return new Request(request.getMethod(), request.getRequestURI() + query, headers, body, request);
    }

    private static Map<String, List<String>> headersOf(HttpServletResponse response) {
        Map<String, List<String>> found = new HashMap<>();
        response.getHeaderNames().forEach(name -> found.put(name, List.copyOf(response.getHeaders(name))));
        return found;
    }

    /** Attempts at one request. What filters before this one have set on the response is theirs, and not recorded. */
    private final class Attempt {
        private final HttpServletRequest request;
        private final HttpServletResponse response;
        private final byte[] body;
        private final Map<String, List<String>> before;
        private boolean again;

        Attempt(HttpServletRequest request, HttpServletResponse response, byte[] body, Map<String, List<String>> before) {
            this.request = request;
            this.response = response;
            this.body = body;
            this.before = before;
        }

        Response run(Operation operation, FilterChain chain) throws ServletException, IOException {
            forget();
            Captured captured = new Captured(response);
            FilterChain next = again ? dispatcher.getObject()::service : chain;
            again = true;
            next.doFilter(new Repeated(request, body), captured);
            captured.check();
            if (captured.message != null) {
                captured.resetBuffer();
                showError(captured);
                captured.check();
            }
            List<Header> headers = new ArrayList<>();
            headersOf(captured).forEach((name, values) -> values.stream().skip(before.getOrDefault(name, List.of()).size())
                .forEach(value -> headers.add(new Header(name, value))));
            if (captured.getContentType() != null) {
                headers.removeIf(header -> header.name().equalsIgnoreCase("Content-Type"));
                headers.add(0, new Header("Content-Type", captured.getContentType()));
            }
            return new Response(captured.getStatus(), headers, captured.getContentAsByteArray());
        }

        /** As the container does after sendError, but where its response can still be recorded. */
        private void showError(Captured captured) throws ServletException, IOException {
            request.setAttribute(RequestDispatcher.ERROR_STATUS_CODE, captured.getStatus());
            request.setAttribute(RequestDispatcher.ERROR_MESSAGE, captured.message);
            request.setAttribute(RequestDispatcher.ERROR_REQUEST_URI, request.getRequestURI());
            dispatcher.getObject().service(new Repeated(request, body) {
                @Override
                public String getRequestURI() {
                    return getContextPath() + errorPath;
                }

                @Override
                public String getServletPath() {
                    return errorPath;
                }

                @Override
                public DispatcherType getDispatcherType() {
                    return DispatcherType.ERROR;
                }
            }, (ServletResponse) captured);
        }

        void forget() {
            request.removeAttribute(DispatcherServlet.EXCEPTION_ATTRIBUTE);
            for (String name : List.copyOf(response.getHeaderNames())) {
                List<String> earlier = before.getOrDefault(name, List.of());
                response.setHeader(name, null);
                earlier.forEach(value -> response.addHeader(name, value));
            }
            response.setContentType(null);
        }
    }

    /** Keeps the body, within its limit, and the error. */
    private static final class Captured extends ContentCachingResponseWrapper {
        String message;
        private boolean isTooLarge;
        private PrintWriter writer;

        Captured(HttpServletResponse response) {
            super(response);
        }

        /** A writer hides the errors of its stream, and an exception handler may have answered one. */
        void check() {
            if (writer != null) {
                writer.flush();
            }
            if (isTooLarge) {
                throw new IllegalStateException(
                    "the response of an @Idempotent handler is larger than 16 MiB, and is not recorded");
            }
        }

        @Override
        public ServletOutputStream getOutputStream() throws IOException {
            ServletOutputStream out = super.getOutputStream();
            return new ServletOutputStream() {
                @Override
                public void write(int value) throws IOException {
                    write(new byte[] {(byte) value}, 0, 1);
                }

                @Override
                public void write(byte[] from, int offset, int length) throws IOException {
                    isTooLarge |= (long) getContentSize() + length > Once.BODY_LIMIT;
                    if (isTooLarge) {
                        throw new IOException("the response is larger than 16 MiB");
                    }
                    out.write(from, offset, length);
                }

                @Override
                public boolean isReady() {
                    return true;
                }

                @Override
                public void setWriteListener(WriteListener listener) {
                    throw new UnsupportedOperationException();
                }
            };
        }

        @Override
        public PrintWriter getWriter() throws IOException {
            if (writer == null) {
                writer = new PrintWriter(new OutputStreamWriter(getOutputStream(), getCharacterEncoding()), true);
            }
            return writer;
        }

        @Override
        public void reset() {
            super.reset();
            writer = null; // with what it has not written yet
        }

        @Override
        public void resetBuffer() {
            super.resetBuffer();
            writer = null;
        }

        @Override
        public void sendError(int status) {
            sendError(status, "");
        }

        @Override
        public void sendError(int status, String text) {
            setStatus(status);
            message = text == null ? "" : text;
        }
    }

    /** Parameters of the query and of the form. */
    private static final class WithForm extends HttpServletRequestWrapper {
        private final Map<String, String[]> parameters;

        WithForm(HttpServletRequest request, byte[] body) {
            super(request);
            Charset charset = request.getCharacterEncoding() == null ? StandardCharsets.UTF_8
                : Charset.forName(request.getCharacterEncoding());
            Map<String, List<String>> found = new LinkedHashMap<>();
            request.getParameterMap().forEach((name, values) -> found.put(name, new ArrayList<>(List.of(values))));
            for (String pair : new String(body, charset).split("&")) {
                String[] parts = pair.split("=", 2);
                if (!pair.isEmpty()) {
                    found.computeIfAbsent(URLDecoder.decode(parts[0], charset), none -> new ArrayList<>())
                        .add(parts.length < 2 ? "" : URLDecoder.decode(parts[1], charset));
                }
            }
            Map<String, String[]> all = new LinkedHashMap<>();
            found.forEach((name, values) -> all.put(name, values.toArray(String[]::new)));
            parameters = Collections.unmodifiableMap(all);
        }

        @Override
        public String getParameter(String name) {
            String[] values = parameters.get(name);
            return values == null ? null : values[0];
        }

        @Override
        public Map<String, String[]> getParameterMap() {
            return parameters;
        }

        @Override
        public Enumeration<String> getParameterNames() {
            return Collections.enumeration(parameters.keySet());
        }

        @Override
        public String[] getParameterValues(String name) {
            return parameters.get(name);
        }
    }

    /** The request with its body, as often as it is needed. */
    private static class Repeated extends HttpServletRequestWrapper {
        private final byte[] body;

        Repeated(HttpServletRequest request, byte[] body) {
            super(request);
            this.body = body;
        }

        @Override
        public ServletInputStream getInputStream() {
            ByteArrayInputStream bytes = new ByteArrayInputStream(body);
            return new ServletInputStream() {
                @Override
                public int read() {
                    return bytes.read();
                }

                @Override
                public int read(byte[] to, int offset, int length) {
                    return bytes.read(to, offset, length);
                }

                @Override
                public boolean isFinished() {
                    return bytes.available() == 0;
                }

                @Override
                public boolean isReady() {
                    return true;
                }

                @Override
                public void setReadListener(ReadListener listener) {
                    throw new UnsupportedOperationException();
                }
            };
        }

        @Override
        public BufferedReader getReader() {
            Charset charset = getCharacterEncoding() == null ? StandardCharsets.UTF_8 : Charset.forName(getCharacterEncoding());
            return new BufferedReader(new InputStreamReader(getInputStream(), charset));
        }

        @Override
        public AsyncContext startAsync(ServletRequest request, ServletResponse response) {
            throw new IllegalStateException("an @Idempotent handler answers in its own thread, which has the transaction");
        }
    }
}
