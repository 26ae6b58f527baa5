// The npm packages `@nats-io/transport-node` and `@nats-io/jetstream`.
import { connect, headers } from "@nats-io/transport-node";
import { jetstream, jetstreamManager } from "@nats-io/jetstream";
import { cases } from "./cases.mjs";

await cases({
  connect, headers,
  jetstream: (client) => jetstream(client, { timeout: 60000 }),
  jetstreamManager: (client) => jetstreamManager(client, { timeout: 60000 }),
});
