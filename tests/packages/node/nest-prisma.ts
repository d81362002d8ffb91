// NestJS with Prisma, whose client and types are generated.
import 'reflect-metadata';
import { Body, Controller, HttpCode, HttpException, Injectable, Module, Post, Res, StreamableFile } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { PrismaPg } from '@prisma/adapter-pg';
import * as once from 'once-idempotency';
import { Idempotent, OnceModule } from 'once-idempotency/nest';
import { Prisma, PrismaClient } from './client';
const business = require('./business');

@Injectable()
class Database extends PrismaClient {
  constructor() {
    super({ adapter: new PrismaPg({ connectionString: business.DATABASE }) });
  }
}

@Module({ providers: [Database], exports: [Database] })
class DatabaseModule {}

@Controller()
class Shop {
  constructor(private readonly database: Database) {}

  private readonly query = (text: string, values: unknown[]) => {
    const db: Prisma.TransactionClient = once.current<Prisma.TransactionClient>().connection ?? this.database;
    return db.$queryRawUnsafe(text, ...values);
  };

  @Post('payments')
  @Idempotent()
  async pay(@Body() asked: object, @Res({ passthrough: true }) response: any) {
    const refuse = (status: number) => { throw new HttpException('refused', status); };
    const { status, value, headers = {} } = await business.pay(this.query, once.current(), asked, refuse);
    response.status(status).set(headers);
    return Buffer.isBuffer(value) ? new StreamableFile(value) : value;
  }

  @Post('payouts')
  @Idempotent({ ttl: 3600 })
  async payOut(@Body() asked: object, @Res() response: any) {
    response.status(201).json(await business.payOut(this.query, once.current(), asked)); // Nest sends nothing itself
  }

  @Post('events')
  @HttpCode(200)
  async events(@Body() event: object) {
    return this.database.$transaction(async (tx) => ({ new: await once.bind(tx).accept('ledger', JSON.stringify(event)) }));
  }
}

@Module({
  imports: [
    DatabaseModule,
    OnceModule.forRootAsync({
      imports: [DatabaseModule],
      inject: [Database],
      useFactory: (database: Database) => ({ database: business.store ?? database, ...business.options }),
    }),
  ],
  controllers: [Shop],
})
class Application {}

async function main() {
  const app = await NestFactory.create(Application, { rawBody: true, logger: ['error'] });
  await app.listen(business.port, '127.0.0.1');
  business.announce(app.getHttpServer());
}

main();
