'use strict';

// What send.js and consume.js share: options from the command line, bodies, and answers as lines.

const { createHash } = require('crypto');
const { mkdirSync } = require('fs');

// ali-ons keeps consumer offsets and logs below the home directory.
mkdirSync(process.env.HOME, { recursive: true });

exports.options = JSON.parse(process.argv[2]);

exports.clientOptions = {
  nameSrv: exports.options.nameserver,
  // Asked for at start; only look-ups of name servers over HTTP would use it.
  httpclient: {},
  logger: { debug() {}, info() {}, warn: console.error, error: console.error },
};

// `prefix-index`, padded with dots up to `sizeBytes`: as in the Java and Python parts.
exports.body = (prefix, index, sizeBytes = 0) => Buffer.from(`${prefix}-${index}`.padEnd(sizeBytes, '.'));

exports.sha1 = (buffer) => createHash('sha1').update(buffer).digest('hex');

exports.print = (value) => new Promise((resolve) => process.stdout.write(`${JSON.stringify(value)}\n`, resolve));

exports.main = (run) => {
  // The parent holds our standard input open for as long as it lives.
  process.stdin.on('end', () => process.exit(2)).resume();
  run(exports.options)
    .then((result) => exports.print({ result }))
    .catch((error) => exports.print({ error: `${error.name}: ${error.message}` }))
    .finally(() => process.exit(0));
};
