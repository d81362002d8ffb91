// `once.idempotent` for the handlers of Express and Fastify: the response is caught where Node would send it.
'use strict';
const { Transform, pipeline } = require('node:stream');
const { Request, Response } = require('./message');
const { run } = require('./operation');

const BODY_LIMIT = 16 << 20;

/** All headers of a response of Node, with their names as they were written. */
function fieldsOf(raw) {
  const names = raw.getRawHeaderNames?.() ?? raw.getHeaderNames();
  return names.flatMap((name) => [raw.getHeader(name)].flat().map((value) => [name, String(value)]));
}

/** As Node refuses it when it is sent, which is too late here. */
function statusOf(found) {
  const status = found | 0;
  if (status < 100 || status > 999) throw Object.assign(new RangeError(`Invalid status code: ${found}`), { code: 'ERR_HTTP_INVALID_STATUS_CODE' });
  return status;
}

/** Holds back what is written to a response of Node, until it is recorded. `more` are headers that it does not have yet. */
class Capture {
  constructor(raw, more = {}) {
    this.raw = raw;
    for (const [name, value] of Object.entries(more)) raw.setHeader(name, value);
    this.headers = fieldsOf(raw);
    this.status = raw.statusCode;
    this.message = raw.statusMessage;
    this.sources = new Set(); // streams that are written to it
    raw.on('pipe', (source) => this.sources.add(source)).on('unpipe', (source) => this.sources.delete(source));
    this.original = { on: raw.on, writeHead: raw.writeHead, write: raw.write, end: raw.end, flushHeaders: raw.flushHeaders };
  }

  /** Everything as before the handler. Gives the response that comes next; throws if it is too large. */
  begin() {
    this.reset();
    this.caught = undefined;
    const ended = new Promise((resolve, reject) => this.listen(resolve, reject));
    ended.catch(() => {}); // also if the handler has failed before
    return ended;
  }

  reset() {
    const { raw, status, message } = this;
    for (const name of raw.getHeaderNames()) raw.removeHeader(name);
    for (const [name, value] of this.headers) raw.appendHeader(name, value);
    Object.assign(raw, { statusCode: status, statusMessage: message });
  }

  listen(resolve, reject) {
    const { raw, original, sources } = this, parts = [], waiting = [];
    let size = 0;
    const keep = (bytes) => {
      size += bytes.length;
      if (size <= BODY_LIMIT) return parts.push(bytes);
      reject(new Error(`the response is larger than ${BODY_LIMIT} bytes, and is not recorded`));
      parts.length = 0;
      return sources.forEach((source) => source.unpipe(raw).destroy());
    };
    const add = (chunk, encoding, done) => {
      if (typeof encoding === 'function') [encoding, done] = [undefined, encoding];
      if (typeof chunk === 'function') [chunk, done] = [undefined, chunk];
      if (chunk !== undefined && chunk !== null) keep(Buffer.from(chunk, encoding ?? undefined));
      if (done) process.nextTick(done);
    };
    raw.writeHead = (status, message, headers = message) => {
      raw.statusCode = statusOf(status);
      const fields = Array.isArray(headers) ? headers.flat().flatMap((_, at, all) => (at % 2 ? [] : [[all[at], all[at + 1]]]))
        : Object.entries(typeof headers === 'object' ? headers ?? {} : {});
      for (const [name, value] of fields) if (value !== undefined) raw.setHeader(name, value);
      return raw;
    };
    raw.flushHeaders = () => {};
    raw.on = (event, listener) => { // `await pipeline(stream, response)`: for the handler it is sent when it is here
      if (event !== 'finish') return original.on.call(raw, event, listener);
      waiting.push(listener);
      return raw;
    };
    raw.write = (...args) => {
      add(...args);
      return true;
    };
    raw.end = (...args) => {
      const status = statusOf(raw.statusCode);
      add(...args);
      if (size > BODY_LIMIT) return raw;
      this.caught ??= new Response(status, fieldsOf(raw), Buffer.concat(parts)); // the first one counts
      resolve(this.caught);
      for (const listener of waiting.splice(0)) process.nextTick(() => listener.call(raw));
      return raw;
    };
  }

  /** Gives the response of Node back as it was before the handler. */
  release() {
    Object.assign(this.raw, this.original);
    this.reset();
  }

  /** A response that was not caught here goes out with what others have set: for CORS, say. */
  send(response) {
    const { raw } = this, { status, headers, body } = response;
    this.release();
    raw.statusCode = status;
    for (const name of response === this.caught ? raw.getHeaderNames() : headers.map(([name]) => name)) raw.removeHeader(name);
    for (const [name, value] of headers) raw.appendHeader(name, value);
    if (status !== 204 && status !== 304) raw.setHeader('Content-Length', body.length);
    raw.end(body);
  }
}

/** For express.json({ verify: once.rawBody }), and any other parser of Express: keeps the bytes of which the body was made. */
function rawBody(request, response, bytes) {
  request.rawBody = bytes;
}

/** A plugin for Fastify, which does the same. */
async function fastify(app) {
  app.decorateRequest('rawBody', null);
  app.addHook('preParsing', async (request, reply, payload) => {
    if (!request.headers['idempotency-key'] || request.headers['once-claim']) return payload;
    const parts = [];
    const tee = new Transform({
      transform: (part, encoding, done) => done(null, parts.push(part) && part),
      flush: (done) => done(null, void (request.rawBody = Buffer.concat(parts))),
    });
    return pipeline(payload, tee, () => {});
  });
}
Object.assign(fastify, { [Symbol.for('skip-override')]: true }); // for all routes, not only those of the plugin

/** The bytes of the body: what a parser has kept, or what nobody has read so far. `isNeeded`: the claim is made of them. */
async function bytesOf(native, raw, isNeeded) {
  if (native.rawBody) return native.rawBody;
  if (!raw.headers['transfer-encoding'] && !Number(raw.headers['content-length'])) return '';
  if (raw.readableDidRead || native.raw) {
    if (!isNeeded) return '';
    throw new Error('once needs the bytes of the body, and they are gone: app.use(express.json({ verify: once.rawBody })), ' +
      'app.register(once.fastify), or NestFactory.create(AppModule, { rawBody: true })');
  }
  const parts = [];
  let size = 0;
  for await (const part of raw) {
    size += part.length;
    if (size > BODY_LIMIT) throw Object.assign(new Error('the body is too large'), { status: 413 });
    parts.push(part);
  }
  native.rawBody = Buffer.concat(parts);
  if (/^application\/(.*\+)?json\b/.test(raw.headers['content-type'] ?? '')) {
    try {
      native.body = JSON.parse(native.rawBody.toString());
    } catch (error) {
      throw Object.assign(error, { status: 400 });
    }
  }
  return native.rawBody;
}

async function requestOf(native) {
  const raw = native.raw ?? native;
  const { 'idempotency-key': key, 'once-claim': claim } = raw.headers;
  const body = key || claim ? await bytesOf(native, raw, !claim) : ''; // what has neither is refused
  return Request.of(raw, native.originalUrl ?? raw.url, body, native);
}

/** Wraps handlers: with one Idempotency-Key they take effect once, and their response is recorded in their own transaction, which
 * `once.current().connection` is in. */
function idempotent(database, options) {
  return (handler) => /** @type {any} */ (function guarded(request, response, next) {
    const reply = response.raw && response; // Fastify's
    const headers = reply?.getHeaders(), capture = new Capture(reply?.raw ?? response, headers);
    const pass = (error) => (reply ? reply.send(error) : next(error)); // to what the framework has for errors

    const produce = async (op) => {
      const ended = capture.begin();
      let failed;
      const thrown = new Promise((resolve, reject) => { failed = (error) => (error ? reject(error) : next()); });
      if (reply) {
        for (const name of Object.keys(reply.getHeaders())) reply.removeHeader(name);
        reply.headers(headers).then = undefined; // `return reply` would wait until it is sent, which is when this is done
      }
      try {
        const result = await Promise.race([thrown, handler.call(this, request, response, failed)]);
        if (reply && result !== undefined && result !== reply) reply.send(result);
        return await Promise.race([thrown, ended]);
      } catch (error) {
        if (op.isOwn(error)) throw error;
        await op.fail(error);
        const answered = capture.begin();
        pass(error);
        return await answered;
      } finally {
        if (reply) delete reply.then;
      }
    };

    requestOf(request).then((found) => run(database, found, options, produce)).then((sent) => capture.send(sent)).catch((error) => {
      capture.release();
      pass(error);
    }).catch(() => capture.raw.destroy()); // some of it is out
  });
}

module.exports = { Capture, fastify, idempotent, rawBody, requestOf };
