// Two members of one group with kafkajs, which shares partitions out in one way only.
const { Kafka, logLevel } = require("kafkajs");

const PARTITIONS = 4;
const print = (object) => process.stdout.write(JSON.stringify(object) + "\n");

async function main([bootstrap, topic, groupId, assignor, count]) {
  if (assignor !== "roundrobin") throw new Error(`kafkajs has no assignor ${assignor}`);
  const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.NOTHING });
  const owned = { a: [], b: [] };
  let left = Number(count);
  let ready = false;
  let finish;
  const finished = new Promise((resolve) => (finish = resolve));
  const consumers = [];
  for (const member of ["a", "b"]) {
    const consumer = kafka.consumer({ groupId, heartbeatInterval: 200, sessionTimeout: 10000 });
    consumers.push(consumer);
    consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
      owned[member] = payload.memberAssignment[topic] || [];
      if (!ready && owned.a.length && owned.b.length && owned.a.length + owned.b.length === PARTITIONS) {
        ready = true;
        print({ ready });
      }
    });
    await consumer.connect();
    await consumer.subscribe({ topic, fromBeginning: true });
    await consumer.run({
      eachMessage: async ({ partition, message }) => {
        print({ member, partition, offset: Number(message.offset), value: message.value.toString() });
        if (--left === 0) finish();
      },
    });
  }
  await finished;
  await Promise.all(consumers.map((consumer) => consumer.disconnect())); // commits what was read
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
