// Writes numbers with sarama in transactions, each aborted once before it is committed together with
// an offset, and prints what a reader of committed records gets.
package main

import (
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"github.com/IBM/sarama"

	"waystation.test/compat/exchange"
)

const (
	count  = 20
	atOnce = 10
)

func main() {
	bootstrap, prefix := []string{os.Args[1]}, os.Args[2]
	write(bootstrap, prefix)
	read(bootstrap, prefix+"-out")
}

func settings() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	return config
}

func write(bootstrap []string, prefix string) {
	config := settings()
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Producer.Transaction.ID = prefix + "-id"
	config.Net.MaxOpenRequests = 1
	producer, err := sarama.NewSyncProducer(bootstrap, config)
	exchange.Must(err)
	defer producer.Close()
	for first := 0; first < count; first += atOnce {
		attempt(producer, prefix, first, 0)
		exchange.Must(producer.AbortTxn())
		attempt(producer, prefix, first, int64(first+atOnce))
		exchange.Must(producer.CommitTxn())
	}
}

func attempt(producer sarama.SyncProducer, prefix string, first int, offset int64) {
	exchange.Must(producer.BeginTxn())
	for n := first; n < first+atOnce; n++ {
		message := &sarama.ProducerMessage{Topic: prefix + "-out", Value: sarama.StringEncoder(strconv.Itoa(n))}
		_, _, err := producer.SendMessage(message)
		exchange.Must(err)
	}
	position := &sarama.PartitionOffsetMetadata{Partition: 0, Offset: offset}
	offsets := map[string][]*sarama.PartitionOffsetMetadata{prefix + "-in": {position}}
	exchange.Must(producer.AddOffsetsToTxn(offsets, prefix+"-group"))
}

func read(bootstrap []string, topic string) {
	config := settings()
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	consumer, err := sarama.NewConsumer(bootstrap, config)
	exchange.Must(err)
	defer consumer.Close()
	records, err := consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
	exchange.Must(err)
	defer records.Close()
	for got := 0; got < count; got++ {
		select {
		case record := <-records.Messages():
			fmt.Println(string(record.Value))
		case <-time.After(exchange.PatienceSeconds * time.Second):
			log.Fatalf("%s ended after %d records", topic, got)
		}
	}
}
