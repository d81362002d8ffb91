package once.spring;

import java.sql.Connection;
import java.sql.SQLException;
import javax.sql.DataSource;
import once.JdbcTransaction;
import org.springframework.jdbc.datasource.DataSourceUtils;
import org.springframework.transaction.PlatformTransactionManager;
import org.springframework.transaction.TransactionDefinition;
import org.springframework.transaction.TransactionException;
import org.springframework.transaction.TransactionStatus;
import org.springframework.transaction.support.TransactionSynchronizationManager;

/** A transaction of Spring's, of JDBC or of JPA, which {@code @Transactional} methods of this thread join. */
final class SpringTransaction extends JdbcTransaction {
    private final PlatformTransactionManager manager;
    private final DataSource source;
    private final TransactionDefinition definition;
    private TransactionStatus status;

    SpringTransaction(PlatformTransactionManager manager, DataSource source, TransactionDefinition definition) {
        super(source::getConnection);
        this.manager = manager;
        this.source = source;
        this.definition = definition;
    }

    @Override
    public void begin() throws SQLException {
        status = manager.getTransaction(definition);
        if (connection().getAutoCommit()) {
            throw new IllegalStateException(manager.getClass().getName() + " does not manage the connections of this DataSource: "
                + "once needs both of one database as primary beans");
        }
    }

    @Override
    public Connection connection() {
        if (!TransactionSynchronizationManager.isActualTransactionActive()) {
            throw new IllegalStateException("there is no transaction: the method that calls this has to be @Transactional");
        }
        return DataSourceUtils.getConnection(source);
    }

    @Override
    public void commit() {
        TransactionStatus mine = status;
        status = null;
        manager.commit(mine);
    }

    @Override
    public void rollback() {
        TransactionStatus mine = status;
        status = null;
        try {
            if (mine != null && !mine.isCompleted()) {
                manager.rollback(mine);
            }
        } catch (TransactionException error) {
            // It is lost, and so is what it did.
        }
    }

    @Override
    public boolean isDoomed() {
        return status != null && status.isRollbackOnly();
    }

    @Override
    public void flush() {
        if (status != null && !status.isRollbackOnly()) {
            status.flush();
        }
    }

    @Override
    public void close() {
        rollback();
    }
}
