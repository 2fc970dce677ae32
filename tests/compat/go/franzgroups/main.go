// Two members of one group with franz-go, by any of its balancers or by the broker's.
package main

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"waystation.test/compat/exchange"
)

var balancers = map[string]kgo.GroupBalancer{
	"range":              kgo.RangeBalancer(),
	"roundrobin":         kgo.RoundRobinBalancer(),
	"sticky":             kgo.StickyBalancer(),
	"cooperative-sticky": kgo.CooperativeStickyBalancer(),
}

func main() {
	hall := exchange.NewHall()
	var members sync.WaitGroup
	for _, member := range exchange.Members {
		members.Add(1)
		go func() {
			defer members.Done()
			read(hall, member)
		}()
	}
	members.Wait()
}

func read(hall *exchange.Hall, member string) {
	consumer, err := kgo.NewClient(options(hall, member)...)
	exchange.Must(err)
	defer consumer.Close()
	for done := false; !done; {
		patience, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		consumer.PollFetches(patience).EachRecord(func(record *kgo.Record) {
			hall.Read(member, record.Partition, record.Offset, record.Value)
		})
		cancel()
		select {
		case <-hall.Done:
			done = true
		default:
		}
	}
	exchange.Must(consumer.CommitUncommittedOffsets(context.Background()))
}

func options(hall *exchange.Hall, member string) []kgo.Opt {
	told := func(tell func(string, []int32)) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
			tell(member, partitions[hall.Topic])
		}
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(hall.Bootstrap), kgo.ConsumerGroup(hall.Group), kgo.ConsumeTopics(hall.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.HeartbeatInterval(200 * time.Millisecond),
		kgo.OnPartitionsAssigned(told(hall.Assigned)), kgo.OnPartitionsRevoked(told(hall.GivenUp)),
		kgo.OnPartitionsLost(told(hall.GivenUp)),
	}
	if balancer, ok := balancers[hall.Assignor]; ok {
		return append(options, kgo.Balancers(balancer))
	}
	return append(options, kgo.ServerSideBalancer())
}
