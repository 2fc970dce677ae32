// Two members of one group with sarama, by any of its strategies.
package main

import (
	"context"
	"log"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"waystation.test/compat/exchange"
)

var strategies = map[string]func() sarama.BalanceStrategy{
	"range":              sarama.NewBalanceStrategyRange,
	"roundrobin":         sarama.NewBalanceStrategyRoundRobin,
	"sticky":             sarama.NewBalanceStrategySticky,
	"cooperative-sticky": sarama.NewBalanceStrategyCooperativeSticky,
}

func main() {
	hall := exchange.NewHall()
	var members sync.WaitGroup
	for _, member := range exchange.Members {
		members.Add(1)
		go func() {
			defer members.Done()
			live(hall, member)
		}()
	}
	members.Wait()
}

func live(hall *exchange.Hall, member string) {
	strategy, ok := strategies[hall.Assignor]
	if !ok {
		log.Fatalf("sarama has no assignor %s", hall.Assignor)
	}
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Group.Heartbeat.Interval = 200 * time.Millisecond
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategy()}
	group, err := sarama.NewConsumerGroup([]string{hall.Bootstrap}, hall.Group, config)
	exchange.Must(err)
	defer group.Close()
	until, stop := context.WithCancel(context.Background())
	go func() {
		<-hall.Done
		stop()
	}()
	for until.Err() == nil { // a session ends with each rebalance
		exchange.Must(group.Consume(until, []string{hall.Topic}, &reader{hall, member}))
	}
}

type reader struct {
	hall   *exchange.Hall
	member string
}

func (r *reader) Setup(session sarama.ConsumerGroupSession) error {
	r.hall.Assigned(r.member, session.Claims()[r.hall.Topic])
	return nil
}

func (r *reader) Cleanup(session sarama.ConsumerGroupSession) error {
	r.hall.GivenUp(r.member, session.Claims()[r.hall.Topic])
	return nil
}

func (r *reader) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case record, open := <-claim.Messages():
			if !open {
				return nil
			}
			r.hall.Read(r.member, record.Partition, record.Offset, record.Value)
			session.MarkMessage(record, "")
		case <-session.Context().Done():
			return nil
		}
	}
}
