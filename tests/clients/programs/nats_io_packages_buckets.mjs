// Buckets with the npm packages `@nats-io/transport-node`, `@nats-io/jetstream` and `@nats-io/kv`.
import { connect } from "@nats-io/transport-node";
import { jetstream } from "@nats-io/jetstream";
import { Kvm } from "@nats-io/kv";
import { cases } from "./bucket_cases.mjs";

await cases({
  connect,
  open: (client, name, options) => new Kvm(jetstream(client, { timeout: 60000 })).create(name, options),
});
