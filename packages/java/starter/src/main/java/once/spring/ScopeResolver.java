package once.spring;

import jakarta.servlet.http.HttpServletRequest;

/** Says whose key it is. A client must not be able to choose it. */
@FunctionalInterface
public interface ScopeResolver {
    /** Null: the caller is not known, and gets 400. */
    String scopeOf(HttpServletRequest request);
}
