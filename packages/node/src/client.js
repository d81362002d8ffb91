// The client's side: a key for each intent, kept over retries, and kept in a journal over restarts where that is asked for.
'use strict';

const crypto = require('node:crypto');
const fs = require('node:fs');
const path = require('node:path');

const PREFIX = 'urn:once:problem:', MONTH = 30 * 86400e3;
const REPEATED = new Set([408, 425, 429, 500, 502, 503, 504]);
// What axios calls an answer that did not come.
const LOST = new Set(['ECONNABORTED', 'ECONNREFUSED', 'ECONNRESET', 'ENETUNREACH', 'ENOTFOUND', 'EAI_AGAIN', 'EPIPE', 'ERR_BAD_RESPONSE',
  'ERR_NETWORK', 'ETIMEDOUT']);

/** The journal has another request under this name. */
class IntentChanged extends Error {}
/** The key of this name may be forgotten by now: sending it again could take effect a second time. */
class IntentExpired extends Error {}
/** The answer, in `response`, is a redirect, and is not followed: that would send the write and its headers to another address, or take the
 * answer of another resource for its own. */
class Redirected extends Error {
  constructor(response) {
    super(`${response.status} to "${response.headers.get('location') || ''}" is not followed: a write is for one URL`);
    this.response = response;
  }
}

const OWN = /^[0-9a-f]{64}\.(json|.+\.new)$/; // what a journal calls its files
const sha256 = (...parts) => parts.reduce((hash, part) => hash.update(part), crypto.createHash('sha256')).digest('hex');
const pause = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });

function parse(status, type, body) {
  if (status < 400 || !String(type || '').startsWith('application/problem+json')) return null;
  try {
    const value = JSON.parse(Buffer.from(body).toString());
    return typeof value.type === 'string' && value.type.startsWith(PREFIX) ? value : null;
  } catch {
    return null;
  }
}

/** The name of the gateway's problem in an answer, such as outcome-unknown; null: it is none. */
function problem(status, type, body) {
  const found = parse(status, type, body);
  return found && found.type.slice(PREFIX.length);
}

/** Intents in a directory, a file for each, which processes may share. Nothing of a request is in it but its hash. */
class Journal {
  constructor(directory, { keep = 24 * 3600e3 } = {}) {
    this.directory = directory;
    this.keep = keep;
    fs.mkdirSync(directory, { recursive: true, mode: 0o700 });
    this.forget();
  }

  path(name) {
    return path.join(this.directory, `${sha256(name)}.json`);
  }

  /** Removes what has been too old to be sent again for a month. Until then its name is not taken for a new intent. Files that are not
   * the journal's own are left alone. */
  forget() {
    for (const entry of fs.readdirSync(this.directory)) {
      if (!OWN.test(entry)) continue;
      const file = path.join(this.directory, entry);
      try {
        if (Date.now() - fs.statSync(file).mtimeMs < this.keep + MONTH) continue;
        if (Date.now() - (JSON.parse(fs.readFileSync(file, 'utf8')).expires || 0) * 1000 > MONTH) fs.unlinkSync(file);
      } catch (error) {
        if (error instanceof SyntaxError) fs.unlinkSync(file); // begun by a process that was killed
        else if (error.code !== 'ENOENT') throw error;
      }
    }
  }

  /** The key of this name, which is `key` if there was none; on disk when this returns. */
  key(name, request, key) {
    const found = this.put(name, { version: 1, request, key, created: Date.now() / 1000, expires: null }, false);
    if (found.request !== request) {
      throw new IntentChanged(`"${name}" is another request in the journal: use another name for another intent`);
    }
    if (Date.now() / 1000 > (found.expires || found.created + this.keep / 1000)) {
      throw new IntentExpired(`"${name}" was first sent too long ago: find out what became of it before it gets a new name`);
    }
    return found.key;
  }

  /** An answer said until when the key is remembered: seconds since 1970. */
  ended(name, expires) {
    const file = this.path(name);
    if (fs.existsSync(file)) this.put(name, { ...JSON.parse(fs.readFileSync(file, 'utf8')), expires }, true);
  }

  /** Writes it whole, or not at all. What another process has put there first is kept unless it is replaced. */
  put(name, made, replace) {
    const file = this.path(name), temporary = path.join(this.directory, `${sha256(name)}.${crypto.randomUUID()}.new`);
    const handle = fs.openSync(temporary, 'wx', 0o600);
    try {
      fs.writeSync(handle, JSON.stringify(made));
      fs.fsyncSync(handle);
      if (replace) fs.renameSync(temporary, file);
      else fs.linkSync(temporary, file);
    } catch (error) {
      if (error.code !== 'EEXIST') throw error;
      made = JSON.parse(fs.readFileSync(file, 'utf8'));
    } finally {
      fs.closeSync(handle);
      fs.rmSync(temporary, { force: true });
    }
    const directory = fs.openSync(this.directory, 'r');
    try {
      fs.fsyncSync(directory);
    } finally {
      fs.closeSync(directory);
    }
    return made;
  }
}

/** One request and its attempts. Sends nothing itself: it says how long to wait before the next attempt in ms, null for no more. */
class Intent {
  constructor(options, method, url, headers, body) {
    this.options = options;
    this.until = Date.now() + options.deadline;
    this.expires = Infinity;
    this.attempts = 0;
    this.name = headers.get('once-intent');
    this.key = headers.get('idempotency-key') || crypto.randomUUID();
    if (this.name) {
      if (!options.journal) throw new Error('Once-Intent needs a journal');
      this.key = options.journal.key(this.name, sha256(method, '\0', url, '\0', body), this.key);
    }
  }

  static concerns(options, method, headers) {
    return options.methods.includes(method.toUpperCase()) || !!headers.get('idempotency-key') || !!headers.get('once-intent');
  }

  failed() {
    return this.wait(0);
  }

  /** `header` gives the value of a header, or null. */
  answered(status, header, body) {
    const expires = Date.parse(header('idempotency-expires') || '');
    if (!Number.isNaN(expires)) {
      this.expires = Math.min(this.expires, expires);
      if (this.name) this.options.journal.ended(this.name, this.expires / 1000);
    }
    if (header('idempotent-replayed') === 'true') return null;
    const found = parse(status, header('content-type'), body), after = header('retry-after');
    const repeated = found ? found.retryable === true : REPEATED.has(status) || (status === 409 && !!after);
    if (!repeated) return null;
    const date = Date.parse(after || '') - Date.now();
    return this.wait(/^\d+$/.test(after || '') ? Number(after) * 1000 : Math.max(0, date || 0));
  }

  wait(least) {
    const { base, cap, draw, deadline } = this.options;
    const ms = least + draw(Math.min(cap, base * 2 ** this.attempts));
    this.attempts += 1;
    return deadline > 0 && Date.now() + ms <= this.until && Date.now() + ms < this.expires ? ms : null;
  }
}

const complete = (options) => ({
  deadline: 60e3, base: 200, cap: 20e3, methods: ['POST', 'PATCH'], draw: (most) => Math.random() * most, journal: null, ...options,
});

const isRedirect = ({ status, type }) => (status >= 300 && status < 400 && status !== 304) || type === 'opaqueredirect';

/** A `fetch` that gives each POST and PATCH a key, and repeats it until the answer says that repeating is of no use. A redirect is not
 * followed: `Redirected` is thrown, or with `redirect: 'manual'` the answer is returned. */
function onceFetch(inner = globalThis.fetch, options = {}) {
  const all = complete(options);
  return async (input, init) => {
    const request = new Request(input, init);
    if (!Intent.concerns(all, request.method, request.headers)) return inner(request);
    const body = Buffer.from(await request.arrayBuffer());
    const intent = new Intent(all, request.method, request.url, request.headers, body);
    const headers = new Headers(request.headers);
    headers.delete('once-intent');
    headers.set('idempotency-key', intent.key);
    for (;;) {
      let answer = null, ms;
      try {
        answer = await inner(request.url, {
          method: request.method, headers, body: body.length ? body : undefined, signal: request.signal, redirect: 'manual',
        });
        const copy = Buffer.from(await answer.clone().arrayBuffer()); // a body that is cut off is an answer that was lost
        ms = intent.answered(answer.status, (name) => answer.headers.get(name), copy);
      } catch (error) {
        ms = request.signal.aborted ? null : intent.failed();
        if (ms === null) throw error;
      }
      if (ms === null) {
        if (isRedirect(answer) && request.redirect !== 'manual') throw new Redirected(answer);
        return answer;
      }
      await pause(ms);
    }
  };
}

/** An adapter for `axios.create({ adapter: onceAdapter(axios) })`. Streams as bodies are not repeated and not accepted. A redirect is not
 * followed, whatever `maxRedirects` is: it is an answer that `validateStatus` judges. */
function onceAdapter(axios, options = {}) {
  const all = complete(options), inner = axios.getAdapter(axios.defaults.adapter);
  return async (given) => {
    const { headers } = given, method = given.method.toUpperCase();
    if (!Intent.concerns(all, method, headers)) return inner(given);
    const config = { ...given, maxRedirects: 0, fetchOptions: { ...given.fetchOptions, redirect: 'manual' } }; // of http and of fetch
    const body = config.data === undefined || config.data === null ? '' : config.data;
    if (typeof body !== 'string' && !ArrayBuffer.isView(body)) throw new TypeError('a body that is repeated must be a text or bytes');
    const intent = new Intent(all, method, axios.getUri(config), headers, body);
    headers.delete('once-intent');
    headers.set('Idempotency-Key', intent.key);
    for (;;) {
      let answer, failure = null, ms;
      try {
        answer = await inner(config);
      } catch (error) {
        failure = error;
        answer = error.response;
      }
      if (answer) {
        const value = answer.data, text = typeof value === 'string' || ArrayBuffer.isView(value) ? value : JSON.stringify(value) || '';
        ms = intent.answered(answer.status, (name) => answer.headers.get(name) || null, text);
      } else {
        ms = LOST.has(failure.code) ? intent.failed() : null;
      }
      if (ms === null) {
        if (failure) throw failure;
        return answer;
      }
      await pause(ms);
    }
  };
}

module.exports = { IntentChanged, IntentExpired, Journal, Redirected, onceAdapter, onceFetch, problem };
