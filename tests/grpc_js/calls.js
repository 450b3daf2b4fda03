// The same client as tests/support/grpc_calls.py, with gRPC's library for Node.
'use strict';

const grpc = require('@grpc/grpc-js');
require('@grpc/grpc-js-xds').register();

const LONGEST = 120_000;
const PAUSE = 20;
const PATIENCE = 20_000;

const client = new grpc.Client(process.argv[2], grpc.credentials.createInsecure());
const end = Date.now() + LONGEST;

const asItIs = (bytes) => bytes;

function call() {
  if (Date.now() > end) {
    client.close();
    return;
  }
  const deadline = Date.now() + PATIENCE;
  client.makeUnaryRequest('/koguma.test.Names/Name', asItIs, asItIs, Buffer.alloc(0), { deadline }, (error, answer) => {
    if (error) console.log(JSON.stringify(error.details));
    console.log(`= ${error ? grpc.status[error.code] : answer.toString()}`);
    setTimeout(call, PAUSE);
  });
}

call();
