// What a Node.js client gets, a line a case, for the test to compare. Arguments: URL, subject, subject in the stream, CA file.
const say = (name, ...found) => console.log([name, ...found].join(" "));
const text = (message) => new TextDecoder().decode(message.data);

async function take(messages, count) {
  const found = [];
  if (count === 0) return found;
  for await (const message of messages) {
    found.push(message);
    if (found.length === count) break;
  }
  return found;
}

export async function cases({ connect, headers, jetstream, jetstreamManager }) {
  const [url, subject, logged, ca] = process.argv.slice(2);
  const options = {
    servers: url, user: "ann", pass: "s3cret", tls: { caFile: ca },
    reconnectTimeWait: 50, maxReconnectAttempts: -1, reconnectJitter: 0, reconnectJitterTLS: 0,
  };
  try {
    await connect({ ...options, pass: "wrong", reconnect: false });
  } catch (error) {
    say("authentication", /authorization/i.test(`${error.code} ${error.message}`) ? "refused" : error);
  }
  const one = await connect(options), other = await connect(options);

  const all = other.subscribe(`${subject}.>`), some = other.subscribe(`${subject}.*.b`, { max: 1 });
  await other.flush();
  for (const name of ["a", "x.b", "y.b"]) one.publish(`${subject}.${name}`, name);
  say("publish", ...(await take(all, 3)).map(text));
  say("wildcard, at most one", ...(await take(some, 5)).map(text));

  let worked = 0;
  const workers = [one, other].map((client) =>
    client.subscribe(`${subject}-work`, { queue: "q", callback: () => { worked += 1; } }));
  await one.flush();
  await other.flush();
  for (let i = 0; i < 20; i++) one.publish(`${subject}-work`, `${i}`);
  await one.flush();
  await Promise.all(workers.map((each) => each.drain()));
  say("queue", worked);

  other.subscribe(`${subject}-service`, { callback: (_, message) => message.respond(`re: ${text(message)}`) });
  await other.flush();
  say("request", text(await one.request(`${subject}-service`, "ask", { timeout: 60000 })));
  await one.request(`${subject}-nobody`, "ask", { timeout: 60000 }).catch((error) =>
    say("no responders", error.code === "503" || /no responders/i.test(error.message) ? 503 : error));

  const kept = one.subscribe(`${subject}-headers`, { max: 1 });
  const set = headers();
  set.append("Color", "blue");
  set.append("Color", "red");
  one.publish(`${subject}-headers`, "x", { headers: set });
  say("headers", ...(await take(kept, 1))[0].headers.values("Color"));

  const stream = jetstream(one), manager = await jetstreamManager(one);
  const first = await stream.publish(logged, "a", { msgID: `${logged}-1` });
  const again = await stream.publish(logged, "b", { msgID: `${logged}-1` });
  await stream.publish(logged, "c", { msgID: `${logged}-2` });
  say("deduplication", first.duplicate ?? false, again.duplicate, again.seq === first.seq);
  const ordered = await stream.consumers.get("ORDERCAST", { filter_subjects: logged, filterSubjects: logged });
  say("ordered", ...(await take(await ordered.consume(), 2)).map(text));
  const { name } = await manager.consumers.add("ORDERCAST", { ack_policy: "explicit", filter_subject: logged });
  const pull = await stream.consumers.get("ORDERCAST", name);
  const pulled = await take(await pull.fetch({ max_messages: 2, expires: 60000 }), 2);
  for (const message of pulled) message.ack();
  say("pull", ...pulled.map(text));
  await manager.consumers.delete("ORDERCAST", name);

  const back = one.subscribe(`${subject}-back`, { max: 1 });
  await one.flush();
  (async () => {
    for await (const status of one.status()) if (status.type === "reconnect") one.publish(`${subject}-back`, "back");
  })();
  say("kill me");
  say("reconnect", ...(await take(back, 1)).map(text));
  await one.drain();
  await other.close();
  say("drain", one.isClosed());
  process.exit(0);
}
