// One operation: claimed, run and recorded in one transaction, and repeated when the transaction could not be.
'use strict';
const { AsyncLocalStorage } = require('node:async_hooks');
const { randomUUID } = require('node:crypto');
const { setTimeout: sleep } = require('node:timers/promises');
const { Answered, Response, problem, refusal, replay, toBytes, toJson } = require('./message');
const { FAILED_TRANSACTION, OVERTAKEN, REPEATABLE, bound, sqlstate, transportOf } = require('./transport');

const DEFAULTS = { wait: false, lease: 30, ttl: 86400, attempts: 6, recover: 'hold', transaction: {},
  log: (text) => console.warn(`once: ${text}`) };
const running = new AsyncLocalStorage();
const telemetry = (() => {
  try {
    return require('@opentelemetry/api');
  } catch {
    return undefined;
  }
})();
const unavailable = (cause) => problem('store-unavailable', { retryAfter: 1, cause });

/** For a handler to throw when nothing was done: the key is free. */
class NothingDone extends Error {
  constructor(message = 'nothing was done; send the same request again', status = 503) {
    super(message);
    this.status = this.statusCode = status;
  }
}

/** One request, over all attempts at it. */
class Ticket {
  constructor(request, options) {
    this.request = request;
    this.options = { ...DEFAULTS, ...options };
    this.claimId = randomUUID();
    this.claim = undefined;
    this.attempt = 0;
    this.hasCheckpoint = false; // which has committed the claim
  }

  /** What can be wrong with the request is found before anything is begun. */
  async check() {
    this.gatesClaim = this.request.claim;
    this.claim ??= this.gatesClaim;
    if (!this.gatesClaim || this.request.all('idempotency-key').length) this.key = this.request.key;
    if (!this.gatesClaim) this.scopeText = await this.scope();
  }

  /** To the gate, about what it cannot see by the status; clients do not get it. */
  told(response, outcome) {
    return this.gatesClaim ? response.add('Once-Outcome', outcome) : response;
  }

  recorded(response) {
    return this.gatesClaim ? response : response.expires(this.options.ttl);
  }

  async scope() {
    const { scope } = this.options;
    const found = typeof scope === 'function' ? await scope(this.request.native ?? this.request) : scope;
    if (found === undefined || found === null || found === '') throw problem('scope-missing');
    if (typeof found !== 'string' && typeof found !== 'bigint' && !Number.isFinite(found)) { // "[object Object]" would be everybody's
      throw new TypeError(`the scope has to be a string, a finite number or a bigint, and it is of the type ${typeof found}`);
    }
    return String(found);
  }
}

/** What any transaction may call, with a request or without one. */
class Bound {
  constructor(transport) {
    this.transport = transport;
    this.claim = undefined;
  }

  get connection() {
    return this.transport.connection;
  }

  /** Writes an event that `once relay` publishes if and only if the transaction commits. Returns its id. */
  async emit(topic, key, type, payload, headers = {}) {
    const values = [topic, key ?? null, type, toBytes(payload), toJson(headers), this.claim ?? null];
    return (await this.transport.call('emit', ...values)).value;
  }

  /** Whether the message is new to the subscriber: if so, handle it in this transaction. */
  async accept(subscriber, messageId) {
    return (await this.transport.call('accept', subscriber, messageId)).value;
  }

  /** One transaction at a time for an account, an order, and so on. */
  async lock(naturalKey) {
    await this.transport.call('lock', naturalKey);
  }
}

class Operation extends Bound {
  constructor(transport, ticket) {
    super(transport);
    this.ticket = ticket;
    this.request = ticket.request;
    this.error = undefined; // what the handler threw; its statements are rolled back
  }

  /** A key to send to a third party: the same in every attempt, another one for every operation and step. */
  async derive(step) {
    return (await this.transport.call('derive', this.claim, step)).value;
  }

  /** Commits what was done so far as the step `name`: a later attempt begins behind it. The next transaction begins without a
   * lock on the record: while a third party is asked, this attempt can be overtaken, and is refused then. */
  async checkpoint(name, state = null) {
    if (!this.transport.owns) throw new Error('a checkpoint commits: it needs a transaction of its own, not one that it has joined');
    await this.transport.call('checkpoint', this.claim, name, toJson(state));
    await this.transport.call('renew', this.claim);
    await this.transport.commit();
    this.ticket.hasCheckpoint = true;
    await this.transport.begin();
  }

  /** The last checkpoint and its state; undefined: begin at the beginning. */
  async resume() {
    const row = await this.transport.call('resume', this.claim);
    return row && { name: row.name, state: JSON.parse(row.state ?? 'null') };
  }

  // ------------------------------------------------------------------------------------ for what is around the handler

  /** The transaction begins, and this request holds the key. Throws Answered if there is nothing to run. */
  async start() {
    const { ticket, transport } = this;
    await ticket.check();
    await transport.begin().catch((error) => {
      if (!transport.owns || transport.isLost(error) || error instanceof TypeError) throw error;
      ticket.options.log(`no database: ${error.message}`);
      throw unavailable(error);
    });
    if (ticket.attempt > 1 && ticket.claim) { // the reply to its COMMIT may have been lost
      await this.answerRecorded(ticket.claim);
    }
    await this.take();
  }

  async answerRecorded(claim) {
    const row = await this.transport.call('recorded', claim);
    if (row) throw this.replay(row, false);
  }

  replay({ status, headers, body, stored, seconds }, marked) {
    if (['plain', 'omitted', 'erased'].includes(stored)) return replay(status, JSON.parse(headers ?? '[]'), body, stored, marked, seconds);
    return problem('store-unavailable', { detail: `the response is stored in a form that only a gateway reads: ${stored}` });
  }

  async take() {
    const { ticket } = this;
    this.claim = ticket.claim = await (ticket.gatesClaim ? this.renew(ticket.gatesClaim) : this.ask());
  }

  async renew(claim) {
    try {
      await this.transport.call('renew', claim);
    } catch (error) {
      const state = sqlstate(error);
      if (state === 'ON002') { // delivered twice
        await this.transport.rollback();
        await this.transport.begin();
        await this.answerRecorded(claim);
      } // overtaken: the gate answers with what the record says
      throw state === OVERTAKEN ? unavailable(error) : error;
    }
    return claim;
  }

  async ask() {
    const { request, options, key, scopeText, claimId } = this.ticket;
    const row = await this.transport.call('claim', scopeText, key, request.method, request.target, request.body,
      options.lease, options.ttl, options.wait, claimId);
    if (row.outcome === 'run' || row.outcome === 'mine') return row.claim;
    if (row.outcome === 'replay') throw this.replay(row, true);
    throw refusal(row.outcome, row.retry_after);
  }

  /** The handler threw: what it did is undone. The answer that the framework makes of it may still be recorded. */
  async fail(error) {
    this.error = error;
    await this.transport.rollback();
  }

  /** Records the response with the effects of the handler. Returns what the client gets; what did not work is thrown. */
  async finish(response) {
    if (!response.isFinal || this.error instanceof NothingDone) {
      await this.abandon();
      return response.isEarly ? response : this.ticket.told(response, 'retry');
    }
    if (!this.error) {
      try {
        return await this.complete(response);
      } catch (error) {
        if (sqlstate(error) !== FAILED_TRANSACTION) throw error;
        if (response.status < 400) throw new Error(`the answer is ${response.status}, but a statement had failed`, { cause: error });
        await this.transport.rollback(); // it had no effects any more
      }
    }
    await this.transport.begin();
    await this.take();
    return this.complete(response);
  }

  async complete(response) {
    await this.transport.call('complete', this.claim, response.status, toJson(response.recordedHeaders), response.body);
    await this.transport.commit();
    return this.ticket.recorded(response);
  }

  /** Rolled back. Checkpoints have committed the claim: unless it `goesOn`, the next request need not wait for its lease. */
  async abandon(goesOn = false) {
    await this.transport.rollback();
    if (this.ticket.hasCheckpoint && !goesOn && !this.ticket.gatesClaim && !this.transport.lost) {
      this.ticket.hasCheckpoint = false;
      await this.transport.begin();
      const isMine = await this.transport.call('release', this.claim).then(() => true, (error) => {
        if (sqlstate(error) !== OVERTAKEN) throw error;
      });
      await (isMine ? this.transport.commit() : this.transport.rollback());
    }
  }

  /** A conflict with another transaction, or a connection that was lost: the same again may work. */
  isRepeatable(error) {
    return Boolean(this.transport.owns) && (REPEATABLE.test(sqlstate(error)) || this.transport.isLost(error));
  }

  /** Of the transaction or of the claim, so that the framework does not answer it. */
  isOwn(error) {
    return this.isRepeatable(error) || sqlstate(error) === OVERTAKEN;
  }

  close() {
    return this.transport.close();
  }
}

/** Attributes of the span that is active, where the application has OpenTelemetry. */
function observe(ticket, outcome) {
  const key = ticket.key === undefined ? {} : { 'once.key': ticket.key };
  telemetry?.trace.getActiveSpan()?.setAttributes({ ...key, 'once.outcome': outcome, 'once.attempts': ticket.attempt });
}

function answerOf(error, ticket) {
  if (!(error instanceof Answered)) throw error;
  observe(ticket, error.outcome);
  return error.response;
}

/** Runs `produce` until its response is recorded. Returns the response that the client gets. */
async function run(database, request, options, produce) {
  const ticket = new Ticket(request, options);
  let settled; // made of an error, without effects: all that is left is to record it
  for (;;) {
    ticket.attempt++;
    const op = database.operation?.(ticket) ?? new Operation(transportOf(database, ticket.options.transaction), ticket);
    try {
      await op.start();
      const response = settled ?? Response.of(await running.run(op, produce, op));
      settled = op.error && response;
      const sent = await op.finish(response);
      observe(ticket, 'run');
      return sent;
    } catch (error) {
      op.error ??= error;
      const repeatable = op.isRepeatable(error), goesOn = repeatable && ticket.attempt < ticket.options.attempts;
      if (repeatable) ticket.options.log(`attempt ${ticket.attempt} of ${ticket.options.attempts}: ${sqlstate(error)} ${error.message}`);
      await op.abandon(goesOn).catch((other) => ticket.options.log(`cannot release: ${other.message}`));
      if (!goesOn) return answerOf(op.isOwn(error) ? unavailable(error) : error, ticket);
    } finally {
      await op.close();
    }
    await sleep(Math.random() * 20 * 2 ** Math.min(ticket.attempt, 6));
  }
}

/** The operation of the handler that is running. */
function current() {
  const found = running.getStore();
  if (!found) throw new Error('no operation: the handler is not wrapped by once.idempotent');
  return found;
}

/** For a transaction without a request, such as that of a consumer: `once.bind(client).accept('billing', eventId)`. */
const bind = (connection) => new Bound(bound(connection));

module.exports = { Bound, NothingDone, bind, current, run, running, unavailable };
