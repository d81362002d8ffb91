// Requests and responses as records see them, the key of a request, and the errors that a client gets.
'use strict';

const CLAIM = /^[A-Za-z0-9_-]{70}$/;
// Of the connection or of the moment, or made anew by every server: not part of a record.
const NOT_RECORDED = new Set(['connection', 'keep-alive', 'proxy-authenticate', 'proxy-connection', 'te', 'trailer',
  'transfer-encoding', 'upgrade', 'content-length', 'date', 'server', 'set-cookie']);
// Sent before any effect: the gate and `once serve` leave the key free.
const EARLY = new Set([401, 403, 407, 421, 425, 429]);

const PROBLEMS = { // the same as the gateway's: nginx/ngx_http_once_problem.c
  'key-missing': [400, false, 'invalid_request_error', 'Idempotency key is missing',
    'This operation needs an idempotency key in the header Idempotency-Key. Send a new, unique key with each new operation, and ' +
    'the same key with each retry of it.'],
  'key-invalid': [400, false, 'invalid_request_error', 'Idempotency key is invalid',
    'A key is 1 to 255 visible ASCII characters, sent once.'],
  'scope-missing': [400, false, 'invalid_request_error', 'Caller is not known',
    'Idempotency keys belong to a caller, and this request does not say whose it is.'],
  'in-flight': [409, true, 'idempotency_error', 'A request with this idempotency key is in progress',
    'Send the same request again later to get its response.'],
  'outcome-unknown': [409, false, 'idempotency_error', 'The outcome of this operation is not known',
    'An earlier request with this key may have taken effect. It is not run again until its outcome has been settled.'],
  'key-reused': [422, false, 'idempotency_error', 'Idempotency key was used for another request',
    'The first request with this key was different. Send a new key with a new operation.'],
  'store-unavailable': [503, true, 'api_error', 'Idempotency records are not available',
    'Send the same request with the same key again later.'],
};

const REFUSALS = { busy: 'in-flight', mismatch: 'key-reused', unknown: 'outcome-unknown' }; // by the outcome of a claim

/** There is nothing to run: `response` is what the client gets (a replay, or an error of the contract). */
class Answered extends Error {
  constructor(response, outcome, cause) {
    super(`answered with ${response.status}`, { cause });
    this.response = response;
    this.outcome = outcome;
  }
}

const toJson = (value) => JSON.stringify(value === undefined ? null : value,
  (_, part) => (typeof part === 'bigint' ? part.toString() : part));

/** Bytes and text as they are, everything else as JSON. */
function toBytes(value) {
  if (value instanceof Uint8Array) return Buffer.from(value.buffer, value.byteOffset, value.byteLength);
  return Buffer.from(typeof value === 'string' ? value : toJson(value));
}

/** The text of a header: Node reads and writes its bytes as Latin-1, records have UTF-8. */
function headerText(value) {
  const text = Buffer.from(value, 'latin1').toString('utf8');
  return text.includes('\ufffd') ? value : text;
}

class Response {
  constructor(status, headers = [], body = toBytes('')) {
    this.status = status;
    this.headers = [...headers];
    this.body = body;
  }

  /** Bytes and text as they are, everything else as JSON. */
  static of(value, status = 200, headers = []) {
    if (value instanceof Response) return value;
    const raw = typeof value === 'string' || value instanceof Uint8Array;
    return new Response(status, raw ? headers : [['Content-Type', 'application/json'], ...headers], toBytes(value));
  }

  /** @returns {[string, string][]} */
  get recordedHeaders() {
    return this.headers.filter(([name]) => !NOT_RECORDED.has(name.toLowerCase())).map(([name, value]) => [name, headerText(value)]);
  }

  /** Whether it answers the key for good. Everything else rolls back and leaves the key free. */
  get isFinal() {
    return this.status >= 200 && this.status < 500 && !this.isEarly && this.status !== 408;
  }

  get isEarly() {
    return EARLY.has(this.status);
  }

  /** With a header of `once` that the record does not have. */
  add(name, value) {
    this.headers.push([name, value]);
    return this;
  }

  /** Until when the record is kept. */
  expires(seconds) {
    return this.add('Idempotency-Expires', new Date(Date.now() + seconds * 1000).toUTCString());
  }
}

/** A recorded response, which is kept for `seconds` if that is known: `marked` if this request was not the one that made it. */
function replay(status, headers, body, stored, marked, seconds) {
  const response = new Response(status, headers.map(([name, value]) => [name, Buffer.from(value).toString('latin1')]), Buffer.from(body ?? ''));
  if (seconds) response.expires(seconds);
  if (stored !== 'plain') response.add('Once-Body', stored);
  if (marked) response.add('Idempotent-Replayed', 'true');
  return new Answered(response, 'replay');
}

function problem(name, { detail = '', retryAfter = 0, cause = undefined } = {}) {
  const [status, retryable, kind, title, usual] = PROBLEMS[name];
  const body = { type: `urn:once:problem:${name}`, title, status, detail: detail || usual, retryable,
    error: { type: kind, code: name, message: detail || usual } };
  const headers = [['Content-Type', 'application/problem+json'], ['Content-Language', 'en'], ['Cache-Control', 'no-store']];
  if (retryAfter) headers.push(['Retry-After', String(Math.max(1, Math.ceil(retryAfter)))]);
  return new Answered(new Response(status, headers, toBytes(body)), Object.keys(REFUSALS).find((outcome) => REFUSALS[outcome] === name) ?? name, cause);
}

/** Of a claim that was not granted. */
function refusal(outcome, retryAfter) {
  const name = REFUSALS[outcome] ?? REFUSALS.busy;
  return problem(name, name === REFUSALS.busy ? { retryAfter: retryAfter || 1 } : {});
}

const invalid = (detail) => problem('key-invalid', { detail });

function unquote(value) {
  let key = '', at = 1;
  for (; at < value.length && value[at] !== '"'; at++) {
    if (value[at] === '\\' && !'"\\'.includes(value[++at] ?? ' ')) {
      throw invalid('the key has a backslash that escapes nothing; inside quotes only \\" and \\\\ are escapes');
    }
    key += value[at];
  }
  const rest = value.slice(at + 1).replace(/^[ \t]+|[ \t]+$/g, '');
  if (at >= value.length) throw invalid("the key's closing quote is missing; add it");
  if (rest[0] === ',') throw invalid('the key header has several keys, separated by commas; send exactly one');
  if (rest[0] === ';') throw invalid('the key has parameters after its closing quote; send the key alone');
  if (rest) throw invalid('there is text after the key\'s closing quote; write a quote inside a key as \\"');
  return key;
}

/** The key of a request, from all its Idempotency-Key headers: `"k"` and `k` are the same. The rules are lib/core/key.c's. */
function parseKey(values) {
  if (!values.length) throw problem('key-missing');
  if (values.length > 1) throw invalid(`the key header was sent ${values.length} times; send it once`);
  const value = values[0].replace(/^[ \t]+|[ \t]+$/g, '');
  if (value[0] !== '"' && value.includes(',')) {
    throw invalid('the key has a comma, as if several were joined; send exactly one, in double quotes if the comma belongs to it');
  }
  const key = value[0] === '"' ? unquote(value) : value;
  if (!key) throw invalid('the key is empty; send 1 to 255 characters');
  if (/[^\0-\x7f]/.test(key)) throw invalid('the key has a byte that is not ASCII; use visible ASCII characters only');
  if (/[\0-\x1f\x7f]/.test(key)) throw invalid('the key has a control character; use visible ASCII characters only');
  if (key.length > 255) throw invalid('the key is longer than 255 bytes; send a shorter one');
  return key;
}

/** What tells one operation from another. `native` is the framework's request, if there is one. */
class Request {
  constructor(method, target, headers = [], body = '', native = undefined) {
    const fields = Array.isArray(headers) ? headers : Object.entries(headers);
    this.method = method;
    this.target = target;
    this.headers = fields;
    this.body = toBytes(body);
    this.native = native;
  }

  /** Of Node's own IncomingMessage, whose raw headers say what was sent twice. */
  static of(message, target, body, native) {
    const raw = message.rawHeaders;
    const headers = raw.filter((_, at) => at % 2 === 0).map((name, at) => [name, raw[2 * at + 1]]);
    return new Request(message.method, target, headers, body, native);
  }

  all(name) {
    return this.headers.filter(([field]) => field.toLowerCase() === name).flatMap(([, value]) => value);
  }

  get key() {
    return parseKey(this.all('idempotency-key'));
  }

  /** From the gate. Without one the application claims by itself. */
  get claim() {
    const values = this.all('once-claim');
    if (values.length && !(values.length === 1 && CLAIM.test(values[0]))) {
      throw invalid('the header Once-Claim is not a claim; only once gate may send it');
    }
    return values[0];
  }
}

module.exports = { Answered, PROBLEMS, Request, Response, headerText, parseKey, problem, refusal, replay, toBytes, toJson };
