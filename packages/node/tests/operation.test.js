// `once.run` with every driver, on a real PostgreSQL (ONCE_PG_URL); Prisma's client is generated in ONCE_PLACE.
'use strict';
const assert = require('node:assert/strict');
const path = require('node:path');
const { after, before, test } = require('node:test');
const { PrismaPg } = require('@prisma/adapter-pg');
const knex = require('knex');
const { Pool } = require('pg');
const once = require('../src');

const { PrismaClient } = require(path.join(process.env.ONCE_PLACE, 'client'));
const connectionString = process.env.ONCE_PG_URL.replace('@/', '@localhost/');
const pool = new Pool({ connectionString });
pool.on('error', () => {});
const databases = { pg: pool, knex: knex({ client: 'pg', connection: connectionString }),
  prisma: new PrismaClient({ adapter: new PrismaPg({ connectionString }) }) };
const insert = { // into the caller's own table, as each of them does
  pg: (client, name) => client.query('INSERT INTO effects VALUES ($1)', [name]),
  knex: (trx, name) => trx('effects').insert({ name }),
  prisma: (tx, name) => tx.$executeRaw`INSERT INTO effects VALUES (${name})`,
};
let number = 0;
const make = (key = `unit-${++number}`, headers = {}) => new once.Request('POST', '/orders', { 'Idempotency-Key': key, ...headers }, '{}');
const options = { scope: 't', log: () => {} };
const rows = async (text, ...values) => (await pool.query(text, values)).rows;
const count = async (name) => Number((await rows('SELECT count(*) FROM effects WHERE name = $1', name))[0].count);
const never = () => assert.fail('ran');

before(() => rows('CREATE TABLE effects (name text)'));
after(async () => {
  await databases.knex.destroy();
  await databases.prisma.$disconnect();
  await pool.end();
});

for (const [driver, database] of Object.entries(databases)) {
  test(`${driver}: once`, async () => {
    const request = make();
    const first = await once.run(database, request, options, async (op) => {
      await insert[driver](op.connection, request.key);
      assert.match(await op.derive('charge'), /^d2-/);
      await op.lock('order:1');
      await op.emit('orders', request.key, 'placed', { n: 'é' }, { a: 'b' });
      await op.checkpoint('done', { a: 1 });
      assert.deepEqual(await op.resume(), { name: 'done', state: { a: 1 } });
      return once.Response.of(Buffer.from([0, 255]), 201, [['X-A', '1']]);
    });
    const again = await once.run(database, request, options, never);
    assert.deepEqual([again.status, again.body], [first.status, Buffer.from([0, 255])]);
    assert.deepEqual(again.headers.map(([name, value]) => (name === 'Idempotency-Expires' ? name : `${name}: ${value}`)),
      ['X-A: 1', 'Idempotency-Expires', 'Idempotent-Replayed: true']);
    assert.equal(await count(request.key), 1);
    const [event] = await rows('SELECT payload, headers FROM once.outbox WHERE key = $1', request.key);
    assert.deepEqual([event.payload.toString(), event.headers], ['{"n":"é"}', { a: 'b' }]);
  });

  test(`${driver}: an exception undoes everything, and frees the key`, async () => {
    const request = make();
    const run = (then) => once.run(database, request, options, async (op) => {
      await insert[driver](op.connection, request.key);
      return then(op);
    });
    await assert.rejects(run(() => { throw new RangeError('as asked'); }), RangeError);
    assert.equal(await count(request.key), 0);
    await assert.rejects(run(async (op) => {
      await op.checkpoint('reserved');
      throw new RangeError('as asked');
    }), RangeError);
    await run(async (op) => ({ after: await op.resume() })); // at once, behind the checkpoint
    assert.equal(await count(request.key), 2);
  });

  test(`${driver}: a failed statement that the handler ignores`, async () => {
    const request = make();
    const run = (status) => once.run(database, request, options, async (op) => {
      await insert[driver](op.connection, request.key);
      await Promise.resolve(insert[driver](op.connection, 'a\0b')).catch(() => {});
      return once.Response.of({ sorry: true }, status);
    });
    await assert.rejects(run(201), /the answer is 201, but a statement had failed/); // success would be a lie
    assert.equal((await run(409)).status, 409); // a refusal is none
    assert.equal(await count(request.key), 0);
    assert.equal((await once.run(database, request, options, never)).status, 409);
  });

  if (driver !== 'prisma') { // which does not say what became of COMMIT
    test(`${driver}: a failed statement that nobody waited for`, async () => {
      const request = make();
      await assert.rejects(once.run(database, request, options, async (op) => {
        await insert[driver](op.connection, request.key);
        const { client } = op.transport, { query } = client;
        client.query = (...args) => { // behind the last statement, before COMMIT
          const asked = query.apply(client, args);
          if (/once\.complete/.test(args[0].text ?? args[0])) {
            delete client.query;
            client.query('SELECT 1/0').catch(() => {});
          }
          return asked;
        };
        return once.Response.of({}, 201);
      }), /the answer is 201, but a statement had failed/);
      assert.equal(await count(request.key), 0);
      assert.equal((await once.run(database, request, options, () => ({}))).headers.at(-1)[0], 'Idempotency-Expires'); // the key is free
    });
  }

  const conflict = "DO $$ BEGIN ASSERT current_setting('transaction_isolation') = 'serializable'; " +
    "RAISE EXCEPTION 'conflict' USING ERRCODE = '40P01'; END $$";
  for (const [what, statement] of [['conflicts', conflict], ['lost connections', 'SELECT pg_terminate_backend(pg_backend_pid())']]) {
    for (const steps of [false, true]) {
      test(`${driver}: ${what} are repeated${steps ? ' behind the checkpoint' : ''}`, async () => {
        const request = make(), level = driver === 'prisma' ? 'Serializable' : 'serializable';
        let runs = 0;
        await once.run(database, request, { ...options, transaction: { isolationLevel: level } }, async (op) => {
          if (!await op.resume()) {
            await insert[driver](op.connection, request.key);
            if (steps) await op.checkpoint('inserted');
          }
          if (++runs < 3) {
            const { connection } = op;
            await (connection.$queryRawUnsafe?.(statement) ?? connection.raw?.(statement) ?? connection.query(statement));
          }
          return {};
        });
        assert.deepEqual([runs, await count(request.key)], [3, 1]);
      });
    }
  }
}

const joins = {
  async pg(within) {
    const client = await pool.connect();
    try {
      await client.query('BEGIN');
      await within(client);
      await client.query('COMMIT');
    } catch (error) {
      await client.query('ROLLBACK');
      throw error;
    } finally {
      client.release();
    }
  },
  knex: (within) => databases.knex.transaction(within),
  prisma: (within) => databases.prisma.$transaction(within),
};
for (const [driver, join] of Object.entries(joins)) {
  test(`${driver}: in a transaction of the caller's, the caller's COMMIT decides`, async () => {
    const request = make();
    const run = (connection) => once.run(connection, request, options, async () => {
      await insert[driver](connection, request.key);
      return {};
    });
    await assert.rejects(join(async (connection) => {
      await run(connection);
      throw new RangeError('as asked');
    }), RangeError);
    assert.equal(await count(request.key), 0);
    await join(async (connection) => {
      await assert.rejects(once.run(connection, make(), options, (op) => op.checkpoint('a')), /transaction of its own/);
      await run(connection); // what failed is undone, and nothing else
      assert.equal((await run(connection)).headers.at(-1)[0], 'Idempotent-Replayed');
    });
    assert.equal(await count(request.key), 1);
  });
}

test('an exception after a conflict after a checkpoint frees the key', async () => {
  const request = make();
  let runs = 0;
  await assert.rejects(once.run(pool, request, options, async (op) => {
    if (++runs > 1) throw new RangeError('as asked');
    await op.checkpoint('reserved');
    throw Object.assign(new Error('conflict'), { code: '40001' });
  }), RangeError);
  assert.equal((await once.run(pool, request, options, (op) => op.resume())).body.toString(), '{"name":"reserved","state":null}');
});

test('prisma: a handler that takes longer than its transaction is not repeated', async () => {
  let runs = 0;
  await assert.rejects(once.run(databases.prisma, make(), { ...options, transaction: { timeout: 100 } }, async () => {
    runs++;
    await new Promise((resolve) => { setTimeout(resolve, 300); });
    return {};
  }), { code: 'P2028' });
  assert.equal(runs, 1);
});

test('busy, and waiting for the one that is at work', async () => {
  const request = make();
  let waiting;
  await once.run(pool, request, options, async () => {
    const busy = await once.run(pool, request, options, never);
    assert.deepEqual([busy.status, JSON.parse(busy.body.toString()).retryable], [409, true]);
    waiting = once.run(pool, request, { ...options, wait: true }, never);
    for (let tries = 0; tries < 600; tries++) {
      if ((await rows("SELECT FROM pg_locks WHERE NOT granted AND locktype = 'advisory'")).length) break;
      await new Promise((resolve) => { setTimeout(resolve, 20); });
    }
    return { id: 1 };
  });
  assert.equal((await waiting).body.toString(), '{"id":1}');
});

test('a claim of the gate that was taken over', async () => {
  const { key } = make();
  const [{ claim }] = await rows("SELECT claim FROM once.claim('t', $1, 'POST', '/orders', '{}'::text)", key);
  await rows('SELECT once.release($1)', claim);
  assert.equal((await once.run(pool, make(key, { 'Once-Claim': claim }), options, never)).status, 503);
});

test('an erased record', async () => {
  const request = make();
  let claim;
  await once.run(pool, request, options, (op) => ({ name: 'José', claim: ({ claim } = op) && 1 }));
  await rows('SELECT once.erase($1)', claim);
  const answer = await once.run(pool, request, options, never);
  assert.deepEqual([answer.status, answer.body.length], [200, 0]);
  assert.deepEqual(answer.headers.find(([name]) => name === 'Once-Body'), ['Once-Body', 'erased']);
});

test('nobody there', async () => {
  const nowhere = new Pool({ host: '127.0.0.1', port: 1 });
  const answer = await once.run(nowhere, make(), options, never);
  assert.deepEqual([answer.status, answer.headers.at(-1)], [503, ['Retry-After', '1']]);
  assert.equal((await once.run(once.serve('unix:/nowhere/once.sock', { patience: 0 }), make(), options, never)).status, 503);
});
