// How an operation reaches its records: the functions of the schema `once`, on the connection of the caller's own transaction.
'use strict';

const ANSWER = 'status, headers::text, body, stored, extract(epoch FROM expires - clock_timestamp())::float8 AS seconds';
const CALLS = { // void becomes text: Prisma reads no void
  claim: `SELECT outcome, claim, extract(epoch FROM retry_after)::float8 AS retry_after, ${ANSWER} FROM once.claim($1::text, ` +
    "$2::text, $3::text, $4::text, $5::bytea, 'transactional', make_interval(secs => $6::float8), " +
    'make_interval(secs => $7::float8), $8::boolean, $9::text::uuid)',
  renew: 'SELECT once.renew($1::text)::text',
  complete: 'SELECT once.complete($1::text, $2::integer, $3::text::jsonb, $4::bytea)::text',
  recorded: `SELECT ${ANSWER} FROM once.recorded($1::text)`,
  release: 'SELECT once.release($1::text)::text',
  emit: 'SELECT once.emit($1::text, $2::text, $3::text, $4::bytea, $5::text::jsonb, $6::text)::text AS value',
  accept: 'SELECT once.accept($1::text, $2::text) AS value',
  derive: 'SELECT once.derive($1::text, $2::text) AS value',
  checkpoint: 'SELECT once.checkpoint($1::text, $2::text, $3::text::jsonb)::text',
  resume: 'SELECT name, state::text FROM once.resume($1::text)',
  lock: 'SELECT once.lock($1::text)::text',
};
const FAILED_TRANSACTION = '25P02', OVERTAKEN = 'ON001';
// Conflicts, and last words of a server that ends the connection.
const REPEATABLE = /^(40001|40P01|08...|57P0.|25P03)$/;
// The database cannot be reached or is gone: in Prisma's words, and in those of pg, which it passes on.
const PRISMA_LOST = /^P(1001|1002|1008|1017)$/, PRISMA_EXPIRED = 'P2028';
const PG_LOST = /^(Connection terminated|Client (has encountered a connection error|was closed))/;

/** Of a driver's error, or of the one that Prisma has wrapped. */
function sqlstate(error) {
  for (let at = error, depth = 0; at && depth < 5; at = at.meta?.driverAdapterError ?? at.cause, depth++) {
    const code = [at.code, at.originalCode, at.meta?.code].find((found) => /^[0-9A-Z]{5}$/.test(found) && !/^P[12]\d/.test(found));
    if (code) return code;
    if (at.code === 'P2034') return '40001';
  }
  return '';
}

/** Asks pg, Knex or Prisma; gives rows. */
async function ask(connection, text, values = []) {
  if (connection.$queryRawUnsafe) return connection.$queryRawUnsafe(text, ...values);
  if (connection.raw) return (await connection.raw(text.replace(/\$\d+/g, '?'), values)).rows;
  return (await connection.query(text, values)).rows;
}

/** A transaction that the caller has begun: a savepoint in it. The caller's COMMIT decides. */
class Joined {
  constructor(connection) {
    this.connection = connection;
    this.open = this.lost = this.owns = false;
  }

  async call(name, ...values) {
    return (await this.mine(ask(this.connection, CALLS[name], values.map((value) => value ?? null))))[0];
  }

  /** What fails here without a word of the server's means that it did not answer. */
  mine(promise) {
    return promise.catch((error) => {
      this.lost ||= this.owns && !sqlstate(error) && error.code !== PRISMA_EXPIRED;
      throw error;
    });
  }

  async begin() {
    await ask(this.connection, 'SAVEPOINT once');
    this.open = true;
  }

  async commit() {
    this.open = false;
    await this.mine(this.end());
  }

  async rollback() {
    if (!this.open) return;
    this.open = false;
    await this.undo().catch(() => { this.lost = true; }); // a connection that cannot roll back is of no use to anybody
  }

  end() {
    return ask(this.connection, 'RELEASE SAVEPOINT once');
  }

  undo() {
    return ask(this.connection, 'ROLLBACK TO SAVEPOINT once');
  }

  /** The connection is gone, and the transaction with it. */
  isLost() {
    return this.lost;
  }

  async close() {}
}

/** PostgreSQL answers COMMIT with ROLLBACK, and without an error, when a statement had failed: one that nobody waited for. */
function committed(result) {
  if (result && result.command !== 'COMMIT') {
    throw Object.assign(new Error('the transaction was rolled back, because a statement had failed'), { code: FAILED_TRANSACTION });
  }
}

/** A transaction of its own: here on a client of a Pool of pg. */
class Pg extends Joined {
  constructor(database, options) {
    super(undefined);
    this.database = database;
    this.options = options;
    this.owns = true;
    this.onError = () => { this.lost = true; }; // the query that meets it reports it
  }

  async begin() {
    this.connection ??= this.watch(await this.database.connect());
    this.open = true;
    const level = this.options.isolationLevel;
    await this.connection.query(level ? `BEGIN ISOLATION LEVEL ${level}` : 'BEGIN');
  }

  watch(client) {
    this.client?.removeListener('error', this.onError);
    this.client = client;
    return client.on('error', this.onError);
  }

  async end() {
    committed(await this.connection.query('COMMIT'));
  }

  undo() {
    return this.connection.query('ROLLBACK');
  }

  async close() {
    this.client?.removeListener('error', this.onError);
    this.client?.release?.(this.lost);
  }
}

class Knex extends Pg {
  async begin() {
    this.connection = await this.database.transaction(undefined, this.options);
    this.open = true;
    this.connection.executionPromise.catch(() => {}); // awaited where it matters
    this.watch(await this.connection.client.acquireConnection()); // the transaction's own
  }

  async end() {
    const query = await this.connection.commit();
    await this.connection.executionPromise; // commit() itself does not fail when COMMIT does
    committed(query?.response);
  }

  undo() {
    return this.connection.rollback();
  }
}

/** Prisma's transactions are callbacks: this one waits in it until the operation ends. */
class Prisma extends Pg {
  begin() {
    return new Promise((resolve, reject) => {
      const within = (tx) => new Promise((commit, rollback) => {
        this.connection = tx;
        this.open = true;
        this.settle = { commit, rollback };
        resolve(undefined);
      });
      this.done = this.database.$transaction(within, { maxWait: 10000, timeout: 60000, ...this.options });
      this.done.catch(reject); // if it did not begin; afterwards it is awaited
    });
  }

  async end() {
    this.settle.commit();
    await this.done;
  }

  async undo() {
    const reason = new Error('rolled back');
    this.settle.rollback(reason);
    await this.done.catch((error) => { if (error !== reason) throw error; });
  }

  isLost(error) {
    return this.lost || PRISMA_LOST.test(error?.code) || PG_LOST.test(error?.message);
  }
}

/** By what it can do, without loading a driver that the application does not use. */
function transportOf(database, options = {}) {
  if (typeof database?.transport === 'function') return database.transport(); // the test double
  if (typeof database?.$queryRawUnsafe === 'function') {
    return typeof database.$connect === 'function' ? new Prisma(database, options) : new Joined(database);
  }
  if (typeof database?.raw === 'function' && typeof database.transaction === 'function') {
    return database.isTransaction ? new Joined(database) : new Knex(database, options);
  }
  if (typeof database?.query === 'function' && typeof database.connect === 'function') {
    return 'totalCount' in database ? new Pg(database, options) : new Joined(database);
  }
  throw new TypeError('this is no database that once knows: a Pool or a client of pg, Knex, Prisma, once.serve(...)');
}

/** On a connection as it is: in its transaction, or in one for each call. */
function bound(connection) {
  const found = transportOf(connection);
  return found.database ? new Joined(connection) : found;
}

module.exports = { FAILED_TRANSACTION, OVERTAKEN, REPEATABLE, bound, sqlstate, transportOf };
