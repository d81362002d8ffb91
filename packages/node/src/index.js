// An operation takes effect exactly once: the effect and its record are one transaction of your PostgreSQL.
'use strict';
const { Answered, Request, Response } = require('./message');
const { NothingDone, bind, current, run } = require('./operation');
const { serve } = require('./serve');
const { fastify, idempotent, rawBody } = require('./web');

module.exports = { Answered, NothingDone, Request, Response, bind, current, fastify, idempotent, rawBody, run, serve };
