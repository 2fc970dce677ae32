// Sends the letters with franz-go, once per codec, and prints what it reads back; or only reads.
package main

import (
	"context"
	"log"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"waystation.test/compat/exchange"
)

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

func main() {
	bootstrap, prefix := os.Args[1], os.Args[2]
	letters := exchange.Read(os.Args[3])
	for _, codec := range exchange.Codecs {
		topic := prefix + "-" + codec
		if !exchange.ReadOnly() {
			create(bootstrap, topic)
			send(bootstrap, topic, codecs[codec], letters)
		}
		read(bootstrap, topic, len(letters))
	}
}

func client(bootstrap string, options ...kgo.Opt) *kgo.Client {
	client, err := kgo.NewClient(append(options, kgo.SeedBrokers(bootstrap))...)
	exchange.Must(err)
	return client
}

func create(bootstrap, topic string) {
	admin := kadm.NewClient(client(bootstrap))
	defer admin.Close()
	_, err := admin.CreateTopic(context.Background(), exchange.Partitions, 1, nil, topic)
	exchange.Must(err)
}

// Idempotent and acks=all by default.
func send(bootstrap, topic string, codec kgo.CompressionCodec, letters []exchange.Letter) {
	producer := client(bootstrap,
		kgo.ProducerBatchCompression(codec), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer producer.Close()
	records := make([]*kgo.Record, len(letters))
	for i, letter := range letters {
		records[i] = &kgo.Record{
			Topic: topic, Partition: letter.Partition, Timestamp: time.UnixMilli(letter.Timestamp),
			Key: letter.Key, Value: letter.Value,
		}
		for _, header := range letter.Headers {
			records[i].Headers = append(records[i].Headers, kgo.RecordHeader{Key: header.Name, Value: header.Value})
		}
	}
	exchange.Must(producer.ProduceSync(context.Background(), records...).FirstErr())
}

func read(bootstrap, topic string, count int) {
	consumer := client(bootstrap,
		kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer consumer.Close()
	for got := 0; got < count; {
		patience, cancel := context.WithTimeout(context.Background(), exchange.PatienceSeconds*time.Second)
		fetches := consumer.PollFetches(patience)
		cancel()
		if err := fetches.Err(); err != nil {
			log.Fatalf("%s ended after %d records: %v", topic, got, err)
		}
		got += fetches.NumRecords()
		fetches.EachRecord(show)
	}
}

func show(record *kgo.Record) {
	letter := exchange.Letter{
		Topic: record.Topic, Partition: record.Partition, Offset: record.Offset,
		Timestamp: record.Timestamp.UnixMilli(), Key: record.Key, Value: record.Value,
	}
	for _, header := range record.Headers {
		letter.Headers = append(letter.Headers, exchange.Header{Name: header.Key, Value: header.Value})
	}
	exchange.Print(letter)
}
