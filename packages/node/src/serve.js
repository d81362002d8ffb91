// Records in any store, through `once serve`: there is no transaction, so the outcome of what failed in between is not known.
'use strict';
const http = require('node:http');
const { setTimeout: sleep } = require('node:timers/promises');
const { refusal, replay } = require('./message');
const { NothingDone, unavailable } = require('./operation');

const packed = ({ status, recordedHeaders, body }) => ({ status, headers: recordedHeaders, body_base64: body.toString('base64') });

function unpacked({ status, headers, body, body_base64, body_omitted }, marked, seconds) {
  const bytes = body_base64 === undefined ? body : Buffer.from(body_base64, 'base64');
  return replay(status, headers, bytes, body_omitted === true ? 'omitted' : body_omitted ?? 'plain', marked, seconds);
}

/** One operation, with the surface of those in a transaction, as far as it needs none. */
class Served {
  constructor(server, ticket) {
    this.server = server;
    this.ticket = ticket;
    this.request = ticket.request;
    this.claim = this.connection = this.error = undefined;
    this.holds = false; // a claim of its own, which has not ended
    for (const name of ['emit', 'accept', 'lock', 'checkpoint', 'resume']) {
      this[name] = () => Promise.reject(new Error(`${name} needs a transaction: use it with pg, Knex or Prisma, not with once.serve`));
    }
  }

  async derive(step) {
    return (await this.server.ask('derive', { claim: this.claim, step })).key;
  }

  async start() {
    const { ticket, server } = this, { options, request } = ticket;
    await ticket.check();
    if (ticket.gatesClaim) { // which the gate renews, and whose response it records
      this.claim = ticket.gatesClaim;
      const found = await server.askFirst('recorded', { claim: this.claim });
      if (found.response) throw unpacked(found.response, false); // delivered twice
      if (found.state !== 'pending') throw unavailable(); // overtaken, not of this store, or made up by a client
      return;
    }
    const told = await server.askFirst('claim', { scope: ticket.scopeText, key: ticket.key, method: request.method, target: request.target,
      body_base64: request.body.toString('base64'), recover: options.recover, ttl_ms: Math.round(options.ttl * 1000),
      lease_ms: Math.round(options.lease * 1000), claim_id: ticket.claimId.replaceAll('-', ''), wait_ms: options.wait ? 60000 : 0 });
    if (told.outcome === 'replay') throw unpacked(told.response, true, told.expires_ms / 1000);
    if (told.outcome !== 'run') throw refusal(told.outcome, told.retry_after_ms / 1000);
    this.claim = told.claim;
    this.holds = true;
    const renew = () => server.post('/v1/renew', { claims: [told.claim] }).catch(() => {}); // the next turn comes soon
    this.timer = setInterval(renew, told.lease_ms / 3).unref();
  }

  /** What was done stays: the response that the framework makes of the error says what became of it. */
  async fail(error) {
    this.error = error;
  }

  async finish(response) {
    const { ticket } = this;
    if (this.error instanceof NothingDone) {
      await this.abandon();
      return ticket.told(response, 'retry');
    }
    // What was thrown says nothing about what was done before: a 429 may be that of a third party, passed on.
    const verdict = this.error && response.isEarly ? 'unknown' : undefined;
    if (!this.holds) return verdict ? ticket.told(response, verdict) : response;
    this.holds = false;
    const told = await this.server.ask('finish', { claim: this.claim, response: packed(response), verdict });
    if (told.outcome === 'done') return response.isFinal ? ticket.recorded(response) : response;
    throw told.response ? unpacked(told.response, false) : refusal('busy');
  }

  /** Without a response: nothing was done, or nobody knows what. */
  async abandon() {
    if (!this.holds) return;
    this.holds = false;
    if (this.error instanceof NothingDone) await this.server.ask('release', { claim: this.claim, early: true });
    else await this.server.ask('doubt', { claim: this.claim, cause: `exception: ${this.error?.name}` });
  }

  isRepeatable() {
    return false; // the server is asked again, not the handler
  }

  isOwn() {
    return false;
  }

  async close() {
    clearInterval(this.timer);
  }
}

class Serve {
  /** `unix:PATH`, or `http://127.0.0.1:PORT` with a token. A request is repeated for `patience` seconds if there is no reply. */
  constructor(where, { token = undefined, patience = 10 } = {}) {
    const unix = /^unix:(.+)$/.exec(where), url = unix ? undefined : new URL(where);
    this.options = { agent: new http.Agent({ keepAlive: true }), method: 'POST',
      ...(unix ? { socketPath: unix[1] } : { host: url.hostname.replace(/[[\]]/g, ''), port: url.port }),
      headers: { 'Content-Type': 'application/json', ...(token ? { Authorization: `Bearer ${token}` } : {}) } };
    this.patience = patience * 1000;
  }

  operation(ticket) {
    return new Served(this, ticket);
  }

  /** Before the handler runs nothing is lost yet, and the client waits. */
  askFirst(name, body) {
    return this.ask(name, body, Math.min(5000, this.patience));
  }

  async ask(name, body, patience = this.patience) {
    for (let attempt = 0, end = Date.now() + patience; ; attempt++) {
      let told;
      try {
        told = await this.post(`/v1/${name}`, body);
        if (told.status === 200) return told.body;
      } catch (error) {
        if (Date.now() >= end) throw unavailable(error);
      }
      if (told && told.status !== 503) throw new Error(`once serve refuses ${name}: ${told.status} ${told.body.detail ?? ''}`);
      if (Date.now() >= end) throw unavailable();
      await sleep(Math.min(20 * 2 ** attempt, 500));
    }
  }

  post(path, body) {
    return new Promise((resolve, reject) => {
      const bytes = Buffer.from(JSON.stringify(body));
      const headers = { ...this.options.headers, 'Content-Length': bytes.length };
      const request = http.request({ ...this.options, path, headers, timeout: 70000 }, async (response) => {
        const parts = [];
        try {
          for await (const part of response) parts.push(part);
          resolve({ status: response.statusCode, body: JSON.parse(Buffer.concat(parts).toString() || '{}') });
        } catch (error) {
          reject(error);
        }
      });
      request.on('timeout', () => request.destroy(new Error('once serve does not answer'))).on('error', reject).end(bytes);
    });
  }
}

module.exports = { serve: (where, options) => new Serve(where, options) };
