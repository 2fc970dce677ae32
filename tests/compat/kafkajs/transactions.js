// Writes numbers with kafkajs in transactions, each aborted once before it is committed together with
// an offset, and prints what a reader of committed messages gets.
const { Kafka, logLevel } = require("kafkajs");

const COUNT = 20;
const AT_ONCE = 10;

async function write(kafka, prefix) {
  const producer = kafka.producer({ transactionalId: `${prefix}-id`, idempotent: true, maxInFlightRequests: 1 });
  await producer.connect();
  for (let first = 0; first < COUNT; first += AT_ONCE) {
    for (const commits of [false, true]) {
      const transaction = await producer.transaction();
      const numbers = Array.from({ length: AT_ONCE }, (_, index) => String(first + index));
      await transaction.send({ topic: `${prefix}-out`, messages: numbers.map((value) => ({ value, partition: 0 })) });
      const offset = commits ? String(first + AT_ONCE) : "0";
      const topics = [{ topic: `${prefix}-in`, partitions: [{ partition: 0, offset }] }];
      await transaction.sendOffsets({ consumerGroupId: `${prefix}-group`, topics });
      await (commits ? transaction.commit() : transaction.abort());
    }
  }
  await producer.disconnect();
}

async function read(kafka, prefix) {
  const consumer = kafka.consumer({ groupId: `${prefix}-reader`, readUncommitted: false });
  await consumer.connect();
  await consumer.subscribe({ topic: `${prefix}-out`, fromBeginning: true });
  let left = COUNT;
  let finish;
  const finished = new Promise((resolve) => (finish = resolve));
  await consumer.run({
    eachMessage: async ({ message }) => {
      process.stdout.write(`${message.value}\n`);
      if (--left === 0) finish();
    },
  });
  await finished;
  await consumer.disconnect();
}

async function main([bootstrap, prefix]) {
  const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.NOTHING });
  await write(kafka, prefix);
  await read(kafka, prefix);
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
