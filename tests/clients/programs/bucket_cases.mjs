// What a Node.js client gets of a key-value bucket, a line a case, for the test to compare. Arguments: URL, bucket, CA file.
const say = (name, ...found) => console.log([name, ...found].join(" "));
const told = (entry) => `${entry.key}=${entry.operation === "PUT" ? entry.string() : entry.operation}`;
const code = (error) => error.api_error?.err_code ?? error.code ?? error;

async function all(messages) {
  const found = [];
  for await (const message of messages) found.push(message);
  return found;
}

async function take(messages, count) {
  const found = [];
  for await (const message of messages) {
    found.push(message);
    if (found.length === count) break;
  }
  return found;
}

export async function cases({ connect, open }) {
  const [url, bucket, ca] = process.argv.slice(2);
  const client = await connect({ servers: url, user: "ann", pass: "s3cret", tls: { caFile: ca } });
  const store = await open(client, bucket, { history: 5, description: "of tests" });

  say("nothing", `${await store.get("color")}`);
  const first = await store.put("color", "blue"), second = await store.put("color", "red");
  const got = await store.get("color");
  say("get", told(got), got.revision === second, second > first);
  say("get by revision", told(await store.get("color", { revision: first })));
  say("create", await store.create("made", "1") > second, await store.create("made", "2").catch(() => "refused"));
  say("update", await store.update("color", "green", first).catch(code), await store.update("color", "green", second) > second);
  await store.delete("made");
  say("deleted", (await store.get("made")).operation, await store.create("made", "again") > second);
  await store.put("a.b", "1");
  await store.purge("a.b");
  await store.put("x.y", "1");
  say("keys", (await all(await store.keys())).sort());
  say("keys of a pattern", await all(await store.keys("x.*")));
  say("history", (await all(await store.history({ key: "color" }))).map(told));
  say("purged", (await all(await store.history({ key: "a.b" }))).map(told));

  const watching = await store.watch();
  const present = await take(watching, 4);
  say("present", present.map(told).sort());
  const changes = await store.watch({ key: "x.>", include: "updates" });
  await store.put("color", "ignored");
  await store.put("x.z", "2");
  await store.delete("x.y");
  say("changes", (await take(changes, 2)).map(told));

  const large = await open(client, `${bucket}-large`, { maxValueSize: 10 });
  say("too large", await large.put("k", "0123456789a").catch(code));
  const status = await store.status();
  say("status", status.bucket === bucket, status.history, status.values, status.description);
  say("purge of markers", (await store.purgeDeletes(0)).success);
  say("opened again", told(await (await open(client, bucket, { history: 5 })).get("color")));
  say("destroyed", await store.destroy(), await large.destroy());
  await client.close();
  process.exit(0);
}
