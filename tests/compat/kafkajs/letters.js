// Sends the letters with kafkajs, once per codec, reads all of them back as a group of two members,
// and asks the admin API about both.
const fs = require("fs");
const assert = require("assert");
const { Kafka, CompressionTypes, CompressionCodecs, ConfigResourceTypes, logLevel } = require("kafkajs");
const snappy = require("kafkajs-snappy");
const lz4 = require("lz4-napi");
const zstd = require("@bokuweb/zstd-wasm");

const PARTITIONS = 2;
const CODECS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
};
CompressionCodecs[CompressionTypes.Snappy] = snappy;
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async (encoder) => lz4.compressFrame(encoder.buffer),
  decompress: async (buffer) => lz4.decompressFrame(buffer),
});
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async (encoder) => Buffer.from(zstd.compress(encoder.buffer)),
  decompress: async (buffer) => Buffer.from(zstd.decompress(buffer)),
});

const hex = (bytes) => (bytes === null ? null : bytes.toString("hex"));
const unhex = (text) => (text === null ? null : Buffer.from(text, "hex"));

const message = (letter) => ({
  partition: letter.partition,
  timestamp: String(letter.timestamp),
  key: unhex(letter.key),
  value: unhex(letter.value),
  headers: Object.fromEntries(letter.headers.map(([name, value]) => [name, unhex(value)])),
});

async function administer(admin, topic, letters) {
  const counts = await admin.fetchTopicOffsets(topic);
  for (const { partition, low, offset } of counts) {
    const sent = letters.filter((letter) => letter.partition === partition).length;
    assert.deepStrictEqual([low, offset], ["0", String(sent)], `offsets of ${topic}-${partition}`);
  }
  const timely = await admin.fetchTopicOffsetsByTimestamp(topic, letters[4].timestamp);
  assert.strictEqual(timely.find((found) => found.partition === 0).offset, "2", "offset by timestamp");
  const { topics } = await admin.fetchTopicMetadata({ topics: [topic] });
  assert.strictEqual(topics[0].partitions.length, PARTITIONS);
  const described = await admin.describeConfigs({
    includeSynonyms: false,
    resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configNames: ["retention.ms"] }],
  });
  assert.strictEqual(described.resources[0].configEntries[0].configValue, "86400000");
}

// What a group read may come twice, after a rebalance; it is told once.
function teller(wanted) {
  const told = new Set();
  let enough;
  const all = new Promise((resolve) => { enough = resolve; });
  const eachMessage = async ({ topic, partition, message }) => {
    const { offset, timestamp, key, value, headers } = message;
    const place = `${topic}-${partition}-${offset}`;
    if (told.has(place)) return;
    told.add(place);
    console.log(JSON.stringify({
      topic, partition, offset: Number(offset), timestamp: Number(timestamp),
      key: hex(key), value: hex(value),
      headers: Object.entries(headers).map(([name, held]) => [name, hex(held)]),
    }));
    if (told.size === wanted) enough();
  };
  return { all, eachMessage };
}

async function readInGroup(kafka, admin, prefix, letters) {
  const topics = Object.keys(CODECS).map((codec) => `${prefix}-${codec}`);
  const groupId = `${prefix}-group`;
  const { all, eachMessage } = teller(topics.length * letters.length);
  const members = [1, 2].map(() => kafka.consumer({ groupId, heartbeatInterval: 500 }));
  await Promise.all(members.map(async (member) => {
    await member.connect();
    await member.subscribe({ topics, fromBeginning: true });
    await member.run({ eachMessage });
  }));
  await all;
  const { groups: [group] } = await admin.describeGroups([groupId]);
  assert.deepStrictEqual([group.state, group.members.length], ["Stable", 2]);
  await Promise.all(members.map((member) => member.disconnect()));
  for (const { topic, partitions } of await admin.fetchOffsets({ groupId, topics })) {
    for (const { partition, offset } of partitions) {
      const sent = letters.filter((letter) => letter.partition === partition).length;
      assert.strictEqual(offset, String(sent), `what the group committed of ${topic}-${partition}`);
    }
  }
  await admin.resetOffsets({ groupId, topic: topics[0], earliest: true });
  const { groups } = await admin.listGroups();
  assert(groups.some((found) => found.groupId === groupId), "the group is not listed");
  await admin.deleteGroups([groupId]);
}

async function main([bootstrap, prefix, path, only]) {
  await zstd.init();
  const lines = fs.readFileSync(path, "utf8").trim().split("\n");
  const letters = lines.map((line) => JSON.parse(line));
  const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.ERROR, retry: { retries: 2 } });
  const admin = kafka.admin();
  if (only === "read") {
    await admin.connect();
    await readInGroup(kafka, admin, prefix, letters);
    await admin.disconnect();
    return;
  }
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 });
  await Promise.all([admin.connect(), producer.connect()]);
  const configEntries = [{ name: "retention.ms", value: "86400000" }];
  for (const [codec, compression] of Object.entries(CODECS)) {
    const topic = `${prefix}-${codec}`;
    await admin.createTopics({ topics: [{ topic, numPartitions: PARTITIONS, configEntries }] });
    await producer.send({ topic, compression, acks: -1, messages: letters.map(message) });
    await administer(admin, topic, letters);
  }
  await readInGroup(kafka, admin, prefix, letters);
  const spare = `${prefix}-spare`;
  await admin.createTopics({ topics: [{ topic: spare }] });
  await admin.createPartitions({ topicPartitions: [{ topic: spare, count: 5 }] });
  await admin.deleteTopics({ topics: [spare] });
  while ((await admin.listTopics()).includes(spare)); // brokers may learn of it a moment later; the harness bounds the wait
  assert.strictEqual((await admin.describeCluster()).brokers.length, 1);
  await Promise.all([admin.disconnect(), producer.disconnect()]);
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
