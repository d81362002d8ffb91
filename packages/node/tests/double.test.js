// The test double, and handlers of Express, Fastify and Nest on it: no server is needed.
'use strict';
const assert = require('node:assert/strict');
const { Readable } = require('node:stream');
const { pipeline } = require('node:stream/promises');
const { AsyncLocalStorage } = require('node:async_hooks');
const { test } = require('node:test');
const { context, trace, ROOT_CONTEXT } = require('@opentelemetry/api');
const express = require('express');
const fastify = require('fastify');
require('reflect-metadata');
const nest = require('@nestjs/common');
const { NestFactory } = require('@nestjs/core');
const once = require('../src');
const { Idempotent, OnceModule } = require('../src/nest');
const { Memory } = require('../src/testing');

const KEY = { 'Idempotency-Key': 'k-1' };
const CONFLICT = () => Object.assign(new Error('conflict'), { code: '40001' });
const quiet = { log: () => {} };

/** More than is recorded. */
const large = () => Readable.from((function* parts() {
  for (let i = 0; i < 18; i++) yield Buffer.alloc(1 << 20);
}()));

function orders(calls) {
  return async (asked, send) => {
    const op = once.current();
    calls.push(op.connection);
    await op.emit('orders', 'o-1', 'placed', { n: calls.length });
    if (asked.conflicts >= calls.length) throw CONFLICT();
    if (asked.status) throw Object.assign(new Error('no'), { status: asked.status, statusCode: asked.status });
    if (asked.nothing) throw new once.NothingDone();
    return send({ number: calls.length });
  };
}

const servers = {
  async express(memory, business, options) {
    const app = express();
    const idempotent = once.idempotent(memory, { scope: 't', ...quiet, ...options });
    app.use((request, response, next) => next(void response.set('Access-Control-Allow-Origin', '*')));
    if (options?.parser !== false) app.use(express.json({ verify: options?.forgets ? undefined : once.rawBody }));
    app.post('/orders', idempotent((request, response) => business(request.body, (value) => response.status(201).json(value))));
    app.post('/next', idempotent((request, response, next) => next(Object.assign(new Error('no'), { status: 404 }))));
    app.post('/stream', idempotent((request, response) => Readable.from(['a', Buffer.from('b')]).pipe(response.type('text/plain'))));
    app.post('/status', idempotent((request, response) => void response.writeHead(1000).end()));
    app.post('/large', idempotent((request, response) => response.send(Buffer.alloc((16 << 20) + 1))));
    app.post('/large-stream', idempotent((request, response) => large().pipe(response)));
    app.post('/large-pipeline', idempotent((request, response) => pipeline(large(), response)));
    app.post('/pipeline', idempotent((request, response) => pipeline(Readable.from(['a', 'b']), response)));
    app.use((error, request, response, next) => response.status(error.status ?? 500).json({ error: error.message }));
    const server = await new Promise((resolve) => { const made = app.listen(0, '127.0.0.1', () => resolve(made)); });
    return { url: `http://127.0.0.1:${server.address().port}`, close: () => server.close() };
  },
  async fastify(memory, business, options) {
    const app = fastify();
    const idempotent = once.idempotent(memory, { scope: 't', ...quiet, ...options });
    if (!options?.forgets) app.register(once.fastify);
    app.addHook('onRequest', async (request, reply) => void reply.header('Access-Control-Allow-Origin', '*'));
    app.post('/orders', idempotent(async (request, reply) => business(request.body, (value) => reply.code(201).send(value))));
    app.post('/next', idempotent((request, reply) => reply.code(404).send({ error: 'no' })));
    app.post('/status', idempotent((request, reply) => void reply.raw.writeHead(1000).end()));
    app.post('/large', idempotent((request, reply) => reply.send(Buffer.alloc((16 << 20) + 1))));
    app.post('/large-stream', idempotent(async (request, reply) => reply.send(large())));
    app.post('/stream', idempotent(async (request, reply) => reply.type('text/plain').send(Readable.from(['a', Buffer.from('b')]))));
    return { url: await app.listen({ port: 0, host: '127.0.0.1' }), close: () => app.close() };
  },
};

const decorate = (target, name, ...decorators) => {
  for (const one of decorators) one(target, name, Object.getOwnPropertyDescriptor(target, name));
};

servers.nest = async (memory, business, options) => {
  class Orders {
    async orders(body) {
      try {
        return await business(body, (value) => value);
      } catch (error) {
        throw error.status && !(error instanceof once.NothingDone) ? new nest.HttpException(error.message, error.status) : error;
      }
    }

    next() {
      throw new nest.NotFoundException();
    }

    status(response) {
      response.writeHead(1000).end();
    }

    large() {
      return 'x'.repeat((16 << 20) + 1);
    }

    largeStream() {
      return new nest.StreamableFile(large());
    }

    stream() {
      return new nest.StreamableFile(Readable.from([Buffer.from('a'), Buffer.from('b')]), { type: 'text/plain' });
    }
  }
  nest.Controller()(Orders);
  decorate(Orders.prototype, 'orders', nest.Post('orders'), Idempotent({ wait: false }));
  nest.Body()(Orders.prototype, 'orders', 0);
  decorate(Orders.prototype, 'next', nest.Post('next'), Idempotent());
  decorate(Orders.prototype, 'status', nest.Post('status'), Idempotent());
  nest.Res()(Orders.prototype, 'status', 0);
  decorate(Orders.prototype, 'large', nest.Post('large'), Idempotent());
  decorate(Orders.prototype, 'largeStream', nest.Post('large-stream'), Idempotent());
  decorate(Orders.prototype, 'stream', nest.Post('stream'), Idempotent());
  class Application {}
  nest.Module({ controllers: [Orders], imports: [OnceModule.forRoot({ database: memory, scope: 't', ...quiet, ...options })] })(Application);
  const app = await NestFactory.create(Application, { logger: false, rawBody: !options?.forgets });
  app.use((request, response, next) => next(void response.set('Access-Control-Allow-Origin', '*')));
  await app.listen(0, '127.0.0.1');
  return { url: await app.getUrl(), close: () => app.close() };
};

async function using(framework, memory, check, options) {
  const calls = [], server = await servers[framework](memory, orders(calls), options);
  const post = async (body, headers = KEY, path = '/orders') => {
    const response = await fetch(server.url + path, { method: 'POST', body: JSON.stringify(body),
      headers: { 'Content-Type': 'application/json', Connection: 'close', ...headers } });
    return { status: response.status, text: await response.text(), headers: response.headers };
  };
  try {
    await check(post, calls);
  } finally {
    await server.close();
  }
}

for (const framework of Object.keys(servers)) {
  test(`${framework}: once, with its response`, () => using(framework, new Memory('a connection'), async (post, calls) => {
    const [first, again] = [await post({}), await post({})];
    assert.deepEqual([first.status, first.text], [201, '{"number":1}']);
    assert.deepEqual([again.status, again.text, again.headers.get('content-type')], [201, first.text, first.headers.get('content-type')]);
    assert.equal(again.headers.get('x-powered-by'), first.headers.get('x-powered-by'));
    assert.deepEqual([first.headers.get('idempotent-replayed'), again.headers.get('idempotent-replayed')], [null, 'true']);
    assert.deepEqual(calls, ['a connection']);
    assert.deepEqual([(await post({ n: 2 })).status, (await post({}, {})).status], [422, 400]);
    assert.equal((await post({}, {})).headers.get('access-control-allow-origin'), '*');
    assert.equal((await post({}, { ...KEY, 'Once-Claim': 'forged' })).status, 400);
  }));

  test(`${framework}: what fails`, async () => {
    const memory = new Memory();
    await using(framework, memory, async (post, calls) => {
      assert.deepEqual([(await post({ status: 500 })).status, (await post({ status: 500 })).status], [500, 500]); // the key stays free
      assert.deepEqual([(await post({ nothing: 1 })).status, calls.length], [503, 3]);
      assert.deepEqual(memory.events, []);
      const [refused, again] = [await post({ status: 402 }), await post({ status: 402 })]; // answered for good, without effects
      assert.deepEqual([refused.status, again.status, again.text, again.headers.get('idempotent-replayed')], [402, 402, refused.text, 'true']);
      assert.deepEqual([memory.events, calls.length], [[], 4]);
      assert.equal((await post({}, { 'Idempotency-Key': 'k-2' }, '/next')).status, 404);
      assert.equal((await post({}, { 'Idempotency-Key': 'k-2' }, '/next')).headers.get('idempotent-replayed'), 'true');
    });
  });

  test(`${framework}: conflicts are repeated`, async () => {
    const memory = new Memory();
    await using(framework, memory, async (post) => assert.equal((await post({ conflicts: 2 })).text, '{"number":3}'));
    assert.deepEqual(memory.events.map(({ payload }) => payload.toString()), ['{"n":3}']);
    await using(framework, memory, async (post, calls) => {
      const answer = await post({ conflicts: 9 }, { 'Idempotency-Key': 'k-2' });
      assert.deepEqual([answer.status, answer.headers.get('retry-after'), calls.length], [503, '1', 3]);
    }, { attempts: 3 });
  });

  test(`${framework}: a response that cannot be recorded is not sent`, async () => {
    const memory = new Memory();
    let left = 2;
    memory.transport = () => Object.assign(Memory.prototype.transport.call(memory), {
      complete(...values) {
        if (left-- > 0) throw CONFLICT();
        return Object.getPrototypeOf(this).complete.apply(this, values);
      },
    });
    await using(framework, memory, async (post) => assert.equal((await post({})).text, '{"number":3}'));
    left = 1;
    await using(framework, memory, async (post, calls) => {
      assert.deepEqual([(await post({ status: 402 }, { 'Idempotency-Key': 'k-2' })).status, calls.length], [402, 1]); // only recorded again
    });
  });

  test(`${framework}: behind a gate`, () => using(framework, new Memory(), async (post, calls) => {
    const headers = { ...KEY, 'Once-Claim': 'c'.repeat(70) };
    assert.deepEqual([(await post({}, headers)).text, (await post({}, headers)).text, calls.length], ['{"number":1}', '{"number":1}', 1]);
  }));

  test(`${framework}: what Node does not send`, async () => {
    const memory = new Memory();
    await using(framework, memory, async (post) => {
      assert.equal((await post({}, KEY, '/status')).status, 500);
      assert.equal((await post({}, { 'Idempotency-Key': 'k-2' })).status, 201);
      for (const { response } of memory.responses.values()) response.headers = '[["X-A", "a\\nb"]]'; // as another program may record it
      assert.equal((await post({}, { 'Idempotency-Key': 'k-2' })).status, 500);
    });
  });

  test(`${framework}: responses are bounded`, () => using(framework, new Memory(), async (post) => {
    if (framework === 'express') await post({}, KEY, '/large-pipeline').catch(() => {}); // which ends the connection when it fails
    for (const path of ['/large', '/large-stream']) {
      const answer = await post({}, { 'Idempotency-Key': path }, path);
      assert.equal(answer.status, 500, path);
      if (path === '/large' && framework !== 'nest') assert.match(answer.text, /larger than 16777216 bytes/);
    }
    assert.equal((await post({})).status, 201);
  }));

  test(`${framework}: streams`, () => using(framework, new Memory(), async (post) => {
    const [first, again] = [await post({}, KEY, '/stream'), await post({}, KEY, '/stream')];
    assert.deepEqual([first.text, again.text, again.headers.get('idempotent-replayed')], ['ab', 'ab', 'true']);
  }));

  test(`${framework}: bytes that nobody has kept`, () => using(framework, new Memory(), async (post) => {
    const answer = await post({});
    assert.equal(answer.status, 500);
    if (framework !== 'nest') assert.match(answer.text, /once needs the bytes of the body/); // Nest logs it
  }, { forgets: true }));
}

test('express: without a parser, JSON is read', () => using('express', new Memory(), async (post) => {
  assert.equal((await post({ status: 402 })).status, 402);
  assert.equal((await post({ status: 404 }, { ...KEY, 'Once-Claim': 'c'.repeat(70) })).status, 404); // also behind a gate
}, { parser: false }));

test('express: a handler that waits until it is sent', () => using('express', new Memory(), async (post) => {
  assert.deepEqual([(await post({}, KEY, '/pipeline')).text, (await post({}, KEY, '/pipeline')).text], ['ab', 'ab']);
}));

test('scopes', () => using('express', new Memory(), async (post, calls) => {
  await post({}, { ...KEY, 'X-User': 'a' });
  await post({}, { ...KEY, 'X-User': 'b' });
  assert.equal(calls.length, 2);
  assert.match((await post({})).text, /scope-missing/);
}, { scope: async (request) => request.get('X-User') }));

test('scopes that are no text would be the same for everybody', async () => {
  const run = (memory, scope) => once.run(memory, new once.Request('POST', '/', KEY, '{}'), { scope: () => scope }, () => ({}));
  for (const bad of [{ id: 1 }, ['a'], true, false, NaN, Symbol('a'), () => 'a']) {
    await assert.rejects(run(new Memory(), bad), { name: 'TypeError', message: /the scope has to be/ });
  }
  const memory = new Memory();
  for (const good of ['a', 7, 0, 12345678901234567890n]) assert.equal((await run(memory, good)).headers.at(-1)[0], 'Idempotency-Expires');
  assert.equal((await run(memory, '7')).headers.at(-1)[0], 'Idempotent-Replayed');
  for (const none of ['', null, undefined]) assert.equal((await run(memory, none)).status, 400);
});

test('checkpoints, derived keys and messages', async () => {
  const memory = new Memory(), request = new once.Request('POST', '/', KEY, '{}'), seen = [];
  const run = (fails) => once.run(memory, request, { scope: 't' }, async (op) => {
    seen.push([await op.resume(), await op.derive('charge'), await op.accept('ledger', 'm-1')]);
    if (fails) {
      await op.checkpoint('reserved', { id: 7 });
      throw new Error('fails');
    }
    return once.Response.of({ done: true }, 201);
  });
  await assert.rejects(run(true), /fails/);
  assert.equal((await run(false)).status, 201);
  assert.deepEqual(seen.map(([done]) => done), [undefined, { name: 'reserved', state: { id: 7 } }]);
  assert.equal(seen[0][1], seen[1][1]);
  assert.deepEqual([seen[0][2], seen[1][2]], [true, false]);
});

test('attributes of the active span', async () => {
  const storage = new AsyncLocalStorage();
  context.setGlobalContextManager({ active: () => storage.getStore() ?? ROOT_CONTEXT, with: (active, run, self, ...args) =>
    storage.run(active, () => run.apply(self, args)), bind: (_, target) => target, enable() { return this; }, disable() { return this; } });
  const seen = [], span = { setAttributes: (values) => seen.push(values) };
  const memory = new Memory(), request = new once.Request('POST', '/', KEY);
  const run = () => once.run(memory, request, { scope: 't' }, () => ({}));
  await context.with(trace.setSpan(ROOT_CONTEXT, span), async () => {
    await run();
    await run();
  });
  assert.deepEqual(seen, ['run', 'replay'].map((outcome) => ({ 'once.key': 'k-1', 'once.outcome': outcome, 'once.attempts': 1 })));
});

test('outside of a handler', async () => {
  const { idempotent } = await import('../src/index.js'); // ESM finds the names
  assert.equal(idempotent, once.idempotent);
  assert.throws(() => once.current(), /not wrapped/);
  assert.throws(() => once.bind({}), /no database that once knows/);
});
