/*
 * Whose is the schema? Its functions run with the rights of the role that installs them: on tables, or by way of functions, that
 * are another role's, that role would have those rights.
 */
#include <stdlib.h>

#include "cli/pg.h"
#include "cli/text.h"

#define OBJECTS(catalog, owner, namespace)                                                         \
    "UNION ALL SELECT (pg_identify_object('" catalog "'::regclass, oid, 0)).identity, " owner " "  \
    "FROM " catalog                                                                                \
    " WHERE " namespace " = (SELECT oid FROM pg_namespace WHERE nspname = 'once') "

/* What is in the schema and not ours, the schema itself first. */
static const char foreign_object[] =
    "SELECT format('%s belongs to the role %I', what, rolname) FROM ("
    "SELECT 0 AS place, 'the schema once' AS what, nspowner AS owner "
    "FROM pg_namespace WHERE nspname = 'once' UNION ALL SELECT 1, o.* FROM ("
    "SELECT ''::text, 0::oid WHERE false " /* clang-format off */
    OBJECTS("pg_class", "relowner", "relnamespace")
    OBJECTS("pg_proc", "proowner", "pronamespace")
    OBJECTS("pg_type", "typowner", "typnamespace")
    OBJECTS("pg_operator", "oprowner", "oprnamespace")
    OBJECTS("pg_opclass", "opcowner", "opcnamespace")
    OBJECTS("pg_opfamily", "opfowner", "opfnamespace")
    OBJECTS("pg_collation", "collowner", "collnamespace")
    OBJECTS("pg_conversion", "conowner", "connamespace")
    OBJECTS("pg_statistic_ext", "stxowner", "stxnamespace") /* clang-format on */
    ") AS o) AS found JOIN pg_roles r ON r.oid = owner "
    "WHERE rolname <> current_user ORDER BY place, what LIMIT 1";

/*
 * Functions and operators of other roles that a table, a view, a trigger or a function of the schema calls; what came with an
 * extension is not meant. Found first and named then: not everything that is depended on has a name.
 */
static const char foreign_code[] =
    "WITH used AS MATERIALIZED ("
    "SELECT d.classid, d.objid, d.objsubid, d.refclassid, d.refobjid, rolname FROM pg_depend d "
    "LEFT JOIN pg_proc p ON d.refclassid = 'pg_proc'::regclass AND p.oid = refobjid "
    "LEFT JOIN pg_operator o ON d.refclassid = 'pg_operator'::regclass AND o.oid = refobjid "
    "JOIN pg_roles r ON r.oid = coalesce(proowner, oprowner) "
    "JOIN pg_namespace n ON n.oid = coalesce(pronamespace, oprnamespace) "
    "WHERE d.classid <> 0 AND nspname <> 'pg_catalog' AND rolname <> current_user "
    "AND NOT EXISTS (SELECT FROM pg_depend e WHERE e.classid = d.refclassid "
    "AND e.objid = d.refobjid AND e.deptype = 'e')) "
    "SELECT format('%s calls %s, which belongs to the role %I', caller.identity, called.identity, "
    "rolname) FROM used d "
    "CROSS JOIN pg_identify_object_as_address(d.classid, d.objid, d.objsubid) AS a "
    "CROSS JOIN pg_identify_object(d.classid, d.objid, d.objsubid) AS caller "
    "CROSS JOIN pg_identify_object(d.refclassid, d.refobjid, 0) AS called "
    "WHERE caller.schema = 'once' OR a.object_names[1] = 'once' LIMIT 1";

static int refuse(PGconn *conn, const char *query, const char *advice)
{
    PGresult *result = PQexec(conn, query);
    int code = ONCE__CLI_OK;

    if (PQresultStatus(result) != PGRES_TUPLES_OK) {
        once__pg_complain(conn, "cannot read who owns the schema");
        code = ONCE__CLI_STORE;
    } else if (PQntuples(result) > 0) {
        once__cli_say("%s; %s", PQgetvalue(result, 0, 0), advice);
        code = ONCE__CLI_REFUSED;
    }
    PQclear(result);
    return code;
}

int once__pg_check_objects(PGconn *conn)
{
    return refuse(conn, foreign_object,
                  "what is installed there would run with your rights. Connect as that role if it "
                  "is the one that installs once here; if not, have it removed: DROP SCHEMA once "
                  "CASCADE");
}

int once__pg_check_code(PGconn *conn)
{
    return refuse(
        conn, foreign_code,
        "it would run with the rights of everyone who uses the schema. Nothing was changed; "
        "remove it first (docs/postgres.md, \"Installing\")");
}
