// Buckets with the npm package `nats`.
import { connect } from "nats";
import { cases } from "./bucket_cases.mjs";

await cases({ connect, open: (client, name, options) => client.jetstream({ timeout: 60000 }).views.kv(name, options) });
