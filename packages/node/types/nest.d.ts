import type { ConfigurableModuleAsyncOptions, DynamicModule } from '@nestjs/common';
import type { Database, Options } from './index';

export type OnceModuleOptions = Options & { database: Database };

/** Provides the database and the options of all routes with `@Idempotent()`. */
export class OnceModule {
  static forRoot(options: OnceModuleOptions): DynamicModule;
  static forRootAsync(options: ConfigurableModuleAsyncOptions<OnceModuleOptions>): DynamicModule;
}

/** Decorates a route, or all of a controller. `options` override those of the module. */
export function Idempotent(options?: Partial<Options>): MethodDecorator & ClassDecorator;
