// `@Idempotent()` for NestJS on Express. What a handler returns becomes a response only when all interceptors and filters are done, so
// it is caught where Node would send it; if it cannot be recorded, the whole route runs again.
'use strict';
const { ConfigurableModuleBuilder, Inject, Injectable, Module, UseInterceptors } = require('@nestjs/common');
const { RESPONSE_PASSTHROUGH_METADATA, ROUTE_ARGS_METADATA } = require('@nestjs/common/constants');
const { RouteParamtypes } = require('@nestjs/common/enums/route-paramtypes.enum');
const { from, lastValueFrom } = require('rxjs');
const { run, running } = require('./operation');
const { Capture, requestOf } = require('./web');

const { ConfigurableModuleClass, MODULE_OPTIONS_TOKEN } = new ConfigurableModuleBuilder().setClassMethodName('forRoot')
  .setExtras({}, (definition) => ({ ...definition, global: true })).build();
const exchanges = new WeakMap(); // by response, for a route that runs again

/** `OnceModule.forRoot({ database, scope })`, or forRootAsync with a factory. */
class OnceModule extends ConfigurableModuleClass {}
Module({ exports: [MODULE_OPTIONS_TOKEN] })(OnceModule);

/** Whether Nest leaves the response to the handler: it has a parameter `@Res()` or `@Next()`, without passthrough. */
function sendsItself(context) {
  const of = (kind) => Reflect.getMetadata(kind, context.getClass(), context.getHandler().name);
  const kinds = Object.keys(of(ROUTE_ARGS_METADATA) ?? {}).map((name) => parseInt(name, 10));
  return kinds.some((kind) => kind === RouteParamtypes.RESPONSE || kind === RouteParamtypes.NEXT) && !of(RESPONSE_PASSTHROUGH_METADATA);
}

/** One request, over all runs of its route. */
class Exchange {
  constructor(context, { database, ...options }) {
    const [request, response, next] = context.getArgs();
    this.capture = new Capture(response);
    this.again = () => request.route.stack.at(-1).handle(request, response, next);
    const produce = (op) => new Promise((resolve, reject) => {
      this.capture.begin().then(resolve, reject);
      this.give({ op, reject });
    });
    const pass = (error) => {
      this.capture.release();
      return this.waiting ? this.give({ error }) : next(error);
    };
    requestOf(request).then((found) => run(database, found, options, produce)).then((sent) => {
      if (!this.waiting) return this.capture.send(sent);
      const ended = sendsItself(context) ? Promise.resolve() : this.capture.begin(); // instead of what Nest sends when the route ends
      this.give({});
      return ended.catch(() => {}).then(() => this.capture.send(sent));
    }).catch(pass).catch(() => response.destroy()); // some of it is out
  }

  /** The turn of the interceptor: of the one that waits for it, or of the next, in another run of the route. */
  give(turn) {
    const { waiting } = this;
    this.waiting = undefined;
    if (waiting) return waiting(turn);
    this.turn = turn;
    return this.again();
  }

  take() {
    const { turn } = this;
    this.turn = undefined;
    return turn ?? new Promise((resolve) => { this.waiting = resolve; });
  }

  async enter(handler) {
    for (;;) {
      const { op, reject, error: refused } = await this.take();
      if (refused) throw refused;
      if (!op) return undefined;
      try {
        return await running.run(op, () => lastValueFrom(handler.handle(), { defaultValue: undefined }));
      } catch (error) {
        if (!op.isOwn(error)) {
          await op.fail(error);
          throw error;
        }
        reject(error);
      }
    }
  }
}

/** Decorates a route, or all of a controller. `options` override those of the module. */
function Idempotent(options = {}) {
  class Interceptor {
    constructor(settings) {
      this.settings = { ...settings, ...options };
    }

    intercept(context, handler) {
      const [, response] = context.getArgs();
      const exchange = exchanges.get(response) ?? new Exchange(context, this.settings);
      exchanges.set(response, exchange);
      return from(exchange.enter(handler));
    }
  }
  Injectable()(Interceptor);
  Inject(MODULE_OPTIONS_TOKEN)(Interceptor, undefined, 0);
  return UseInterceptors(Interceptor);
}

module.exports = { Idempotent, OnceModule };
