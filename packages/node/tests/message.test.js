// Keys and errors: what the gate says, the package says in the same words.
'use strict';
const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const { test } = require('node:test');
const { Answered, PROBLEMS, Request, Response, headerText, parseKey, toBytes } = require('../src/message');

const KEYS = [['k', 'k'], [' "k" ', 'k'], ['"a\\"b\\\\c"', 'a"b\\c'], ['"a, b"', 'a, b'], ['a b', 'a b'], ['k'.repeat(255), 'k'.repeat(255)]];
const WRONG = { '': 'is empty', '""': 'is empty', 'a,b': 'has a comma', '"a': 'closing quote is missing', '"a\\': 'escapes nothing',
  '"a"b': 'text after', '"a", "b"': 'several keys', '"a";v': 'has parameters', 'é': 'not ASCII', 'a\x01': 'control character',
  '"\x7f"': 'control character', ['k'.repeat(256)]: 'longer than 255' };

function detailOf(value) {
  try {
    parseKey([value]);
  } catch (error) {
    assert.ok(error instanceof Answered && error.response.status === 400);
    return JSON.parse(error.response.body.toString()).detail;
  }
  return assert.fail(`${value} is a key`);
}

test('keys', () => {
  for (const [value, key] of KEYS) assert.equal(parseKey([value]), key);
  for (const [value, words] of Object.entries(WRONG)) assert.match(detailOf(value), new RegExp(words));
  assert.throws(() => parseKey(['a', 'a']), /400/);
  assert.throws(() => parseKey([]), /400/);
});

test('every text is in the table of the gate, or in its rules for keys', () => {
  const texts = (...name) => fs.readFileSync(path.join(__dirname, '..', '..', '..', ...name), 'utf8').replace(/(?<!\\)"\s*"/g, '');
  const gate = texts('nginx', 'ngx_http_once_problem.c'), rules = texts('lib', 'core', 'key.c');
  const names = { 400: 'NGX_HTTP_BAD_REQUEST', 409: 'NGX_HTTP_CONFLICT', 503: 'NGX_HTTP_SERVICE_UNAVAILABLE' };
  for (const [name, [status, retryable, kind, title, detail]] of Object.entries(PROBLEMS)) {
    const at = gate.indexOf(`{ ${names[status] ?? status}, ${Number(retryable)}, ngx_string("${name}")`);
    assert.ok(at >= 0, name);
    for (const text of [kind, title]) assert.ok(gate.slice(at, at + 400).includes(`ngx_string("${text}")`), text);
    for (const part of detail.split(' in the header Idempotency-Key')) assert.ok(gate.includes(part), part);
  }
  for (const value of Object.keys(WRONG)) {
    const detail = detailOf(value).replaceAll('\\', '\\\\').replaceAll('"', '\\"').replace('255', '%d');
    assert.ok(rules.includes(detail), detail);
  }
});

test('requests', () => {
  const request = new Request('POST', '/a?b=1', { 'IDEMPOTENCY-KEY': 'k', 'Once-Claim': 'x'.repeat(70) }, { n: 1n });
  assert.deepEqual([request.key, request.claim, request.body.toString()], ['k', 'x'.repeat(70), '{"n":"1"}']);
  assert.throws(() => new Request('POST', '/', { 'Once-Claim': 'made up' }).claim, Answered);
  const message = { method: 'POST', rawHeaders: ['Idempotency-Key', 'a', 'idempotency-key', 'b'] };
  assert.throws(() => Request.of(message, '/', '').key, (error) => /sent 2 times/.test(error.response.body.toString()));
});

test('what is recorded', () => {
  const response = new Response(200, [['Date', 'now'], ['Set-Cookie', 'a=1'], ['X-A', 'caf\u00c3\u00a9'], ['Content-Length', '3']]);
  assert.deepEqual(response.recordedHeaders, [['X-A', 'café']]);
  assert.deepEqual([headerText('é'), headerText('a')], ['é', 'a']);
  const isFinal = (status) => new Response(status).isFinal;
  assert.ok([200, 204, 302, 400, 402, 404, 409, 422].every(isFinal));
  assert.ok(![401, 403, 407, 408, 421, 425, 429, 500, 503].some(isFinal));
});

test('bytes', () => {
  assert.deepEqual(toBytes(new Uint8Array([0, 255])), Buffer.from([0, 255]));
  assert.equal(toBytes({ a: 'é\\', b: undefined }).toString(), '{"a":"é\\\\"}');
  assert.equal(toBytes(undefined).toString(), 'null');
});
