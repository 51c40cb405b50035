'use strict';

// Does with the official client what lines of JSON on standard input say; see programs.py.

const readline = require('readline');
const { Producer, PushConsumer, SimpleConsumer, ConsumeResult, FilterExpression } = require('rocketmq-client-nodejs');

const PATIENCE_MS = 300000;
const AWAIT_MS = 5000;
const COMMIT = 1;
const ROLLBACK = 2;

const held = {};
const quiet = { debug() {}, info() {}, warn: console.error, error: console.error };
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

const common = (job) => ({
  endpoints: job.endpoint,
  namespace: '',
  sslEnabled: job.tls,
  sessionCredentials: job.accessKey ? { accessKey: job.accessKey, accessSecret: job.secretKey } : undefined,
  logger: quiet,
});

async function producer(job, checker) {
  const made = new Producer({ ...common(job), topic: job.topic, checker });
  await made.startup();
  return made;
}

async function consumer(job) {
  const made = new SimpleConsumer({
    ...common(job),
    consumerGroup: job.group,
    subscriptions: new Map([[job.topic, FilterExpression.SUB_ALL]]),
    awaitDuration: AWAIT_MS,
  });
  await made.startup();
  return made;
}

const message = (job, body, more = {}) => ({ topic: job.topic, body: Buffer.from(body), ...more });

const described = (view) => ({
  body: view.body.toString(),
  tag: view.tag || '',
  keys: view.keys || [],
  properties: Object.fromEntries(view.properties || []),
  group: view.messageGroup || '',
  attempt: view.deliveryAttempt,
});

async function take(receiver, count) {
  const taken = [];
  const deadline = Date.now() + PATIENCE_MS;
  while (taken.length < count) {
    if (Date.now() > deadline) throw new Error(`only ${JSON.stringify(taken)}`);
    for (const view of await receiver.receive(16, 15000)) {
      taken.push(described(view));
      await receiver.ack(view);
    }
  }
  return taken;
}

async function takeOne(receiver, invisibleMs) {
  const deadline = Date.now() + PATIENCE_MS;
  while (Date.now() < deadline) {
    const [view] = await receiver.receive(1, invisibleMs);
    if (view) return view;
  }
  throw new Error('nothing came');
}

const operations = {
  async send(job) {
    const sender = await producer(job);
    for (let i = 0; i < job.count; i++) {
      await sender.send(
        message(job, `normal-${i}`, { tag: 'a', keys: ['k1', 'k2'], properties: new Map([['colour', 'red']]) }),
      );
    }
    await sender.shutdown();
    return [];
  },

  async receive(job) {
    const receiver = await consumer(job);
    const taken = await take(receiver, job.count);
    await receiver.shutdown();
    return taken;
  },

  async normal(job) {
    await operations.send(job);
    return operations.receive(job);
  },

  async fifo(job) {
    const sender = await producer(job);
    const receiver = await consumer(job);
    for (let i = 0; i < job.count; i++) {
      await sender.send(message(job, `fifo-${i}`, { messageGroup: 'one' }));
    }
    const taken = await take(receiver, job.count);
    await Promise.all([sender.shutdown(), receiver.shutdown()]);
    return taken;
  },

  async delay(job) {
    const sender = await producer(job);
    const receiver = await consumer(job);
    const due = Date.now() + 2000;
    const recalled = await sender.send(message(job, 'recalled', { deliveryTimestamp: new Date(due) }));
    await sender.recallMessage(job.topic, recalled.recallHandle);
    await sender.send(message(job, 'delayed', { deliveryTimestamp: new Date(due + 1000) }));
    const messages = await take(receiver, 1);
    const lateMs = Date.now() - due - 1000;
    await Promise.all([sender.shutdown(), receiver.shutdown()]);
    return { messages, lateMs };
  },

  async transaction(job) {
    const asked = [];
    const checker = {
      async check(view) {
        asked.push(view.body.toString());
        return view.body.toString() === 'rolled-back' ? ROLLBACK : COMMIT;
      },
    };
    const sender = await producer(job, checker);
    const receiver = await consumer(job);
    for (const fate of ['rolled-back', 'committed', 'lost']) {
      const transaction = sender.beginTransaction();
      await sender.send(message(job, fate), transaction);
      if (fate === 'committed') await transaction.commit();
      if (fate === 'rolled-back') await transaction.rollback();
    }
    const messages = [];
    while (!messages.some((one) => one.body === 'lost')) messages.push(...(await take(receiver, 1)));
    await Promise.all([sender.shutdown(), receiver.shutdown()]);
    return { messages, asked };
  },

  async push(job) {
    const attempts = [];
    let enough;
    const isEnough = new Promise((resolve) => { enough = resolve; });
    held.push = new PushConsumer({
      ...common(job),
      consumerGroup: job.group,
      subscriptions: new Map([[job.topic, FilterExpression.SUB_ALL]]),
      messageListener: {
        async consume(view) {
          attempts.push(view.deliveryAttempt);
          if (attempts.length >= job.count) enough();
          return ConsumeResult.FAILURE;
        },
      },
    });
    await held.push.startup();
    const sender = await producer(job);
    await sender.send(message(job, 'poison'));
    await sender.shutdown();
    await Promise.race([isEnough, sleep(PATIENCE_MS)]);
    return [...attempts];
  },

  async invisible(job) {
    const sender = await producer(job);
    const receiver = await consumer(job);
    await sender.send(message(job, 'again'));
    const first = await takeOne(receiver, 60000);
    await receiver.changeInvisibleDuration(first, 1000);
    const second = await takeOne(receiver, 60000);
    await receiver.ack(second);
    await Promise.all([sender.shutdown(), receiver.shutdown()]);
    return [described(first), described(second)];
  },

  async hold(job) {
    held.producer = await producer(job);
    held.consumer = await consumer(job);
    await held.producer.send(message(job, 'before'));
    return take(held.consumer, 1);
  },

  async resume(job) {
    const deadline = Date.now() + PATIENCE_MS;
    for (;;) {
      try {
        await held.producer.send(message(job, 'after'));
        return await take(held.consumer, 1);
      } catch (error) {
        if (Date.now() > deadline) throw error;
        await sleep(200);
      }
    }
  },
};

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const job = JSON.parse(line);
    let answer;
    try {
      answer = { result: await operations[job.op](job) };
    } catch (error) {
      console.error(error);
      answer = { error: `${error.name}: ${error.message}` };
    }
    process.stdout.write(`${JSON.stringify(answer)}\n`);
  }
  process.exit(0);
}

main();
