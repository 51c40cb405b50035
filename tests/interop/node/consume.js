'use strict';

// Consumes `topic` through ali-ons' push consumer until `count` distinct messages were seen or
// `timeoutMs` is over; prints {messages, deliveries}. With `stays` it remains a member until it is
// killed: closing commits nothing of what is finished meanwhile, so others would get it again.

const { Consumer } = require('ali-ons');
const { clientOptions, main, print, sha1 } = require('./common');

main(async (options) => {
  const consumer = new Consumer({
    ...clientOptions,
    consumerGroup: options.group,
    consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET',
    rebalanceInterval: 1000,
  });
  consumer.on('error', (error) => console.error(error));
  const messages = [];
  const seen = new Set();
  let deliveries = 0;
  await new Promise((resolve) => {
    setTimeout(resolve, options.timeoutMs || 60000);
    consumer.subscribe(options.topic, options.expression || '*', async (message) => {
      deliveries++;
      if (seen.has(message.msgId)) return;
      seen.add(message.msgId);
      messages.push({
        topic: message.topic,
        queueId: message.queueId,
        queueOffset: Number(message.queueOffset),
        msgId: message.msgId,
        tags: message.tags,
        keys: message.keys,
        bodySize: message.body.length,
        sha1: sha1(message.body),
      });
      if (seen.size >= options.count) resolve();
    });
  });
  if (options.stays) {
    await print({ result: { messages, deliveries } });
    await new Promise(() => {});
  }
  await consumer.close();
  return { messages, deliveries };
});
