// Sends the letters with sarama, once per codec, and prints what it reads back; or only reads.
package main

import (
	"log"
	"os"
	"time"

	"github.com/IBM/sarama"

	"waystation.test/compat/exchange"
)

var codecs = map[string]sarama.CompressionCodec{
	"none":   sarama.CompressionNone,
	"gzip":   sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy,
	"lz4":    sarama.CompressionLZ4,
	"zstd":   sarama.CompressionZSTD,
}

func main() {
	bootstrap, prefix := []string{os.Args[1]}, os.Args[2]
	letters := exchange.Read(os.Args[3])
	for _, codec := range exchange.Codecs {
		topic := prefix + "-" + codec
		if !exchange.ReadOnly() {
			create(bootstrap, topic)
			send(bootstrap, topic, codecs[codec], letters)
		}
		read(bootstrap, topic, letters)
	}
}

func settings() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	return config
}

func create(bootstrap []string, topic string) {
	admin, err := sarama.NewClusterAdmin(bootstrap, settings())
	exchange.Must(err)
	defer admin.Close()
	detail := &sarama.TopicDetail{NumPartitions: exchange.Partitions, ReplicationFactor: 1}
	exchange.Must(admin.CreateTopic(topic, detail, false))
}

func send(bootstrap []string, topic string, codec sarama.CompressionCodec, letters []exchange.Letter) {
	config := settings()
	config.Producer.Compression = codec
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Producer.Idempotent = true
	config.Net.MaxOpenRequests = 1
	producer, err := sarama.NewSyncProducer(bootstrap, config)
	exchange.Must(err)
	defer producer.Close()
	messages := make([]*sarama.ProducerMessage, len(letters))
	for i, letter := range letters {
		messages[i] = message(topic, letter)
	}
	exchange.Must(producer.SendMessages(messages))
}

func message(topic string, letter exchange.Letter) *sarama.ProducerMessage {
	message := &sarama.ProducerMessage{
		Topic: topic, Partition: letter.Partition, Timestamp: time.UnixMilli(letter.Timestamp),
	}
	// A nil Encoder is a null; a ByteEncoder of nil would be one too, but not a nil interface.
	if letter.Key != nil {
		message.Key = sarama.ByteEncoder(letter.Key)
	}
	if letter.Value != nil {
		message.Value = sarama.ByteEncoder(letter.Value)
	}
	for _, header := range letter.Headers {
		message.Headers = append(message.Headers, sarama.RecordHeader{Key: []byte(header.Name), Value: header.Value})
	}
	return message
}

func read(bootstrap []string, topic string, letters []exchange.Letter) {
	consumer, err := sarama.NewConsumer(bootstrap, settings())
	exchange.Must(err)
	defer consumer.Close()
	count := make(map[int32]int)
	for _, letter := range letters {
		count[letter.Partition]++
	}
	for partition := int32(0); partition < exchange.Partitions; partition++ {
		readPartition(consumer, topic, partition, count[partition])
	}
}

func readPartition(consumer sarama.Consumer, topic string, partition int32, count int) {
	records, err := consumer.ConsumePartition(topic, partition, sarama.OffsetOldest)
	exchange.Must(err)
	defer records.Close()
	for got := 0; got < count; got++ {
		select {
		case record := <-records.Messages():
			show(record)
		case <-time.After(exchange.PatienceSeconds * time.Second):
			log.Fatalf("%s-%d ended after %d records", topic, partition, got)
		}
	}
}

func show(record *sarama.ConsumerMessage) {
	letter := exchange.Letter{
		Topic: record.Topic, Partition: record.Partition, Offset: record.Offset,
		Timestamp: record.Timestamp.UnixMilli(), Key: record.Key, Value: record.Value,
	}
	for _, header := range record.Headers {
		letter.Headers = append(letter.Headers, exchange.Header{Name: string(header.Key), Value: header.Value})
	}
	exchange.Print(letter)
}
