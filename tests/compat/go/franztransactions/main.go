// Reads numbers with franz-go and writes them on in transactions, each aborted once before it is
// committed together with its offsets, and prints what a reader of committed records gets.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"waystation.test/compat/exchange"
)

const (
	count  = 20
	atOnce = 10
)

func main() {
	bootstrap, prefix := os.Args[1], os.Args[2]
	patience, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	move(patience, bootstrap, prefix)
	read(patience, bootstrap, prefix+"-out")
}

func move(patience context.Context, bootstrap, prefix string) {
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(bootstrap),
		kgo.TransactionalID(prefix+"-id"),
		kgo.ConsumerGroup(prefix+"-group"),
		kgo.ConsumeTopics(prefix+"-in"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
	)
	exchange.Must(err)
	defer session.Close()
	for moved, attempt := 0, 0; moved < count; attempt++ {
		commits := attempt%2 == 1
		polled := session.PollRecords(patience, atOnce)
		exchange.Must(polled.Err())
		exchange.Must(session.Begin())
		polled.EachRecord(func(record *kgo.Record) {
			onwards := &kgo.Record{Topic: prefix + "-out", Value: record.Value}
			exchange.Must(session.ProduceSync(patience, onwards).FirstErr())
		})
		committed, err := session.End(patience, kgo.TransactionEndTry(commits))
		exchange.Must(err)
		if committed != commits {
			log.Fatalf("committed: %v, should be %v", committed, commits)
		}
		if committed {
			moved += polled.NumRecords()
		}
	}
}

func read(patience context.Context, bootstrap, topic string) {
	consumer, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
	)
	exchange.Must(err)
	defer consumer.Close()
	for got := 0; got < count; {
		fetches := consumer.PollFetches(patience)
		exchange.Must(fetches.Err())
		got += fetches.NumRecords()
		fetches.EachRecord(func(record *kgo.Record) { fmt.Println(string(record.Value)) })
	}
}
