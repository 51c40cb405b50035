'use strict';

// Sends `count` numbered messages to `topic` through ali-ons, `inFlight` at a time, and prints
// [status, msgId, queueId, queueOffset] of each; what ali-ons calls msgId is the offset message id.

const { Message, Producer } = require('ali-ons');
const { body, clientOptions, main } = require('./common');

main(async (options) => {
  const producer = new Producer({
    ...clientOptions,
    producerGroup: options.group || 'ali-ons-producer',
  });
  // Errors of background work (a look-up of a topic that does not exist yet) are not this run's.
  producer.on('error', (error) => console.error(error));
  await producer.ready();
  const receipts = [];
  let next = options.first || 0;
  const end = next + options.count;
  const worker = async () => {
    while (next < end) {
      const index = next++;
      const content = body(options.prefix, index, options.bodySize);
      const message = new Message(options.topic, options.tag || null, content);
      if (options.keys) message.keys = [ `${options.prefix}-${index}` ];
      const result = await producer.send(message);
      const queueId = result.messageQueue && result.messageQueue.queueId;
      receipts.push([ result.sendStatus, result.msgId, Number(queueId), Number(result.queueOffset) ]);
    }
  };
  await Promise.all(Array.from({ length: options.inFlight || 64 }, worker));
  await producer.close();
  return receipts;
});
