// The npm package `nats`.
import { connect, headers } from "nats";
import { cases } from "./cases.mjs";

await cases({
  connect, headers,
  jetstream: (client) => client.jetstream({ timeout: 60000 }),
  jetstreamManager: (client) => client.jetstreamManager({ timeout: 60000 }),
});
