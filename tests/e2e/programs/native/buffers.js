// SPDX-License-Identifier: Apache-2.0
// Buffers of one size, two in three of which are kept. Speaks as golden.py does: own is what node says its buffers hold.
'use strict';
require('v8').setFlagsFromString('--expose-gc');
const gc = require('vm').runInNewContext('gc');
const SIZE = 50021; // nobody else asks for that
const kept = [];

function tell() {
  console.log(JSON.stringify({own: [process.memoryUsage().arrayBuffers, kept.length]}));
}

console.log('ready');
tell();
process.stdin.on('data', () => {
  for (let i = 0; i < 600; i++) {
    const buffer = Buffer.alloc(SIZE, i & 255);
    if (i % 3) kept.push(buffer);
  }
  gc();
  setTimeout(() => { gc(); tell(); }, 50);
});
process.stdin.on('end', () => process.exit(0));
