// `once serve` (the program ONCE) over a local store, on a socket and on a port.
'use strict';
const assert = require('node:assert/strict');
const { spawn } = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const readline = require('node:readline');
const { after, before, test } = require('node:test');
const once = require('../src');

const place = fs.mkdtempSync(path.join(os.tmpdir(), 'once-node-'));
const socket = `unix:${place}/socket`, tokenFile = `${place}/token`, programs = [];
const options = { scope: 't', log: () => {} };
const never = () => assert.fail('ran');
let number = 0;
const make = (headers = {}) => new once.Request('POST', '/orders', { 'Idempotency-Key': `k-${++number}`, ...headers }, '{}');
const fails = (what) => { throw what; };

/** Gives the address at which it listens. */
async function start(...args) {
  const program = spawn(process.env.ONCE, ['serve', `local:${place}/store`, ...args], { stdio: ['ignore', 'pipe', 'inherit'] });
  programs.push(program);
  for await (const line of readline.createInterface({ input: program.stdout })) {
    const { message, address } = JSON.parse(line);
    if (message === 'listening') return address;
  }
  return assert.fail('it does not listen');
}

before(() => start('--listen', socket));
after(() => {
  for (const program of programs) program.kill('SIGKILL');
  fs.rmSync(place, { recursive: true });
});

test('once, with its response', async () => {
  const store = once.serve(socket), request = make();
  const first = await once.run(store, request, options, async (op) => {
    assert.match(await op.derive('charge'), /^d2-/);
    await assert.rejects(op.emit('a', 'b', 'c', {}), /emit needs a transaction/);
    assert.equal(op.connection, undefined);
    assert.equal((await once.run(store, request, options, never)).status, 409);
    return once.Response.of(Buffer.from([0, 255]), 201, [['X-A', 'é']]);
  });
  const again = await once.run(store, request, options, never);
  assert.deepEqual([first.status, again.status, again.body], [201, 201, Buffer.from([0, 255])]);
  assert.deepEqual(again.headers.at(-1), ['Idempotent-Replayed', 'true']);
  const other = new once.Request('POST', '/orders', request.headers, '{"other": 1}');
  assert.equal((await once.run(store, other, options, never)).status, 422);
});

test('a second request waits for the first', async () => {
  const store = once.serve(socket), request = make();
  let waiting;
  await once.run(store, request, options, async () => {
    waiting = once.run(store, request, { ...options, wait: true }, never);
    await new Promise((resolve) => { setTimeout(resolve, 100); });
    return { id: 1 };
  });
  assert.equal((await waiting).body.toString(), '{"id":1}');
});

test('what was done before an exception is not known, unless it says that nothing was', async () => {
  const store = once.serve(socket), request = make(), error = new RangeError('as asked');
  await assert.rejects(once.run(store, request, options, () => fails(error)), RangeError);
  assert.match((await once.run(store, request, options, never)).body.toString(), /outcome-unknown/);
  const free = make();
  await assert.rejects(once.run(store, free, options, () => fails(new once.NothingDone())), once.NothingDone);
  assert.equal((await once.run(store, free, options, () => ({}))).status, 200);
});

test('a claim of the gate is checked, and its record is left to the gate', async () => {
  const store = once.serve(socket), forged = make({ 'Once-Claim': 'A'.repeat(70) });
  assert.equal((await once.run(store, forged, options, never)).status, 503);
  const request = make();
  let behind;
  await once.run(store, request, options, async (op) => {
    behind = make({ 'Once-Claim': op.claim });
    assert.equal((await once.run(store, behind, options, () => once.Response.of({}, 202))).status, 202);
    return { number: 1 };
  });
  assert.equal((await once.run(store, request, options, never)).status, 200);
  const twin = await once.run(store, behind, options, never); // delivered twice
  assert.deepEqual([twin.status, twin.body.toString()], [200, '{"number":1}']);
  const doubted = make();
  await assert.rejects(once.run(store, doubted, options, (op) => {
    behind = make({ 'Once-Claim': op.claim });
    return fails(new RangeError('as asked'));
  }), RangeError);
  assert.equal((await once.run(store, behind, options, never)).status, 503); // no longer pending
});

test('a port, with a token', async () => {
  const address = await start('--listen', '127.0.0.1:0', '--token-file', tokenFile);
  const url = `http://${address.replace(/^http:\/\//, '')}`;
  const run = (token) => once.run(once.serve(url, { token }), make(), options, () => ({}));
  assert.equal((await run(fs.readFileSync(tokenFile, 'utf8').trim())).status, 200);
  await assert.rejects(run('another'), /once serve refuses claim: 401/);
});
