// For tests of handlers, without a server: records, events and accepted messages in memory.
'use strict';
const { createHash } = require('node:crypto');

const hash = (...parts) => createHash('sha256').update(JSON.stringify(parts)).digest('hex');
const refused = (code) => Object.assign(new Error(code), { code }); // as PostgreSQL refuses a claim: by its SQLSTATE

/** Give it to once.idempotent instead of a database. `connection` is what handlers find as once.current().connection. */
class Memory {
  constructor(connection = undefined) {
    this.connection = connection;
    this.responses = new Map(); // by scope and key: fingerprint and response
    this.checkpoints = new Map();
    this.claims = new Map();
    this.open = new Map();
    this.events = [];
    this.accepted = new Set();
  }

  transport() {
    return new MemoryTransport(this);
  }
}

class MemoryTransport {
  constructor(memory) {
    this.memory = memory;
    this.connection = memory.connection;
    this.owns = true;
    this.lost = false;
    this.changes = []; // what a commit does
    this.fingerprints = new Map();
  }

  async begin() {}

  async commit() {
    for (const change of this.changes) change();
    await this.rollback();
  }

  async rollback() {
    this.changes = [];
    for (const [id, holder] of this.memory.open) if (holder === this) this.memory.open.delete(id);
  }

  async close() {}

  isLost() {
    return false;
  }

  async call(name, ...values) {
    return this[name](...values);
  }

  hold(id) {
    if ((this.memory.open.get(id) ?? this) !== this) return false;
    this.memory.open.set(id, this);
    return true;
  }

  claim(scope, key, method, target, body, lease, ttl, wait, claimId) {
    const { memory } = this, id = hash(scope, key), fingerprint = hash(method, target, body.toString('base64'));
    const known = memory.responses.get(id);
    if (!this.hold(id)) return { outcome: 'busy', retry_after: 1 };
    if (known && known.fingerprint !== fingerprint) return { outcome: 'mismatch' };
    if (known) return { outcome: 'replay', ...known.response };
    memory.claims.set(claimId, id);
    this.fingerprints.set(id, fingerprint);
    return { outcome: 'run', claim: claimId };
  }

  renew(claim) {
    if (this.recorded(claim)) throw refused('ON002');
    this.memory.claims.set(claim, this.memory.claims.get(claim) ?? claim);
    if (!this.hold(this.memory.claims.get(claim))) throw refused('ON001');
  }

  recorded(claim) {
    return this.memory.responses.get(this.memory.claims.get(claim))?.response;
  }

  complete(claim, status, headers, body) {
    const id = this.memory.claims.get(claim);
    const made = { fingerprint: this.fingerprints.get(id), response: { status, headers, body, stored: 'plain' } };
    this.changes.push(() => this.memory.responses.set(id, made));
  }

  release() {}

  lock() {}

  emit(topic, key, type, payload, headers, claim) {
    this.changes.push(() => this.memory.events.push({ topic, key, type, payload }));
    return { value: hash(topic, key, type, payload.toString('base64'), claim).slice(0, 32) };
  }

  accept(subscriber, messageId) {
    const id = `${subscriber}/${messageId}`, value = !this.memory.accepted.has(id);
    this.changes.push(() => this.memory.accepted.add(id));
    return { value };
  }

  derive(claim, step) {
    return { value: `d2-${hash(this.memory.claims.get(claim), step).slice(0, 52)}` };
  }

  checkpoint(claim, name, state) {
    const id = this.memory.claims.get(claim);
    this.changes.push(() => this.memory.checkpoints.set(id, { name, state }));
  }

  resume(claim) {
    return this.memory.checkpoints.get(this.memory.claims.get(claim));
  }
}

module.exports = { Memory };
